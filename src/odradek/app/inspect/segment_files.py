"""Size and age of a partition's segments, read from its files, also while a broker uses them.

The greatest timestamp of a sealed segment is the last entry of its time index. In the active segment, the batches after
the last entry are walked. A segment therefore costs two reads, whatever its size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from odradek.app.inspect.dump import dump_batch, entries, open_read_only, records
from odradek.base.units import NO_TIMESTAMP, Offset, TimestampMs
from odradek.log.files.disk import File, RealFile
from odradek.log.files.log_file_names import LOG, OFFSET_INDEX, TIME_INDEX, parse_segment_file
from odradek.log.segment.index import OFFSET_ENTRY, TIME_ENTRY
from odradek.log.segment.scan import Damaged, FileBatch, walk
from odradek.record.record_batch import DELETE_HORIZON, HEADER_BYTES, MAGIC, MAGIC_POSITION, BatchHeader


class SegmentFacts(NamedTuple):
    """Facts of one segment.

    `newest` is the greatest timestamp of its records, or the file's modification time if they have none.
    """

    path: Path
    base_offset: Offset
    end_offset: Offset  # One past its last record; if sealed, the next base offset.
    size: int
    first: TimestampMs  # Of its first batch; -1 if it has none.
    newest: TimestampMs
    has_timestamps: bool
    is_active: bool
    newest_offset: int | None = None  # Of the record with the greatest timestamp, if determined.


def segments_of(directory: Path) -> list[SegmentFacts]:
    """Return the segments of a partition, oldest first, without concurrently deleted ones. Raise OSError."""
    bases = sorted(_bases(directory))
    found = [one for base, path in bases if (one := _facts(base, path)) is not None]
    sealed = [one._replace(end_offset=after.base_offset) for one, after in pairwise(found)]
    return [*sealed, *(one._replace(is_active=True) for one in found[-1:])]


def _bases(directory: Path) -> Iterator[tuple[Offset, Path]]:
    for path in directory.iterdir():
        parsed = parse_segment_file(path.name)
        if parsed is not None and parsed[1:] == (LOG, ""):
            yield parsed[0], path


def _facts(base: Offset, path: Path) -> SegmentFacts | None:
    try:
        file = open_read_only(path)
        status = path.stat()
        position = _last(path.with_suffix(OFFSET_INDEX), OFFSET_ENTRY, (0, 0))[1]
        noted = _last(path.with_suffix(TIME_INDEX), TIME_ENTRY, (NO_TIMESTAMP, 0))[0]
    except FileNotFoundError:
        return None
    tail = _tail(file, position, status.st_size) or _tail(file, 0, status.st_size)
    newest = max([noted, *(batch.max_timestamp for batch in tail)])
    size, end = (tail[-1].end_position, tail[-1].last_offset + 1) if tail else (0, base)
    return SegmentFacts(
        path,
        base,
        Offset(end),
        size,
        _first(file),
        TimestampMs(newest if newest >= 0 else status.st_mtime_ns // 1_000_000),
        newest >= 0,
        is_active=False,
    )


def _last(path: Path, layout: Struct, default: tuple[int, int]) -> tuple[int, int]:
    """Return the last entry of an index, or the default if there is no entry or no file."""
    found: deque[tuple[int, ...]] = deque([default], maxlen=1)
    with suppress(FileNotFoundError):
        found.extend(entries(path, layout))
    first, second = found[0]
    return first, second


def _tail(file: File, position: int, size: int) -> list[FileBatch]:
    """Return the whole batches from a position on."""
    found: list[FileBatch] = []
    with suppress(Damaged):
        found.extend(walk(file, position, size))
    return found


def _first(file: File) -> TimestampMs:
    data = file.pread(0, HEADER_BYTES)
    if len(data) < HEADER_BYTES or data[MAGIC_POSITION] != MAGIC:
        return NO_TIMESTAMP
    header = BatchHeader(data)
    is_compacted = header.attributes & DELETE_HORIZON  # The base timestamp field then has another meaning.
    return header.max_timestamp if is_compacted else header.base_timestamp


def offset_of_newest(segment: SegmentFacts) -> int | None:
    """Return the offset of the record with the segment's greatest timestamp.

    Read headers only until its batch is found.
    """
    file = open_read_only(segment.path)
    with suppress(Damaged):
        for place in walk(file, 0, segment.size):
            if place.max_timestamp == segment.newest:
                return _offset_in(file, place, segment.newest)
    return None


def _offset_in(file: RealFile, place: FileBatch, timestamp: TimestampMs) -> int:
    """Return the offset of the record within its batch, or the last offset if it cannot be decoded."""
    found = dump_batch(file, place)
    if found.batch is not None and found.fault is None:
        for record in records(found.batch):
            if not isinstance(record, str) and record.timestamp == timestamp:
                return record.offset
    return place.last_offset
