from __future__ import annotations

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TimestampMs
from odradek.record.batch import HEADER_BYTES, Batch
from odradek.record.builder import encode_batch, encode_record, seal_batch
from odradek.record.compression import Codec
from odradek.record.validation import check_records


def batch_of(deltas: list[int], codec: Codec, count: int, tail: bytes = b"") -> Batch:
    data = bytearray(HEADER_BYTES)
    for delta in deltas:
        encode_record(data, delta, 0, None, b"value")
    now = TimestampMs(1)
    return Batch.checked(seal_batch(data + tail, codec, count=count, base_timestamp=now, max_timestamp=now))


@pytest.mark.parametrize("codec", Codec)
def test_sound_records_pass(codec: Codec) -> None:
    check_records(Batch.checked(encode_batch([(b"k", b"v", [("h", None)], i) for i in range(100)], codec)))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(
    ("deltas", "count", "tail", "why"),
    [
        ([0, 1, 2], 2, b"", "bytes are left"),
        ([0, 1, 2], 5, b"", "record 3 of 5"),
        ([0, 1, 2], 3, b"zzz", "bytes are left"),
        ([0, 5, 2], 3, b"", "record 1 of 3"),
        ([], 3, b"\xff" * 30, "record 0 of 3"),
    ],
)
def test_what_the_header_does_not_say(codec: Codec, deltas: list[int], count: int, tail: bytes, why: str) -> None:
    with pytest.raises(Refused, match=why) as caught:
        check_records(batch_of(deltas, codec, count, tail))
    assert caught.value.code == ErrorCode.INVALID_RECORD


def test_what_does_not_decompress() -> None:
    data = bytearray(HEADER_BYTES) + b"\xff" * 30
    now = TimestampMs(1)
    batch = Batch.checked(seal_batch(data, count=1, base_timestamp=now, max_timestamp=now, attributes=Codec.GZIP))
    with pytest.raises(Refused) as caught:
        check_records(batch)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
