"""Advancing log start offsets for DeleteRecords and retention: durable first, visible second.

    ask ──> Advance, in a queue ──> take: WriteStarts, an effect ──> ended ──> the log begins there
                                                     └──> followers do the same ──> the DeleteRecords response

One write per data directory is in flight at a time; later requests share the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import Offset, TopicPartition
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.purgatory import Purgatory
from odradek.core.partition.partition import Partition
from odradek.core.partition.storage import Storage
from odradek.log.directory.directory import LogDirectory
from odradek.log.directory.log_start_checkpoint import StartsWrite
from odradek.log.files.disk import DiskFailed
from odradek.log.files.disk_failures import LogDamaged

_LOG = logging.getLogger(__name__)

ADVANCES_PER_WRITE = 4_000  # Beginning such a write takes some milliseconds.


class Advance:
    """Pending advance of one log start offset to `offset`."""

    def __init__(self, partition: Partition, offset: Offset, waiting: AllAdvanced | None) -> None:
        self.partition = partition
        self.offset = offset
        self.waiting = waiting  # The waiting request; None for retention.
        self.leading = partition.leading
        self.is_ended = False
        self.refused: Refused | None = None  # The reason of a failure, once the advance has ended.

    @property
    def name(self) -> TopicPartition:
        return self.partition.topic_partition

    @property
    def has_followers(self) -> bool:
        return self.leading is not None and self.leading.in_sync is not None

    @property
    def is_reached(self) -> bool:
        """Return whether the logs of all live replicas begin there.

        Also True if the advance failed, or if another broker leads by now.
        """
        if not self.is_ended or self.refused is not None:
            return self.is_ended
        return self.leading is None or self.leading.ended is not None or self.leading.low_watermark >= self.offset

    def check(self) -> None:
        """Raise Refused if the logs do not begin there, or not yet."""
        if not self.is_ended:
            raise Refused(
                ErrorCode.REQUEST_TIMED_OUT,
                f"timed out: the log start offset of {self.name} is not written to disk yet",
            )
        if self.refused is not None:
            raise Refused(self.refused.code, self.refused.detail)
        if not self.is_reached:
            raise Refused(
                ErrorCode.REQUEST_TIMED_OUT,
                f"timed out: not all replicas of {self.name} have reached the log start offset yet",
            )


class AllAdvanced:
    """Condition of a request that waits for several advances and for the followers of their partitions."""

    def __init__(self) -> None:
        self.open = 0  # Advances that have not ended.
        self._followed: dict[TopicPartition, None] = {}
        self._left: list[Advance] = []  # Advances with followers that were not complete at the last check.

    def add(self, advance: Advance) -> None:
        if not advance.is_ended:
            self.open += 1
        if advance.has_followers:
            self._followed[advance.name] = None
            self._left.append(advance)

    @property
    def is_settled(self) -> bool:
        left = self._left
        while not self.open and left and left[-1].is_reached:
            left.pop()
        return not (self.open or left)

    @property
    def keys(self) -> Iterable[Hashable]:
        return (self, *self._followed)

    def fulfilled_by(self, key: Hashable, news: object) -> bool:
        return self.is_settled


class WriteStarts(NamedTuple):
    """Effect: write these log start offsets in a thread; `on_starts_written` receives the result."""

    directory: LogDirectory
    write: StartsWrite
    advances: Sequence[Advance]

    def run(self) -> StartsWritten:
        try:
            self.write.run()
        except DiskFailed as failed:
            return StartsWritten(self, failed)
        return StartsWritten(self, None)


class StartsWritten(NamedTuple):
    """Result of a WriteStarts."""

    effect: WriteStarts
    failed: DiskFailed | None


class LogStarts:
    """Pending advances of log start offsets, by data directory."""

    def __init__(self, storage: Storage, purgatory: Purgatory) -> None:
        self._storage = storage
        self._purgatory = purgatory
        self._queued: dict[LogDirectory, list[Advance]] = {}
        self._writing: set[LogDirectory] = set()

    def request_advance(self, partition: Partition, offset: Offset, waiting: AllAdvanced | None = None) -> Advance:
        """Request a new log start offset, at most the high watermark, and notify `waiting` when it is reached.

        For retention, without `waiting`, the segments below are deleted at once.  Raises Refused if the log is offline.
        """
        assert offset <= partition.positions.high_watermark, "the log start offset never exceeds the high watermark"
        name = partition.topic_partition
        advance = Advance(partition, offset, waiting)
        if offset <= partition.log.start_offset:
            advance.is_ended = True
            if waiting is not None:
                waiting.add(advance)
            return advance
        directory = self._storage.directory_of(name)
        if directory is None:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {name} is offline")
        if waiting is not None:
            waiting.add(advance)
        self._queued.setdefault(directory, []).append(advance)
        return advance

    def retain(self, partition: Partition, now: Moment) -> bool:
        """Begin the retention of one partition; return whether it had work, or the disk failed."""
        if not partition.is_online:
            return False
        try:
            start = partition.expired_upto(now.wall)
            if start is None:
                return False
            if start > partition.log.start_offset:
                self.request_advance(partition, start)
            else:
                partition.delete_below_start(now.wall)
        except DiskFailed as failed:
            _retention_failed(partition, failed)
        except Refused:
            return False  # Its data directory went offline.
        return True

    @property
    def has_pending(self) -> bool:
        return bool(self._queued or self._writing)

    def take_writes(self) -> list[WriteStarts]:
        """Return the writes that may begin now."""
        if not self._queued:
            return []
        return [self._begin(directory) for directory in list(self._queued) if directory not in self._writing]

    def _begin(self, directory: LogDirectory) -> WriteStarts:
        assert directory not in self._writing, "one write per directory is in flight"
        self._writing.add(directory)
        queued = self._queued.pop(directory)
        assert queued, "a directory is queued with its advances"
        advances, left = queued[:ADVANCES_PER_WRITE], queued[ADVANCES_PER_WRITE:]
        if left:
            self._queued[directory] = left
        starts: dict[TopicPartition, Offset] = {}
        for advance in advances:
            name, partition = advance.name, advance.partition
            has_log = partition.is_online and directory.logs.get(name) is partition.log  # Else its topic was deleted.
            if has_log and advance.offset <= partition.positions.high_watermark:  # Else it was truncated since.
                starts[name] = max(starts.get(name, advance.offset), advance.offset)
        return WriteStarts(directory, directory.checkpoints.begin_starts(starts), advances)

    def on_starts_written(self, event: StartsWritten, now: Moment) -> Iterator[None]:
        """Complete a write: apply its log start offsets.  Yields after each."""
        directory, write, advances = event.effect
        assert directory in self._writing, "a write ends once"
        directory.checkpoints.end_starts(write)
        if event.failed is not None:
            directory.note_failure(event.failed)
        if write.is_stale and not write.is_done and event.failed is None:
            self._queued.setdefault(directory, []).extend(advances)
        else:
            for advance in advances:
                self._end(advance, event.failed, now)
                yield
        self._writing.discard(directory)

    def _end(self, advance: Advance, failed: DiskFailed | None, now: Moment) -> None:
        assert not advance.is_ended, "an advance ends once"
        partition = advance.partition
        try:
            if failed is None:
                partition.advance_start(advance.offset)
                if advance.waiting is None:
                    partition.delete_below_start(now.wall)
            elif failed.is_full and advance.waiting is None:
                partition.delete_old_segments(now.wall)
            else:
                raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(failed))
        except Refused as refused:
            advance.refused = Refused(refused.code, refused.detail)
        except DiskFailed as failure:
            _retention_failed(partition, failure)
        advance.is_ended = True
        self._purgatory.happened(advance.name)
        if advance.waiting is not None:
            advance.waiting.open -= 1
            assert advance.waiting.open >= 0, "a request waits for each of its advances once"
            self._purgatory.happened(advance.waiting)


def _retention_failed(partition: Partition, failed: DiskFailed) -> None:
    _LOG.error("failed to delete old segments of %s: %s", partition.topic_partition, failed)
    if isinstance(failed, LogDamaged):
        partition.found_damage(failed)
    if failed.takes_offline:  # On a full disk the next round may free some room.
        partition.take_offline(failed)
