"""Quarantine for data cut off a log by recovery or at a damage: never served, and never deleted unasked.

A torn write leaves invalid bytes at the log's end and nothing after them; these bytes are dropped.  If there are
readable batches beyond the damage, or if the data had been synced, it was no torn write, and the operator may want to
restore the data:

    00000000000000000042.log.aside    data cut off from offset 42 on: the rest of a segment, or a whole one

Neither Odradek nor Apache Kafka reads such a file at startup.  It is deleted with the partition's directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from struct import Struct

from odradek.base.units import INT32_MAX, MIB, Offset
from odradek.log.files.disk import Disk, DiskFailed, File
from odradek.log.files.log_file_names import ASIDE, LOG, SEGMENT_SUFFIXES, TEMPORARY, segment_stem
from odradek.log.segment.damage import next_batch
from odradek.log.segment.scan import CHECK_CHUNK_BYTES, Damaged, FileBatch, walk_checked
from odradek.log.segment.segment import Segment
from odradek.record.record_batch import MAGIC

SEARCHED_BYTES_MAX = 64 * MIB  # After one damage: a batch that begins later is not found.
_RECORDS_COUNT_POSITION = 57
_COUNT = Struct(">i")


@dataclass(slots=True)
class QuarantinedData:
    """Data set aside by one recovery, or by one cut at a damage, after which the log ends at `end_offset`."""

    end_offset: Offset
    why: str
    records: int = 0
    is_all: bool = True  # False: some of the bytes are unreadable, so there may be more records.
    size: int = 0
    paths: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        least = "" if self.is_all else "at least "
        more = f" and {_count(len(self.paths) - 1, 'more file')}" if len(self.paths) > 1 else ""
        what = f"{least}{_count(self.records, 'record')} in {_count(self.size, 'byte')}"
        is_one = self.records == 1
        return (
            f"truncated to offset {self.end_offset} ({self.why}); {what} {'was' if is_one else 'were'} moved to "
            f"{self.paths[0]}{more}"
        )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


@dataclass(slots=True)
class Survey:
    """Readable content of a part of a .log file."""

    records: int = 0
    is_all: bool = True
    is_searched: bool = True  # False: the search after a damage stopped before the end.


def survey(file: File, position: int, end: int, lowest: Offset, base_offset: Offset) -> Survey:
    """Count the records of whole batches from `position` on, except those with offsets below `lowest`."""
    found = Survey()
    while position < end:
        try:
            for place in walk_checked(file, position, end):
                position = place.end_position
                if lowest <= place.base_offset and place.last_offset - base_offset <= INT32_MAX:
                    found.records += _records(file, place)
                    found.is_all &= place.magic == MAGIC  # A batch of an older format may hold many, compressed.
                    lowest = Offset(place.last_offset + 1)
        except Damaged as damage:
            found.is_all = False
            upto = min(end, damage.position + SEARCHED_BYTES_MAX)
            following = next_batch(file, damage.position + 1, end, (lowest, base_offset), upto)
            if following is None:
                found.is_searched &= upto == end
                break
            assert following > damage.position, "each search takes the survey further"
            position = following
    return found


def _records(file: File, place: FileBatch) -> int:
    if place.magic != MAGIC:
        return 1
    count: int = _COUNT.unpack(file.pread(place.position + _RECORDS_COUNT_POSITION, _COUNT.size))[0]
    return max(count, 0)


def is_zeros(file: File, position: int, end: int) -> bool:
    """Return whether the range has only zeros: preallocated space, or a write that never arrived."""
    return not any(chunk.strip(b"\0") for chunk in _chunks(file, position, end))


def _chunks(file: File, position: int, end: int) -> Iterator[bytes]:
    while position < end and (chunk := file.pread(position, min(CHECK_CHUNK_BYTES, end - position))):
        yield chunk
        position += len(chunk)


def set_aside(
    disk: Disk, directory: str, tail: tuple[Segment, int], later: Sequence[Segment], aside: QuarantinedData
) -> None:
    """Copy the rest of one segment, and rename all later segments to .aside; cut nothing yet.

    The copy begins at the given position.  On return, the data set aside survives a power failure.  Raise
    DiskFailed; the call may be repeated after the next start.
    """
    segment, position = tail
    copy_rest(disk, directory, segment.file, (position, segment.size), aside)  # First: the disk may lack room for it.
    renames(disk, directory, later, aside)()
    disk.sync_directory(directory)


def copy_rest(disk: Disk, directory: str, file: File, part: tuple[int, int], aside: QuarantinedData) -> None:
    """Copy a part of a .log file, unless it has zeros only.  The directory is not synced yet.

    Raises DiskFailed; what was copied by then is deleted, since the disk may be full.
    """
    position, end = part
    assert 0 <= position <= end, "the rest of a file begins within it"
    if is_zeros(file, position, end):
        return
    name = f"{directory}/{segment_stem(aside.end_offset)}{LOG}{ASIDE}"
    size = end - position
    taken = _taken(disk, directory)
    number, path = 1, name
    while path in taken and not (taken[path] == size and _is_same(disk.open(path), file, position)):
        number += 1
        path = f"{name}.{number}"
    if path not in taken:  # Otherwise a stop occurred between the copy and the cut.
        try:
            _copy(disk, path, file, part)
        except DiskFailed:
            with suppress(DiskFailed):
                disk.unlink(path + TEMPORARY)
            raise
    aside.paths.append(path)
    aside.size += size


def _copy(disk: Disk, path: str, file: File, part: tuple[int, int]) -> None:
    copy = disk.create(path + TEMPORARY)
    written = 0
    for chunk in _chunks(file, *part):
        copy.write(written, chunk)
        written += len(chunk)
    copy.sync()
    disk.rename(path + TEMPORARY, path)


def _is_same(copy: File, file: File, position: int) -> bool:
    size = copy.size()
    return all(a == b for a, b in zip(_chunks(copy, 0, size), _chunks(file, position, position + size), strict=True))


def renames(
    disk: Disk, directory: str, segments: Sequence[Segment], aside: QuarantinedData, *, syncs_each: bool = False
) -> Callable[[], None]:
    """Return the work of renaming the segments to .aside; their indexes are deleted.

    The last goes first, so that a stop half-way leaves no hole; with `syncs_each` a power failure keeps to the order
    as well.  The work raises DiskFailed, and may be done again then.
    """
    left = list(segments)
    first = len(aside.paths)

    def work() -> None:
        while left:
            path = _rename(disk, directory, left[-1])
            if path is not None:
                aside.paths.insert(first, path)
                aside.size += left[-1].size
            _unlink(disk, directory, left[-1])
            if syncs_each:
                disk.sync_directory(directory)
            del left[-1]

    return work


def _rename(disk: Disk, directory: str, segment: Segment) -> str | None:
    """Rename a .log file; return None if it is empty, or was renamed before."""
    segment.release()
    taken = _taken(disk, directory)
    if not segment.size or segment.path not in taken:
        return None
    name = path = f"{directory}/{segment_stem(segment.base_offset)}{LOG}{ASIDE}"
    number = 1
    while path in taken:
        number += 1
        path = f"{name}.{number}"
    disk.rename(segment.path, path)
    return path


def _unlink(disk: Disk, directory: str, segment: Segment) -> None:
    for suffix in SEGMENT_SUFFIXES:
        disk.unlink(f"{directory}/{segment_stem(segment.base_offset)}{suffix}")


def _taken(disk: Disk, directory: str) -> dict[str, int]:
    return {f"{directory}/{name}": size for name, size in disk.entries(directory)}
