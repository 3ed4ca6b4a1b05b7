"""All requested compactions (core/cleaner/compaction_request.py), and the scheduler of their steps.

    request_compaction ──> `to` is set: the log's end, rolled ──> synced ──> passes ──> finish_compaction
                                            a Sync is requested ┘        │      └ Clean, and its files are renamed
                                                each ends, advance_due ──┴── takes the next step

No step waits for a round of the periodic tasks.  advance_all takes steps without an event (of followers that catch up,
for example), and retries steps that failed on the disk.

A log has at most two compactions.  If records were written since the current one began, a request gets the next one.
It compacts up to the log end offset at its own start, and all requests until then share it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import Offset, TopicPartition
from odradek.core.cleaner.compaction_request import Compaction, CompactionResult, check_is_compacted
from odradek.core.disks.flushes import Flushes
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.purgatory import Purgatory
from odradek.core.partition.partition import Partition
from odradek.log.compaction.cleanable import cleanable
from odradek.log.compaction.replacement import may_be_cleaned
from odradek.log.files.disk import DiskFailed
from odradek.log.log.durability import synced_to

ADVANCED_PER_SLICE = 4  # Rolling a log takes up to a millisecond: it creates four files.


class Compactions:
    """Requested compactions that have not ended."""

    def __init__(
        self, purgatory: Purgatory, flushes: Flushes, failed: Callable[[Partition, DiskFailed, Moment], None]
    ) -> None:
        """Create an empty queue; `failed` ends the compaction of a log whose disk does not let it roll."""
        self._purgatory = purgatory
        self._flushes = flushes
        self._failed = failed
        self._present: dict[Partition, Compaction] = {}
        self._next: dict[Partition, Compaction] = {}
        self._due: dict[Partition, None] = {}  # The events that these wait for may have come.
        self._unsynced: dict[TopicPartition, Partition] = {}  # These wait for a sync,
        self._awaiting_rename: dict[Partition, None] = {}  # and these for files to be renamed.
        self._queue: deque[Compaction] = deque()  # Compactions that need a pass.

    def __len__(self) -> int:
        return len(self._present)

    def request_compaction(self, partition: Partition) -> Compaction:
        """Return a compaction of all current records of the log."""
        present = self._present.setdefault(partition, Compaction(partition))
        self._due[partition] = None
        has_all = present.to is None or (partition.is_online and partition.log.end_offset <= present.to)
        found = present if has_all else self._next.setdefault(partition, Compaction(partition))
        assert found.outcome is None, "only a compaction that has not ended is shared"
        assert len(self._next) <= len(self._present), "a next compaction follows a present one"
        return found

    def end_for(self, partition: Partition) -> Offset | None:
        """Return the requested end of a log's compaction; None if there is no request, or no end yet."""
        compaction = self._present.get(partition)
        return None if compaction is None else compaction.to

    def on_pass_completed(self, partition: Partition, removed_records: int) -> None:
        """Record the end of a pass over the log."""
        compaction = self._present.get(partition)
        if compaction is not None and compaction.to is not None:
            assert compaction.outcome is None, "a pass counts for a compaction that has not ended"
            compaction.removed_records += removed_records

    def on_log_released(self, partition: Partition) -> None:
        """Record that no pass over the log is running any more."""
        if partition in self._present:
            self._due[partition] = None

    def on_synced(self, names: Collection[TopicPartition]) -> None:
        """Record the end of syncs of these logs."""
        for name in [name for name in self._unsynced if name in names]:
            self._due[self._unsynced.pop(name)] = None

    def on_renamed(self) -> None:
        """Record that the reaper has completed its run."""
        self._due.update(self._awaiting_rename)
        self._awaiting_rename.clear()

    @property
    def awaits_rename(self) -> bool:
        """Return whether a compaction waits for the reaper."""
        return bool(self._awaiting_rename)

    def advance_due(self, now: Moment) -> None:
        """Take the next step of a few due compactions; the others follow at the next event or round."""
        for _ in range(ADVANCED_PER_SLICE):
            partition = next(iter(self._due), None)
            if partition is None:
                return
            del self._due[partition]
            compaction = self._present.get(partition)
            if compaction is not None:
                self._advance(compaction, now)

    def next(self) -> Partition | None:
        """Remove and return the next log to begin a pass on; None if the queue is empty."""
        while self._queue:
            compaction = self._queue.popleft()
            assert compaction.is_queued, "a compaction is queued once"
            compaction.is_queued = False
            if compaction.outcome is None:
                assert self._present[compaction.partition] is compaction, "a compaction is present until it ends"
                return compaction.partition
        return None

    def advance_all(self, now: Moment, partitions: Mapping[TopicPartition, Partition]) -> Iterator[None]:
        """Advance all compactions, once a second, in short steps."""
        self._drop_lost(partitions)
        for number, compaction in enumerate(list(self._present.values()), 1):
            self._advance(compaction, now)
            if not number % ADVANCED_PER_SLICE:
                yield

    def _drop_lost(self, partitions: Mapping[TopicPartition, Partition]) -> None:
        for partition in list(self._present):
            name = partition.topic_partition
            if partitions.get(name) is not partition:
                self._end_all(partition, Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {name} was deleted"))
            elif not partition.is_online:
                refused = Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {name} is offline")
                self._end_all(partition, refused)

    def _advance(self, compaction: Compaction, now: Moment) -> None:
        """Set a compaction's end, queue it for its next pass, or end it, whichever is due."""
        partition = compaction.partition
        if compaction.is_queued or compaction.outcome is not None or not partition.is_online:
            return
        log = partition.log
        if not may_be_cleaned(log):
            if log.compaction.cleaning is None:  # Otherwise the end of that pass wakes it.
                self._awaiting_rename[partition] = None
            return
        try:
            check_is_compacted(partition)
            if compaction.to is None:
                log.roll(now.wall)
                compaction.begin_compaction(log, now.steady)
                self._flushes.request_flush(partition.topic_partition)
            to_clean = cleanable(log, now.wall, partition.positions.high_watermark)
        except Refused as refused:
            self.finish_compaction(partition, Refused(refused.code, refused.detail))
            return
        except DiskFailed as failed:
            self._failed(partition, failed, now)
            return
        assert compaction.to is not None, "a compaction that ends has begun"
        if min(synced_to(log), partition.positions.high_watermark) < compaction.to:
            self._unsynced[partition.topic_partition] = partition
            return
        result = compaction.result(log, to_clean, now.steady)
        if result is not None:
            self.finish_compaction(partition, result)
        else:
            compaction.is_queued = True
            self._queue.append(compaction)

    def finish_compaction(self, partition: Partition, outcome: CompactionResult | Refused) -> None:
        """End the log's compaction, if there is one, and complete its requests; the next one may begin."""
        ended = self._present.pop(partition, None)
        if ended is None:
            return
        assert ended.outcome is None, "a compaction ends once"
        self._unsynced.pop(partition.topic_partition, None)
        self._awaiting_rename.pop(partition, None)
        following = self._next.pop(partition, None)
        if following is not None:
            assert following.to is None, "the next compaction begins after the present one"
            self._present[partition] = following
            self._due[partition] = None
        ended.outcome = outcome
        self._purgatory.happened(ended)

    def _end_all(self, partition: Partition, refused: Refused) -> None:
        """End all requested compactions of a log that no longer exists."""
        while partition in self._present:
            self.finish_compaction(partition, refused)
