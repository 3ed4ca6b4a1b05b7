"""Checks of index entries against their batches: an index may be damaged or belong to another segment.

An index has no checksum.  Ascending entries prove nothing, because the entries of the neighbouring segment ascend, too.
So a lookup compares each entry it uses with the header of its batch, which it reads anyway.  A mismatch raises Damaged
with the index's path, and the index is rebuilt from the log.

Kafka's entries refer to the first batch of an append.  They contain the offset of that batch (before 0.11), or the last
offset of the append.  So an entry's offset may be after its batch, and is never before it.
"""

from __future__ import annotations

from odradek.base.units import Offset, TimestampMs
from odradek.log.files.page_cache import ReadableFile
from odradek.log.segment.index import OffsetIndex
from odradek.log.segment.scan import Damaged, FileBatch, batch_at
from odradek.record.record_batch import MAGIC


def check_entry(offsets: OffsetIndex, number: int, file: ReadableFile, size: int, *, cached: bool = False) -> None:
    """Raise Damaged unless an entry points to a batch that begins at or before its offset.

    With `cached`, raise NotCached instead of waiting for the disk.
    """
    delta, position = offsets.entry(number, cached=cached)
    if not 0 <= position < size:
        raise Damaged(offsets.path, position, f"the entry points outside of the segment's {size} bytes")
    try:
        place = batch_at(file, position, size)
    except Damaged:
        raise Damaged(
            offsets.path, position, f"the entry points to byte {position}, which is not the start of a batch"
        ) from None
    check_place(offsets, place, Offset(offsets.base_offset + delta))


def check_place(offsets: OffsetIndex, place: FileBatch, offset: Offset) -> None:
    """Raise Damaged if a batch can't be that of an entry for `offset`; old formats are not checked."""
    if place.magic == MAGIC and not offsets.base_offset <= place.base_offset <= offset:
        raise Damaged(offsets.path, place.position, f"the entry points to offset {place.base_offset}, not to {offset}")


def has_time(place: FileBatch | None, timestamp: TimestampMs) -> bool:
    """Return whether a batch has the timestamp of its time index entry."""
    return place is not None and place.max_timestamp == timestamp
