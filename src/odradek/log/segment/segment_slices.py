"""Slices of whole batches from a segment, for readers; no batch is decoded."""

from __future__ import annotations

from struct import Struct

from odradek.base.units import Offset
from odradek.log.files.disk import FileSlice
from odradek.log.files.page_cache import CachedFile
from odradek.log.segment.segment import Segment
from odradek.record.record_batch import HEADER_BYTES

HOLLOW_BYTES_MAX = 64 * HEADER_BYTES  # Limits the headers read at a segment's end without records.
_unpack_count = Struct(">i").unpack_from
_COUNT_POSITION = HEADER_BYTES - 4


def slice_of(  # noqa: PLR0917
    segment: Segment, start: int, max_bytes: int, upto: Offset, end: Offset, cached: bool
) -> FileSlice:
    """Return the batches from position `start`, within max_bytes and below `upto`.

    `end` is the end offset of the segment.  Return the first batch even if it is larger than max_bytes.  Raise
    DiskFailed, or NotCached as Log.read does.
    """
    limit = segment.size if upto >= end else segment.locate(upto, cached=cached)
    if limit is None:
        limit = segment.size
    if segment.damages:
        limit = segment.whole_until(start, limit)
    if start >= limit:
        return FileSlice(segment.file, start, 0)
    cut = segment.cut(start, start + max_bytes, limit, cached=cached)
    assert 0 <= start < cut <= limit <= segment.size, "a slice is within its segment and not empty"
    if cut == limit:
        segment.hint(min(upto, end), cut)
    return FileSlice(segment.file, start, cut - start)


def is_hollow(found: FileSlice, segment: Segment, cached: bool) -> bool:
    """Return whether the rest of a segment has only headers, kept by compaction for offsets and sequences.

    A reader then receives the batches behind it.  librdkafka treats a response without a record as truncated and
    requests twice as much until it fails.
    """
    size = found.size
    if not size or size % HEADER_BYTES or size > HOLLOW_BYTES_MAX or found.position + size < segment.size:
        return False
    file = CachedFile(found.file) if cached else found.file
    data = file.pread(found.position, size)
    if len(data) < size:  # The file was shortened; the reader finds out.
        return False
    return all(_unpack_count(data, at + _COUNT_POSITION)[0] == 0 for at in range(0, size, HEADER_BYTES))
