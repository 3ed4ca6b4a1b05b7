from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis.strategies import binary, integers, just, lists, none, one_of, tuples

from odradek.base.units import INT64_MAX
from odradek.client.producer.batch_encoder import encode_records, validity_of
from odradek.record.builder import RecordIn, encode_batch
from odradek.record.compression import Codec
from odradek.record.record_batch import Batch

HEADERS = (("h", b"x"), ("h", None))
contents = none() | binary(max_size=9)
records = tuples(contents, contents, one_of(just(()), just(()), just(HEADERS)), integers(0, INT64_MAX // 2))


@settings(deadline=None)
@given(lists(records, min_size=1, max_size=40))
def test_encoder_writes_the_same_bytes_as_the_builder(given_records: list[RecordIn]) -> None:
    assert encode_records(given_records) == encode_batch(given_records)


@pytest.mark.parametrize("codec", list(Codec))
def test_records_are_encoded_with_every_codec(codec: Codec) -> None:
    many: list[RecordIn] = [(b"key", b"value %d" % number, (), number) for number in range(1_000)]
    batch = encode_records(many, codec)
    assert batch == encode_batch(many, codec)
    assert Batch.checked(batch).codec == codec


def test_batch_without_records_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        encode_records([])


def test_validity_bits_start_with_the_lowest() -> None:
    assert validity_of([b"", None, b"x", b"", None, None, None, None, b""]) == bytes([0b00001101, 1])
