"""Keys and values of batches as two lists, by way of the compiled kernel.

A Record for each costs 9 µs, this 1 µs; so who needs neither offsets nor headers comes through here.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.record.compression import decompress
from odradek.record.kernels.decode import Column, Decoder
from odradek.record.record_batch import Batch


class Columns(NamedTuple):
    """Keys and values, of the same length; `keys` is empty where they were not wanted."""

    keys: list[bytes | None]
    values: list[bytes | None]


def columns_of(batch: Batch, start: int, stop: int, *, with_keys: bool) -> Columns:
    """Decodes the records of a data batch with offsets from start to stop - 1.  Raises Refused(CORRUPT_MESSAGE)."""
    decoder = Decoder(with_keys, True, False)
    decoder.window(start, stop)
    add(decoder, batch)
    return taken(decoder, with_keys=with_keys)


def add(decoder: Decoder, batch: Batch) -> None:
    """Adds the records of a data batch to a decoder's.  Raises Refused(CORRUPT_MESSAGE) with none of them added."""
    payload = decompress(batch.codec, batch.payload)
    bad = decoder.decode(payload, batch.records_count, batch.base_offset, batch.base_timestamp, None)
    if bad >= 0:
        raise Refused(
            ErrorCode.CORRUPT_MESSAGE, f"record {bad} of the batch at offset {batch.base_offset} is malformed"
        )


def taken(decoder: Decoder, *, with_keys: bool) -> Columns:
    """Takes what was added out of a decoder of values, and of keys where they are wanted."""
    if not decoder.rows:
        return Columns([], [])
    columns = Columns(_contents(decoder.keys) if with_keys else [], _contents(decoder.values))
    decoder.clear()
    return columns


def _contents(column: Column) -> list[bytes | None]:
    """Returns the rows of a column in Arrow's layout: n + 1 int32 offsets, the bytes back to back, validity bits."""
    validity, offsets, data = column.buffers()
    assert isinstance(offsets, bytearray), "as the decoder allocates"
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
