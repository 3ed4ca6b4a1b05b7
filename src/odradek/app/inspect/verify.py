"""Verification of logs on disk.

It takes no lock and changes nothing, so it may run while a broker uses the directory; data that is not synced yet is
then skipped. If no broker uses the directory, damage is recorded there, so that the next broker does not serve it
(log/directory/damage_register.py). A sentence is a fault unless it is a note: a torn end above the recovery point of a
log without clean shutdown is either being written, or is handled by the next start.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from odradek.app.inspect.dump import by_name, entries, open_read_only
from odradek.app.terminal.output import time_text
from odradek.base.units import INT64_MAX, Offset, TimestampMs, TopicPartition
from odradek.log.directory.damage_register import MISSING
from odradek.log.directory.directory import MARKER
from odradek.log.files import log_file_names as names
from odradek.log.files.disk import DiskFailed, File, RealDisk, read_file
from odradek.log.files.disk_failures import DirectoryInUse
from odradek.log.files.log_file_names import LOG, OFFSET_INDEX, SEGMENT_SUFFIXES, TIME_INDEX
from odradek.log.log.log import FIRST_OFFSET
from odradek.log.recovery.missing_segments import gap_before, gap_between
from odradek.log.recovery.quarantine import is_zeros, survey
from odradek.log.segment.checkpoints import (
    BadCheckpoint,
    read_damages,
    read_epochs,
    read_offsets,
    read_segments,
    read_topic_id,
    write_damages,
)
from odradek.log.segment.damage import KnownDamage, next_batch
from odradek.log.segment.index import OFFSET_ENTRY, TIME_ENTRY
from odradek.log.segment.scan import Damaged, walk_checked
from odradek.record.record_batch import MAGIC

MARKER_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class LogFinding:
    """Sentence about one log."""

    partition: TopicPartition
    message: str
    is_fault: bool = True
    damage: KnownDamage | None = None  # For a place without a whole batch.


@dataclass(slots=True)
class Counts:
    """Counters of the data read."""

    logs: int = 0
    segments: int = 0
    batches: int = 0
    size: int = 0


class ReadOnlyDisk(RealDisk):
    """Disk that opens files read-only, because the user may lack write permission."""

    def open(self, path: str) -> File:
        return self._open(path, os.O_RDONLY | os.O_CLOEXEC)


@dataclass(slots=True)
class Folder:
    """Log directory and its checkpoints."""

    path: Path
    is_clean: bool
    recovery_points: dict[TopicPartition, Offset]
    starts: dict[TopicPartition, Offset]
    compacted: dict[TopicPartition, Offset]
    recorded_segments: dict[TopicPartition, str]
    damages: list[KnownDamage]  # Found by a broker while it ran.
    is_ours: bool = False  # Cleanly stopped and unused since.

    @classmethod
    def at(cls, path: Path) -> Folder:
        """Read the checkpoints of a log directory. Raise DiskFailed, BadCheckpoint."""
        disk = ReadOnlyDisk()
        return cls(
            path,
            (path / names.CLEAN_SHUTDOWN).exists(),
            read_offsets(disk, f"{path}/{names.RECOVERY_POINTS}"),
            read_offsets(disk, f"{path}/{names.LOG_STARTS}"),
            read_offsets(disk, f"{path}/{names.CLEANER_OFFSETS}"),
            read_segments(disk, f"{path}/{names.SEGMENTS}"),
            read_damages(disk, f"{path}/{names.DAMAGES}"),
            read_file(disk, f"{path}/{names.CLEAN_SHUTDOWN}", MARKER_BYTES_MAX) == MARKER,
        )

    def lost(self, partition: TopicPartition) -> set[Offset]:
        """Return base offsets of segments not deleted by retention, present or not.

        See log/recovery/missing_segments.py.
        """
        missed = (one.file for one in self.damages if one.partition == partition and one.why == MISSING)
        recorded_segments = self.recorded_segments.get(partition, "").split() if self.is_ours else []
        found = {parsed[0] for name in missed if (parsed := names.parse_segment_file(name)) is not None}
        return found | {Offset(int(text)) for text in recorded_segments}

    def partitions(self) -> list[Path]:
        found = (path for path in self.path.iterdir() if path.is_dir() and names.parse_partition(path.name))
        return sorted(found, key=by_name)


@dataclass(slots=True)
class Segment:
    """Segment and the problems found in it."""

    path: Path
    base_offset: Offset
    end: Offset  # After the last readable batch.
    problems: list[str] = field(default_factory=list)
    damages: dict[str, tuple[int, Offset, str]] = field(default_factory=dict)  # By the sentence about each.
    is_torn: bool = False  # Nothing is readable after the damage.


def verify(folder: Folder, path: Path, counts: Counts) -> Iterator[LogFinding]:
    """Yield all sentences about one partition's log. Raise OSError."""
    partition = names.parse_partition(path.name)
    assert partition is not None, "the caller checked the file name"
    counts.logs += 1
    bases, attested, asides = list_segments(path)
    last = max(bases, default=None)
    segments = [
        one for base in sorted(bases) if (one := read_segment(path, base, counts, is_last=base == last)) is not None
    ]
    attested |= {Offset(int(offset)) for offset in folder.recorded_segments.get(partition, "").split()} - bases
    synced = folder.recovery_points.get(partition, FIRST_OFFSET)
    for segment in segments:
        is_open = segment is segments[-1] and segment.is_torn and segment.end >= synced and not folder.is_clean
        for text in segment.problems:
            damage = known_damage(partition, segment, text)
            yield LogFinding(partition, text, not is_open, None if is_open else damage)
    yield from (LogFinding(partition, text, is_fault=False) for text in earlier_damage(folder, partition, segments))
    yield from (LogFinding(partition, text) for text in overlaps(segments))
    if partition not in folder.compacted:
        start = folder.starts.get(partition, FIRST_OFFSET)
        orphans = attested - {Offset(int(offset)) for offset in folder.recorded_segments.get(partition, "").split()}
        yield from (
            LogFinding(partition, text) for text in first_gap(path, bases, folder.lost(partition) | orphans, start)
        )
        yield from (LogFinding(partition, text) for text in gaps(path, segments, attested, start))
    if segments and segments[-1].end < synced and not segments[-1].problems:
        yield LogFinding(partition, f"the log ends at offset {segments[-1].end}, but was synced up to offset {synced}")
    yield from (LogFinding(partition, text) for text in small_files(path))
    if asides:
        text = f"recovery set aside the truncated data: {', '.join(asides)}"
        yield LogFinding(partition, text, is_fault=False)


def list_segments(path: Path) -> tuple[set[Offset], set[Offset], list[str]]:
    """Return base offsets of segments and of indexes without a log, and names of quarantined files."""
    bases: set[Offset] = set()
    empty: set[Offset] = set()
    indexed: set[Offset] = set()
    deleted: set[Offset] = set()
    asides = []
    for entry in RealDisk().entries(str(path)):
        parsed = names.parse_segment_file(entry.name)
        if parsed is None or entry.size < 0:
            continue
        base, suffix, second = parsed
        if second.startswith(names.ASIDE):
            asides.append(entry.name)
        elif second == names.DELETED:
            deleted.add(base)
        elif suffix == LOG and not second:
            (bases if entry.size else empty).add(base)
        elif suffix in SEGMENT_SUFFIXES and not second and entry.size:
            indexed.add(base)
    bases |= {base for base in empty if base > max(bases, default=-1)}  # The active segment may be empty.
    return bases, indexed - bases - deleted, sorted(asides)


def read_segment(folder: Path, base: Offset, counts: Counts, *, is_last: bool) -> Segment | None:
    """Read one segment, or return None if it was deleted concurrently."""
    path = folder / f"{names.segment_stem(base)}{LOG}"
    segment = Segment(path, base, base)
    try:
        places = dict(index_entries(segment, is_last=is_last))  # First: an older index only lacks entries.
        file = open_read_only(path)
        size = file.size()
    except FileNotFoundError:
        return None
    counts.segments += 1
    counts.size += size
    position: int | None = 0
    while position is not None:
        try:
            read_batches(segment, file, (position, size), places, counts)
            position = None
        except Damaged as damage:
            if is_last and is_zeros(file, damage.position, size):
                break  # Preallocated.
            text = f"byte {damage.position} of {path.name}: {damage.why}"
            segment.problems.append(text)
            rest = survey(file, damage.position, size, segment.end, base)
            segment.is_torn = not rest.records
            position = next_batch(file, damage.position + 1, size, (segment.end, base)) if rest.records else None
            following = Offset(INT64_MAX) if position is None else next(walk_checked(file, position, size)).base_offset
            segment.damages[text] = damage.position, following, damage.why
    if not segment.problems and places:
        where = next(iter(places))
        segment.problems.append(f"{path.with_suffix(OFFSET_INDEX).name} points to byte {where}, where no batch starts")
    return segment


def index_entries(segment: Segment, *, is_last: bool) -> Iterator[tuple[int, int]]:
    """Yield (position, offset) from the offset index, and check the order and range of both indexes."""
    offset = newest = -1
    path = segment.path.with_suffix(OFFSET_INDEX)
    for delta, position in entries(path, OFFSET_ENTRY) if path.exists() else ():
        if delta <= offset:
            segment.problems.append(f"{path.name} is not ascending at offset {segment.base_offset + delta}")
        offset = delta
        yield position, segment.base_offset + delta
    path = segment.path.with_suffix(TIME_INDEX)
    for timestamp, delta in entries(path, TIME_ENTRY) if path.exists() else ():
        if timestamp < newest or delta < 0:
            segment.problems.append(f"{path.name} is not ascending at timestamp {timestamp}")
        newest = timestamp
    if not is_last and segment.path.stat().st_size and not segment.path.with_suffix(OFFSET_INDEX).exists():
        segment.problems.append(f"{segment.path.name} has no {OFFSET_INDEX}")


def read_batches(segment: Segment, file: File, part: tuple[int, int], places: dict[int, int], counts: Counts) -> None:
    """Read batches and remove the correct index entries from `places`. Raise Damaged."""
    for place in walk_checked(file, *part):
        first = place.base_offset if place.magic == MAGIC else place.last_offset
        if first < segment.end:
            segment.problems.append(
                f"byte {place.position} of {segment.path.name}: offset {first} instead of {segment.end}"
            )
        offset = places.pop(place.position, None)
        if offset is not None and offset < first:
            index = segment.path.with_suffix(OFFSET_INDEX).name
            segment.problems.append(
                f"{index} points to byte {place.position} for offset {offset}, where offset {first} starts"
            )
        segment.end = Offset(max(segment.end, place.last_offset + 1))
        counts.batches += 1


def known_damage(partition: TopicPartition, segment: Segment, text: str) -> KnownDamage | None:
    if text not in segment.damages:
        return None
    position, following, why = segment.damages[text]
    return KnownDamage(partition, segment.path.name, position, following, TimestampMs(time.time_ns() // 1_000_000), why)


def record_damages(folder: Folder, found: Sequence[KnownDamage]) -> None:
    """Record new damage for the next start, if no broker uses the directory and it is writable."""
    if not found:
        return
    disk = RealDisk()
    try:
        lock = disk.lock(f"{folder.path}/{names.LOCK}")
    except (DirectoryInUse, DiskFailed):
        return
    path = f"{folder.path}/{names.DAMAGES}"
    try:
        written = read_damages(disk, path)  # Reread: a broker may have run in between.
        known_places = {(one.partition, one.file, one.position) for one in written}
        new = [one for one in found if (one.partition, one.file, one.position) not in known_places]
        if new:
            with suppress(DiskFailed):
                write_damages(disk, path, sorted([*written, *new]))
    finally:
        lock.release()


def earlier_damage(folder: Folder, partition: TopicPartition, segments: Sequence[Segment]) -> Iterator[str]:
    """Yield the damage that a broker had found before, in the segments that have faults."""
    faulty = {segment.path.name for segment in segments if segment.problems}
    for one in folder.damages:
        if one.partition == partition and one.file in faulty:
            yield f"byte {one.position} of {one.file} has not been served since {time_text(one.since_ms)}: {one.why}"


def overlaps(segments: Sequence[Segment]) -> Iterator[str]:
    for segment, following in pairwise(segments):
        if segment.end > following.base_offset:
            reached = f"{segment.path.name} reaches offset {segment.end - 1}"
            yield f"{reached}, but the next segment is {following.path.name}"


def gaps(path: Path, segments: Sequence[Segment], attested: set[Offset], start: Offset) -> Iterator[str]:
    """Yield the gaps between segments, except after a segment whose end is unreadable."""
    for segment, following in pairwise(segments):
        if following.base_offset > start and not segment.is_torn:
            gap = gap_between(str(path), segment.end, following.base_offset, attested)
            if gap is not None:
                yield str(gap)


def first_gap(path: Path, bases: set[Offset], lost: set[Offset], start: Offset) -> Iterator[str]:
    """Yield the gap between a log's start and its first segment, if records certainly existed there."""
    first = min(bases, default=start)
    gap = gap_before(str(path), first, lost, start)
    if gap is not None:
        yield str(gap)


def small_files(path: Path) -> Iterator[str]:
    disk = ReadOnlyDisk()
    for read, name in ((read_epochs, names.LEADER_EPOCHS), (read_topic_id, names.PARTITION_METADATA)):
        file = path / name
        if file.exists() and not file.stat().st_size:
            continue  # Kafka 0.11 makes it empty for logs without records; other epochs are also in the log.
        try:
            read(disk, str(path))
        except BadCheckpoint as bad:
            yield str(bad)
