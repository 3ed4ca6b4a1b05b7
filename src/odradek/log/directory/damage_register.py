"""Register of damage found in the logs of one data directory, for operators and the next start.

    found      by a fetch, a lookup, the cleaner, a copy: Log.note_damage, and that position is no longer served
    written    by the next round of housekeeping, in a thread: `odradek doctor` reads it
    removed    when retention or a truncation has deleted the position; and by the next start if there is a whole
               batch again

The file, odradek-damage-checkpoint, has a line for each position after Kafka's two header lines:

    topic 0 00000000000000000042.log 1234 47 1764000000000 the checksum of the batch is wrong
              partition, file, position, the offset to continue with, time of detection, reason
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter

from odradek.base.units import Offset, TimestampMs, TopicPartition
from odradek.log.files.disk import Disk, DiskFailed
from odradek.log.files.log_file_names import DAMAGES, parse_segment_file
from odradek.log.log.log import Log
from odradek.log.segment.checkpoints import BadCheckpoint, read_damages, write_damages
from odradek.log.segment.damage import KnownDamage
from odradek.log.segment.scan import Damaged, walk, walk_checked
from odradek.log.segment.segment import Segment

MISSING = "the file is missing"
_PARTITION = attrgetter("partition")


@dataclass(slots=True)
class DamageRegisterWrite:
    """Write of all damages as a value; run() may be called in any thread and raises DiskFailed."""

    disk: Disk
    directory: str
    damages: list[KnownDamage]
    is_over: bool = field(default=False, init=False)
    is_done: bool = field(default=False, init=False)

    def run(self) -> None:
        assert not self.is_over, "damages are written once"
        try:
            write_damages(self.disk, f"{self.directory}/{DAMAGES}", self.damages)
            self.is_done = True
        finally:
            self.is_over = True


class DamageRegister:
    """Damaged logs of one data directory, and the stored part of their damages."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._damaged: set[TopicPartition] = set()  # Logs that have or had damages.
        self._loaded: dict[TopicPartition, list[KnownDamage]] = {}  # Of logs that are not open yet, or can't be opened.
        self._written: list[KnownDamage] | None = []  # None: the stored damages are unreadable.
        self._write: DamageRegisterWrite | None = None

    def load(self) -> list[str]:
        """Read the stored damages before the logs are opened; return the problems found in the file.

        Without the file, the next reader of a damage finds it again.  Raise DiskFailed if the disk fails.
        """
        try:
            self._written = read_damages(self._disk, f"{self._directory}/{DAMAGES}")
        except BadCheckpoint as bad:
            self._written = None
            return [str(bad)]
        self._loaded = {name: list(damages) for name, damages in groupby(sorted(self._written), _PARTITION)}
        return []

    def missing(self, partition: TopicPartition) -> list[Offset]:
        """Return the base offsets of a log's first segments that were missing before; call before opening it."""
        names = (damage.file for damage in self._loaded.get(partition, ()) if damage.why == MISSING)
        return [parsed[0] for name in names if (parsed := parse_segment_file(name)) is not None]

    def note_missing(self, partition: TopicPartition, file: str, following: Offset, now_ms: TimestampMs) -> None:
        """Record that a log without its first segments can't be opened; the next start could not know this."""
        known = self._loaded.setdefault(partition, [])
        if not any(damage.file == file and damage.why == MISSING for damage in known):
            known.append(KnownDamage(partition, file, 0, following, now_ms, MISSING))

    def watch(self, partition: TopicPartition, log: Log) -> None:
        """Register a log for damage reports, and mark its stored damages that still exist as not served."""
        log.on_damage = partial(self._damaged.add, partition)
        _reload(log, self._loaded.pop(partition, ()))
        if log.damaged_places:
            self._damaged.add(partition)

    @property
    def damaged(self) -> Collection[TopicPartition]:
        """The logs in which damage was found; some may have been cut since."""
        return self._damaged

    def begin_write(
        self, now_ms: TimestampMs, logs: Mapping[TopicPartition, Log], offline: Collection[TopicPartition]
    ) -> DamageRegisterWrite | None:
        """Return the write of the current damages; None if nothing changed or the last write still runs."""
        write = self._write
        if write is not None:
            if not write.is_over:
                return None
            self._written = write.damages if write.is_done else self._written
            self._write = None
        known = self._known(now_ms, logs, offline) if self._damaged or self._written or self._loaded else []
        if known == self._written:
            return None
        self._write = DamageRegisterWrite(self._disk, self._directory, known)
        return self._write

    def _known(
        self, now_ms: TimestampMs, logs: Mapping[TopicPartition, Log], offline: Collection[TopicPartition]
    ) -> list[KnownDamage]:
        since = {(damage.partition, damage.file, damage.position): damage.since_ms for damage in self._written or ()}
        self._damaged = {name for name in self._damaged if name in logs and logs[name].damaged_places}
        known = [damage for name in self._damaged for damage in _of(name, logs[name], now_ms)]
        known = [
            damage._replace(since_ms=since.get((damage.partition, damage.file, damage.position), now_ms))
            for damage in known
        ]
        # Damages of a log that could not be opened are kept for it.
        known += [damage for name, damages in self._loaded.items() if name in offline for damage in damages]
        return sorted(known)


def _of(partition: TopicPartition, log: Log, now_ms: TimestampMs) -> Iterator[KnownDamage]:
    for segment in log.segments:
        for one in segment.damages:
            yield KnownDamage(partition, segment.name, one.start, one.following, now_ms, one.why)


def _reload(log: Log, known: Iterable[KnownDamage]) -> None:
    for one in known:
        segment = next((each for each in log.segments if each.name == one.file), None)
        if segment is None or one.position >= segment.size:
            continue
        with suppress(DiskFailed):  # A later reader of the position detects the damage.
            if _is_batch_start(segment, one.position) and not _is_whole(segment, one.position):
                segment.note_damage(one.position, one.why)
        segment.release()


def _is_batch_start(segment: Segment, position: int) -> bool:
    """Return whether a batch should begin at the position; if not, another file was damaged."""
    border = segment.offsets.border_at_or_below(position)
    end = max([border, *(damage.end for damage in segment.damages if damage.end <= position)])
    try:
        for place in walk(segment.file, end, position):
            end = place.end_position
    except Damaged:
        return False
    return end == position


def _is_whole(segment: Segment, position: int) -> bool:
    try:
        return segment.can_hold(next(walk_checked(segment.file, position, segment.size)).last_offset)
    except Damaged:
        return False
