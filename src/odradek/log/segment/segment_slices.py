"""Cuts slices of whole batches out of a segment, for readers; nothing of a batch is decoded."""

from __future__ import annotations

from struct import Struct

from odradek.base.units import Offset
from odradek.log.files.disk import FileSlice
from odradek.log.files.page_cache import CachedFile
from odradek.log.segment.segment import Segment
from odradek.record.record_batch import HEADER_BYTES

HOLLOW_BYTES_MAX = 64 * HEADER_BYTES  # As many headers are looked at, where nothing else is left of a segment's end.
_unpack_count = Struct(">i").unpack_from
_COUNT_POSITION = HEADER_BYTES - 4


def slice_of(  # noqa: PLR0917
    segment: Segment, start: int, max_bytes: int, upto: Offset, end: Offset, cached: bool
) -> FileSlice:
    """Returns the batches from position `start` on, within max_bytes and below `upto`; the segment ends at `end`.

    Returns the first of them even if it is larger.  Raises DiskFailed; NotCached as Log.read.
    """
    limit = segment.size if upto >= end else segment.locate(upto, cached=cached)
    if limit is None:
        limit = segment.size
    if segment.damages:
        limit = segment.whole_until(start, limit)
    if start >= limit:
        return FileSlice(segment.file, start, 0)
    cut = segment.cut(start, start + max_bytes, limit, cached=cached)
    assert 0 <= start < cut <= limit <= segment.size, "a slice lies in its segment, and is not empty"
    if cut == limit:
        segment.hint(min(upto, end), cut)
    return FileSlice(segment.file, start, cut - start)


def is_hollow(found: FileSlice, segment: Segment, cached: bool) -> bool:
    """True for the rest of a segment if compaction left nothing of it but headers, which keep offsets and sequences.

    A reader gets what comes behind instead: librdkafka takes an answer without a record for one that was cut too short,
    and asks for twice as much, until it gives up.
    """
    size = found.size
    if not size or size % HEADER_BYTES or size > HOLLOW_BYTES_MAX or found.position + size < segment.size:
        return False
    file = CachedFile(found.file) if cached else found.file
    data = file.pread(found.position, size)
    return all(_unpack_count(data, at + _COUNT_POSITION)[0] == 0 for at in range(0, size, HEADER_BYTES))
