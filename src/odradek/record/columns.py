"""Keys and values of batches as two lists, decoded by the compiled kernel.

A Record object costs 9 µs per record, this path 1 µs. Callers that need neither offsets nor headers use it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.record.compression import decompress
from odradek.record.kernels.decode import Column, Decoder
from odradek.record.record_batch import Batch


class Columns(NamedTuple):
    """Keys and values, of the same length; `keys` is empty if keys were not requested."""

    keys: list[bytes | None]
    values: list[bytes | None]


def columns_of(batch: Batch, start: int, stop: int, *, with_keys: bool) -> Columns:
    """Decode the records of a data batch with offsets from start to stop - 1.

    Raise Refused(CORRUPT_MESSAGE).
    """
    decoder = Decoder(with_keys, True, False)
    decoder.window(start, stop)
    add(decoder, batch)
    return taken(decoder, with_keys=with_keys)


def add(decoder: Decoder, batch: Batch) -> None:
    """Add the records of a data batch to a decoder.

    Raise Refused(CORRUPT_MESSAGE) without adding any record.
    """
    payload = decompress(batch.codec, batch.payload)
    bad = decoder.decode(payload, batch.records_count, batch.base_offset, batch.base_timestamp, None)
    if bad >= 0:
        raise Refused(
            ErrorCode.CORRUPT_MESSAGE, f"record {bad} of the batch at offset {batch.base_offset} is malformed"
        )


def taken(decoder: Decoder, *, with_keys: bool) -> Columns:
    """Remove and return the values added to a decoder, and the keys if requested."""
    if not decoder.rows:
        return Columns([], [])
    columns = Columns(_contents(decoder.keys) if with_keys else [], _contents(decoder.values))
    decoder.clear()
    return columns


def _contents(column: Column) -> list[bytes | None]:
    """Return the rows of a column in Arrow's layout.

    The layout is n + 1 int32 offsets, concatenated bytes, and validity bits.
    """
    validity, offsets, data = column.buffers()
    assert isinstance(offsets, bytearray), "the decoder allocates arrays of this type"
    ends = memoryview(offsets)[: 4 * (column.rows + 1)].cast("i").tolist()
    assert data is None or isinstance(data, bytearray)
    whole = b"" if data is None else bytes(memoryview(data)[: ends[-1]])
    found: list[bytes | None] = [whole[begin:end] for begin, end in pairwise(ends)]
    if column.nulls:
        assert isinstance(validity, bytearray)
        for row in range(column.rows):
            if not validity[row >> 3] >> (row & 7) & 1:
                found[row] = None
    return found
