"""Encoding of a list of records as a batch, by the compiled kernel or, with headers, one by one.

The kernel requires columns in Arrow's layout: n + 1 int32 offsets, the bytes back to back, and a validity bit each.
Building them from a list costs 0.4 µs per record; writing the record in Python would cost 6 µs.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate

from odradek.base.units import INT32_MAX, TimestampMs
from odradek.record.builder import RecordIn, encode_batch, seal_batch
from odradek.record.compression import Codec
from odradek.record.crc import Buffer
from odradek.record.kernels.encode import Cells, Encoder
from odradek.record.record_batch import HEADER_BYTES

_NO_CELLS = Cells(memoryview(array("i", [0])), b"", None, 0, 0)


def encode_records(records: Sequence[RecordIn], codec: Codec = Codec.NONE, level: int | None = None) -> bytearray:
    """Encode records (key, value, headers, timestamp in ms) as one batch.

    Raise ValueError without a record.
    """
    if not records or any(record[2] for record in records):
        return encode_batch(records, codec, level=level)
    keys, values, _, timestamps = zip(*records, strict=True)
    moments = array("q", timestamps)
    encoder = Encoder(cells(keys), cells(values), (_NO_CELLS, _NO_CELLS, _NO_CELLS), memoryview(moments))
    return seal_batch(
        encoder.encode(HEADER_BYTES, 0, len(records)),
        codec,
        level=level,
        count=len(records),
        base_timestamp=TimestampMs(moments[0]),
        max_timestamp=TimestampMs(max(moments)),
    )


def cells(contents: Sequence[Buffer | None]) -> Cells:
    has_nulls = None in contents
    present: Sequence[Buffer] = [b"" if content is None else content for content in contents] if has_nulls else contents  # type: ignore[assignment]  # No None is in it.
    data = b"".join(present)
    if len(data) > INT32_MAX:
        raise ValueError(f"{len(data)} bytes exceed the maximum size of a batch")
    ends = array("i", accumulate(map(len, present), initial=0))
    return Cells(memoryview(ends), data, validity_of(contents) if has_nulls else None, 0, len(data))


def validity_of(contents: Sequence[Buffer | None]) -> bytes:
    """Return the validity bits, lowest first; 1 means not null."""
    bits = int("".join("0" if content is None else "1" for content in reversed(contents)), 2)
    return bits.to_bytes((len(contents) + 7) // 8, "little")
