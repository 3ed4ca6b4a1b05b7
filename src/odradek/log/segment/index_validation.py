"""Compares index entries with the batches that they lead to: an index may be another segment's, or have rotted.

An index has no checksum.  That its entries ascend says nothing: those of the segment beside it do, too.  So each entry
that a lookup goes by is compared with the header of its batch, which the lookup reads anyway.  What disagrees raises
Damaged with the index's path, and the index is made again from the log.

Kafka's entries lead to the first batch of an append, and name the offset of that batch (before 0.11) or the last one of
the append: so an entry's offset may be beyond its batch, and is never before it.
"""

from __future__ import annotations

from odradek.base.units import Offset, TimestampMs
from odradek.log.files.page_cache import ReadableFile
from odradek.log.segment.index import OffsetIndex
from odradek.log.segment.scan import Damaged, FileBatch, batch_at
from odradek.record.record_batch import MAGIC


def check_entry(offsets: OffsetIndex, number: int, file: ReadableFile, size: int, *, cached: bool = False) -> None:
    """Raises Damaged if an entry leads to no batch, or to one that begins beyond it; with `cached` NotCached."""
    delta, position = offsets.entry(number, cached=cached)
    if not 0 <= position < size:
        raise Damaged(offsets.path, position, f"points outside of {size} bytes")
    try:
        place = batch_at(file, position, size)
    except Damaged:
        raise Damaged(offsets.path, position, f"points to byte {position}, where no batch begins") from None
    check_place(offsets, place, Offset(offsets.base_offset + delta))


def check_place(offsets: OffsetIndex, place: FileBatch, offset: Offset) -> None:
    """Raises Damaged if a batch is not the one that an entry for `offset` leads to; of old formats nobody can tell."""
    if place.magic == MAGIC and not offsets.base_offset <= place.base_offset <= offset:
        raise Damaged(offsets.path, place.position, f"points to {place.base_offset}, not to {offset}")


def has_time(place: FileBatch | None, timestamp: TimestampMs) -> bool:
    """True if a batch has the timestamp by which an entry of the time index names it."""
    return place is not None and place.max_timestamp == timestamp
