"""RecordBatches decoded from batches, by compiled and interpreted kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import Offset, TimestampMs
from odradek.record import arrow
from odradek.record.arrow import ArrowDecoder, DecodeSelection, RecordBatchLimits, decode_batches
from odradek.record.builder import RecordIn, encode_batch
from odradek.record.compression import Codec
from odradek.record.record_batch import Batch, iter_batches
from support.record_kernels import BUILDS, kernel

Row = dict[str, Any]
ALL = DecodeSelection(headers=True)


@pytest.fixture(params=BUILDS, autouse=True)
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(arrow, "Decoder", kernel("decode", request.param).Decoder)
    return str(request.param)


def rows(batches: Sequence[Batch], selection: DecodeSelection = ALL, **portion: Any) -> list[Row]:
    result: list[Row] = []
    for record_batch in decode_batches(batches, "topic", 3, selection, RecordBatchLimits(**portion)):
        record_batch.validate(full=True)
        result += record_batch.to_pylist()
    return result


def batch_of(records: Sequence[RecordIn], codec: Codec = Codec.NONE, base_offset: int = 0, **more: Any) -> Batch:
    return Batch.verified(encode_batch(records, codec, base_offset=Offset(base_offset), **more))


def plain(count: int, base_offset: int = 0, **more: Any) -> Batch:
    return batch_of(
        [(None, b"%d" % (base_offset + i), (), 1000) for i in range(count)], base_offset=base_offset, **more
    )


def test_schema_matches_sparks_kafka_source() -> None:
    assert str(DecodeSelection(headers=True).schema()).splitlines() == [
        "key: binary",
        "value: binary",
        "topic: string",
        "partition: int32",
        "offset: int64",
        "timestamp: timestamp[us, tz=UTC]",
        "timestampType: int32",
        "headers: list<element: struct<key: string, value: binary>>",
        "  child 0, element: struct<key: string, value: binary>",
        "      child 0, key: string",
        "      child 1, value: binary",
    ]
    assert DecodeSelection(key=False, value=False).schema().names == [
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
    ]


@pytest.mark.parametrize("codec", Codec)
def test_all_columns_are_decoded(codec: Codec) -> None:
    batch = batch_of([(b"k", None, (), 1234), (None, b"v", [("h", b"1"), ("é", None)], 1300)], codec, base_offset=70)
    first, second = rows([batch])
    assert first["timestamp"].timestamp() == 1.234
    assert (first["key"], first["value"], first["offset"], first["headers"]) == (b"k", None, 70, None)
    assert (second["key"], second["value"], second["offset"]) == (None, b"v", 71)
    assert second["headers"] == [{"key": "h", "value": b"1"}, {"key": "é", "value": None}]
    assert (first["topic"], first["partition"], first["timestampType"]) == ("topic", 3, 0)


def test_unselected_columns_are_omitted() -> None:
    batch = batch_of([(b"k", b"v", [("h", None)], 1)])
    assert list(rows([batch], DecodeSelection(key=False))[0]) == [
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
    ]
    assert rows([batch], DecodeSelection(value=False))[0]["key"] == b"k"


def test_rows_are_limited_to_the_offset_range() -> None:
    run = b"".join(bytes(plain(10, base).view) for base in range(0, 50, 10))
    got = rows(list(iter_batches(run)), DecodeSelection(start=15, stop=32))
    assert [row["offset"] for row in got] == list(range(15, 32))
    assert [row["value"] for row in got] == [b"%d" % offset for offset in range(15, 32)]


def test_control_batches_are_skipped() -> None:
    marker = batch_of([(b"\0\0\0\1", b"\0" * 6, (), 5)], base_offset=3, is_control=True, is_transactional=True)
    assert [row["offset"] for row in rows([plain(3), marker, plain(2, 4)])] == [0, 1, 2, 4, 5]


def test_batch_with_log_append_time_starts_a_record_batch() -> None:
    stamped = plain(2, 2, log_append_time=TimestampMs(9_000))
    decoded = list(decode_batches([plain(2), stamped, plain(1, 4)], "t", 0))
    assert [len(record_batch) for record_batch in decoded] == [2, 2, 1]
    both = [row for record_batch in decoded for row in record_batch.to_pylist()]
    assert [row["timestampType"] for row in both] == [0, 0, 1, 1, 0]
    assert [row["timestamp"].timestamp() for row in both] == [1, 1, 9, 9, 1]


@pytest.mark.parametrize(
    ("portion", "sizes"),
    [
        ({"rows": 10}, [12, 12, 12]),
        ({"rows": 100}, [36]),
        ({"rows": 2}, [2] * 18),
        ({"rows": 100, "data_bytes": 10}, [12, 12, 12]),
    ],
)
def test_record_batches_are_cut_to_the_portion(portion: dict[str, Any], sizes: list[int]) -> None:
    batches = [plain(12, base) for base in (0, 12, 24)]
    decoded = list(decode_batches(batches, "t", 0, DecodeSelection(), RecordBatchLimits(**portion)))
    assert [len(record_batch) for record_batch in decoded] == sizes
    assert [row["offset"] for record_batch in decoded for row in record_batch.to_pylist()] == list(range(36))


def test_later_portions_do_not_overwrite_earlier_ones() -> None:
    """Buffers are handed over, not shared with the next portion."""
    decoder = ArrowDecoder("t", 0, portion=RecordBatchLimits(rows=5))
    kept = [table for base in range(0, 100, 5) for table in decoder.feed(plain(5, base))]
    assert [row["value"] for table in kept for row in table.to_pylist()] == [b"%d" % i for i in range(100)]
    assert decoder.rows == 0 and decoder.flush() == []


def broken(change: int) -> Batch:
    data = bytearray(plain(5, 5).view)
    data[change] ^= 0x40
    return Batch.trusted(data)


def test_checksum_mismatch_is_raised_after_the_preceding_rows() -> None:
    decoder = decode_batches([plain(5), broken(-1), plain(5, 10)], "topic", 3)
    assert len(next(decoder)) == 5
    with pytest.raises(Refused, match="topic-3: batch at offset 5: checksum mismatch") as caught:
        next(decoder)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_malformed_record_is_raised_after_the_preceding_rows() -> None:
    decoder = decode_batches(
        [plain(5), broken(-1), plain(5, 10)], "topic", 3, portion=RecordBatchLimits(check_crc=False)
    )
    assert next(decoder)["offset"].to_pylist() == [0, 1, 2, 3, 4]
    with pytest.raises(Refused, match="record 4 of 5 is malformed"):
        next(decoder)


def test_decompression_bomb_is_refused() -> None:
    bomb = batch_of([(None, bytes(1 << 20), (), 1)], Codec.GZIP)
    with pytest.raises(Refused, match="more than 1000"):
        rows([bomb], decompressed_bytes_max=1000)


def test_invalid_utf8_in_header_keys_is_replaced() -> None:
    data = encode_batch([(None, None, [("key", b"v")], 1), (None, None, [("é", b"v")], 1)])
    position = data.index(b"key")
    data[position] = 0xFF
    got = rows([Batch.trusted(data)], check_crc=False)
    assert [row["headers"][0]["key"] for row in got] == ["�ey", "é"]


def test_columns_may_be_all_null_or_all_empty() -> None:
    batch = batch_of([(None, b"", (), 1)] * 100)
    got = rows([batch, batch])
    assert {(row["key"], row["value"], row["headers"]) for row in got} == {(None, b"", None)} and len(got) == 200


def test_header_buffers_grow_on_demand() -> None:
    many = [(f"h{i}", b"x" * 100) for i in range(3000)]
    got = rows([batch_of([(None, None, many if i % 2 else (), 1) for i in range(4)])])
    assert [len(row["headers"] or ()) for row in got] == [0, 3000, 0, 3000]
    assert got[3]["headers"][2999] == {"key": "h2999", "value": b"x" * 100}


def test_buffers_are_allocated_by_arrow() -> None:
    before = pa.total_allocated_bytes()
    (table,) = decode_batches([plain(1000)], "t", 0)
    assert pa.total_allocated_bytes() > before
    del table
    assert pa.total_allocated_bytes() == before
