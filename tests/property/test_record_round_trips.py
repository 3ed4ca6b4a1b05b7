"""Round trips of records through batches: records.py, both variants of the kernels, Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.errors import Refused
from odradek.base.units import Offset
from odradek.record import arrow, arrow_encode
from odradek.record.arrow import DecodeSelection, RecordBatchLimits, decode_batches
from odradek.record.builder import RecordIn, encode_batch
from odradek.record.compression import Codec, compress, decompress
from odradek.record.record_batch import Batch
from odradek.record.records import Record, decode
from support.record_kernels import BUILDS, INT64, kernel, records

CODECS = st.sampled_from(Codec)
MILLIS = st.integers(-(2**62) // 1000, 2**62 // 1000)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def rows_of(table: pa.RecordBatch) -> list[tuple[Any, ...]]:
    table.validate(full=True)
    columns = [table[name].to_pylist() for name in ("offset", "key", "value", "headers")]
    return list(zip(*columns, table["timestamp"].cast(pa.int64()).to_pylist(), strict=True))


def as_row(record: Record) -> tuple[Any, ...]:
    headers = [{"key": key, "value": value} for key, value in record.headers] or None
    return record.offset, record.key, record.value, headers, record.timestamp * 1000


@given(records(), CODECS, st.integers(0, 2**62))
def test_decoded_records_equal_encoded_ones(rows: list[RecordIn], codec: Codec, base_offset: int) -> None:
    batch = Batch.verified(encode_batch(rows, codec, base_offset=Offset(base_offset)))
    got = [(record.key, record.value, list(record.headers), record.timestamp) for record in decode(batch)]
    assert got == [tuple(row) for row in rows]
    assert [record.offset for record in decode(batch)] == list(range(base_offset, base_offset + len(rows)))


@given(st.binary(max_size=2000) | st.builds(bytes.__mul__, st.binary(max_size=20), st.integers(0, 5000)), CODECS)
def test_decompressed_data_equals_compressed_data(data: bytes, codec: Codec) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    if codec is not Codec.NONE and data:
        with pytest.raises(Refused):
            decompress(codec, packed, len(data) - 1)


@given(st.lists(st.binary(max_size=300) | st.integers(0, 200_000).map(bytes), min_size=1, max_size=8), CODECS)
def test_concatenated_compressed_parts_are_decompressed(parts: list[bytes], codec: Codec) -> None:
    packed = b"".join(compress(codec, part) for part in parts)
    assert decompress(codec, packed) == b"".join(parts)
    whole = len(b"".join(parts))
    if codec is not Codec.NONE:
        assert decompress(codec, packed, whole) == b"".join(parts)
        if whole:
            with pytest.raises(Refused):
                decompress(codec, packed, whole - 1)


@settings(max_examples=60)
@given(records(), st.data())
def test_a_flipped_bit_is_refused(rows: list[RecordIn], data: st.DataObject) -> None:
    """Base offset and leader epoch are excluded: the leader sets them, and the checksum does not cover them."""
    batch = encode_batch(rows)
    bit = data.draw(st.integers(0, 8 * len(batch) - 1))
    batch[bit // 8] ^= 1 << bit % 8
    if 12 <= bit // 8 < 16:
        assert Batch.checked(batch).leader_epoch != -1
    else:
        with pytest.raises(Refused):
            Batch.checked(batch)


@pytest.mark.parametrize("build", BUILDS)
def test_arrow_has_the_same_records(build: str) -> None:
    decoder = kernel("decode", build).Decoder

    @settings(max_examples=60)
    @given(st.lists(records(MILLIS), min_size=1, max_size=4), CODECS, INT64, INT64, st.integers(1, 20))
    def check(batches: list[list[RecordIn]], codec: Codec, start: int, stop: int, portion: int) -> None:
        views, base = [], 0
        for rows in batches:
            views.append(Batch.verified(encode_batch(rows, codec, base_offset=Offset(base))))
            base += len(rows)
        selection = DecodeSelection(headers=True, start=start % (base + 1), stop=stop % (base + 2))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(arrow, "Decoder", decoder)
            tables = list(decode_batches(views, "t", 0, selection, RecordBatchLimits(rows=portion)))
        got = [row for table in tables for row in rows_of(table)]
        everything = [record for view in views for record in decode(view)]
        assert got == [as_row(record) for record in everything if selection.start <= record.offset < selection.stop]

    check()


@pytest.mark.parametrize("build", BUILDS)
def test_arrow_columns_encode_to_the_same_batch_as_records(build: str) -> None:
    encode = kernel("encode", build)

    @settings(max_examples=60)
    @given(records(), CODECS, st.data())
    def check(rows: list[RecordIn], codec: Codec, data: st.DataObject) -> None:
        start = data.draw(st.integers(0, len(rows) - 1))
        stop = data.draw(st.integers(start + 1, len(rows)))
        keys, values, headers, timestamps = zip(*rows, strict=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(arrow_encode, "Encoder", encode.Encoder)
            patch.setattr(arrow_encode, "Cells", encode.Cells)
            batch = arrow_encode.encode_rows(
                pa.array(keys, pa.binary()),
                pa.array(values, pa.binary()),
                pa.array(timestamps, pa.int64()),
                pa.array(headers, HEADERS),
                now=0,
                start=start,
                stop=stop,
                codec=codec,
            )
        assert batch == encode_batch(rows[start:stop], codec)

    check()
