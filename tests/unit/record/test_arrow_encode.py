"""Batches encoded from Arrow columns, by compiled and interpreted kernels."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from odradek.base.units import ProducerEpoch, ProducerId
from odradek.record import arrow_encode
from odradek.record.arrow_encode import RowEncoder, encode_rows, partitions_of
from odradek.record.builder import encode_batch
from odradek.record.compression import Codec
from odradek.record.record_batch import HEADER_BYTES, Batch
from odradek.record.records import decode
from support.record_kernels import BUILDS, kernel

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
COUNT = 100
KEYS: list[bytes | None] = [b"k%d" % i if i % 3 else None for i in range(COUNT)]
VALUES: list[bytes | None] = [b"v" * i * 9 if i % 5 else None for i in range(COUNT)]
TIMES = [10_000 + (i * 7919) % 1000 for i in range(COUNT)]
HEADS: list[Any] = [[("a", b"1"), ("é", None)] if i % 4 == 1 else [] if i % 2 else None for i in range(COUNT)]
NOW = 5


@pytest.fixture(params=BUILDS, autouse=True)
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    module = kernel("encode", request.param)
    monkeypatch.setattr(arrow_encode, "Encoder", module.Encoder)
    monkeypatch.setattr(arrow_encode, "Cells", module.Cells)
    monkeypatch.setattr(arrow_encode, "choose_partitions", kernel("murmur", request.param).choose_partitions)
    return str(request.param)


def columns(start: int = 0) -> dict[str, pa.Array]:
    """Return the columns from row `start` on, as slices whose buffers begin earlier."""
    return {
        "keys": pa.array(KEYS, pa.binary()).slice(start),
        "values": pa.array(VALUES, pa.binary()).slice(start),
        "timestamps": pa.array(TIMES, pa.int64()).slice(start),
        "headers": pa.array(HEADS, HEADERS).slice(start),
    }


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("start", [0, 9])
def test_columns_and_single_records_encode_to_the_same_bytes(codec: Codec, start: int) -> None:
    rows = list(zip(KEYS, VALUES, [head or [] for head in HEADS], TIMES, strict=True))
    assert encode_rows(**columns(start), now=NOW, codec=codec) == encode_batch(rows[start:], codec)
    assert encode_rows(**columns(start), now=NOW, start=3, stop=50) == encode_batch(rows[start + 3 : start + 50])


def test_fit_returns_the_largest_batch_within_the_limit() -> None:
    encoder = RowEncoder(pa.array(VALUES, pa.binary()), now=NOW)
    start, got = 0, []
    while start < encoder.rows:
        stop = encoder.fit(start, 2000)
        batch = Batch.checked(encoder.encode(start, stop))
        assert batch.size <= 2000 or stop == start + 1
        assert stop == encoder.rows or len(encoder.encode(start, stop + 1)) > 2000, "no larger batch would do"
        got += [record.value for record in decode(batch)]
        start = stop
    assert got == VALUES
    assert encoder.fit(50, 1) == 51, "one row goes even where it is too large"


def test_producer_fields_are_set_in_the_header() -> None:
    encoder = RowEncoder(pa.array([b"v"] * 4, pa.binary()), now=NOW)
    batch = Batch.checked(
        encoder.encode(
            1, 3, producer_id=ProducerId(8), producer_epoch=ProducerEpoch(2), base_sequence=40, is_transactional=True
        )
    )
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (8, 2, 40, 41)
    assert batch.is_transactional and batch.base_timestamp == batch.max_timestamp == NOW


def test_timestamps_of_any_unit_are_converted_and_missing_ones_are_now() -> None:
    for unit, factor in (("s", 1), ("ms", 1000), ("us", 1_000_000), ("ns", 1_000_000_000)):
        times = pa.array([3 * factor, None, 7 * factor], pa.timestamp(unit, tz="UTC"))
        batch = Batch.checked(encode_rows(None, pa.array([b""] * 3, pa.binary()), times, now=NOW))
        assert [record.timestamp for record in decode(batch)] == [3000, NOW, 7000]
        assert batch.max_timestamp == 7000


def test_columns_of_all_bytes_and_string_types_are_accepted() -> None:
    for kind in (pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view(), pa.binary(2)):
        values = pa.chunked_array([pa.array(["ab"], kind), pa.array(["cd", None], kind)])
        got = decode(Batch.checked(encode_rows(None, values, now=NOW)))
        assert [record.value for record in got] == [b"ab", b"cd", None]


BYTES = pa.array([b"a", b"b"], pa.binary())


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"values": pa.array([1, 2], pa.int64())}, "a column must contain bytes"),
        ({"values": BYTES, "keys": BYTES.slice(1)}, "same length"),
        ({"values": BYTES, "headers": BYTES}, "headers must be"),
        ({"values": BYTES, "timestamps": BYTES}, "timestamps must be"),
        ({"values": BYTES, "headers": pa.array([[(None, b"x")], None], HEADERS)}, "Row 0 cannot be encoded"),
        ({"values": None}, "same length"),
        ({"values": BYTES.slice(2)}, "rows 0 to 0 are out of range"),
    ],
)
def test_invalid_columns_are_refused(columns: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        encoder = RowEncoder(**columns, now=NOW)
        encoder.encode(0, encoder.rows)


def test_offsets_outside_the_column_are_refused() -> None:
    """Invalid offsets cause no read outside the column."""
    borders = pa.py_buffer(b"".join(offset.to_bytes(4, "little") for offset in (0, 2**30, 3)))
    lying = pa.Array.from_buffers(pa.binary(), 2, [None, borders, pa.py_buffer(b"abc")])
    with pytest.raises(ValueError, match="Row 0"):
        encode_rows(None, lying, now=NOW)
    with pytest.raises(ValueError, match="key 0"):
        partitions_of(lying, 3)


def test_partitions_match_kafkas_default_partitioner() -> None:
    keys = pa.array([b"x", b"21", None, b"foobar", b""], pa.binary()).slice(1)
    expected = [(hashed & 0x7FFFFFFF) % 7 for hashed in (-973932308, -790332482, 275646681)]
    assert partitions_of(keys, 7).to_pylist() == [expected[0], None, expected[1], expected[2]]
    assert partitions_of(keys.slice(4), 7).to_pylist() == []
    with pytest.raises(ValueError, match="0 partitions"):
        partitions_of(keys, 0)


def test_encoded_batch_has_the_exact_size() -> None:
    encoder = RowEncoder(pa.array([b"x" * 100] * 10, pa.binary()), now=NOW)
    assert len(encoder.encode(0, 10)) == HEADER_BYTES + 10 * (2 + 1 + 1 + 1 + 1 + 2 + 100 + 1)
