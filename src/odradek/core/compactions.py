"""Compactions that somebody asked for: up to where each log is to be compacted, and what that has won.

    ask ──> Compaction ──> `to` is set: the log's end, rolled ──> synced ──> passes ──> end: who waits is told

A log has at most two of them.  Whoever asks while one is under way gets the next one, which goes up to where the log
ends by then, and shares it with all who ask meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import Offset, TopicPartition
from odradek.core.moment import Moment
from odradek.core.parked import ParkingLot
from odradek.core.partition import Partition
from odradek.log.cleanable import Cleanable, cleanable
from odradek.log.compaction import may_be_cleaned
from odradek.log.disk import DiskFailed
from odradek.log.durability import synced_to
from odradek.log.log import Log

ATTENDED_PER_SLICE = 16  # To roll a log takes some hundred microseconds.
TRANSACTION = "an open transaction"
MIN_LAG = "min.compaction.lag.ms"


def check_is_compacted(partition: Partition) -> None:
    """Raises Refused if the log is offline, or its topic is not configured to be compacted."""
    if not partition.log.config.cleanup_compact:
        topic = partition.topic_partition.topic
        text = f"the cleanup.policy of {topic} has no compact in it: set cleanup.policy=compact first"
        raise Refused(ErrorCode.INVALID_CONFIG, text)


class Compacted(NamedTuple):
    """What a compaction has won below its end.  Sizes in bytes."""

    bytes_before: int
    bytes_after: int
    removed_records: int
    compacted_to: Offset
    held_back_by: str | None  # Why it ended before the log's end, if it did.
    duration_ms: int


class Compaction:
    """One log's compaction that was asked for."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.to: Offset | None = None  # None: up to where the log ends when its turn comes.
        self.is_queued = False  # A pass is to begin as soon as a thread is free.
        self.removed_records = 0
        self.outcome: Compacted | Refused | None = None  # None: it has not ended.
        self._began = 0  # On the steady clock.
        self._bytes_before = 0

    def begin(self, log: Log, steady: int) -> None:
        """Sets its end, which is that of the log: its active segment is empty."""
        self.to, self._began = log.end_offset, steady
        self._bytes_before = _bytes_below(log, log.end_offset)

    def won(self, log: Log, seen: Cleanable, steady: int) -> Compacted | None:
        """Returns what it has won if there is nothing left to be compacted; None if another pass is needed."""
        assert self.to is not None, "it has begun"
        held_back_by = None
        if seen.first_dirty < self.to:
            if seen.first_uncleanable > seen.first_dirty:
                return None
            held_back_by = TRANSACTION if log.producers.first_unstable < self.to else MIN_LAG
        return Compacted(
            self._bytes_before,
            _bytes_below(log, self.to),
            self.removed_records,
            min(seen.first_dirty, self.to),
            held_back_by,
            steady - self._began,
        )

    @property
    def answer(self) -> Compacted | Refused:
        """What there is to be told of it now."""
        if self.outcome is not None:
            return self.outcome
        name = self.partition.topic_partition
        text = f"{name} is not compacted yet; the broker goes on with it as long as it runs"
        return Refused(ErrorCode.REQUEST_TIMED_OUT, text)


def _bytes_below(log: Log, end: Offset) -> int:
    return sum(segment.size for segment in log.segments if segment.base_offset < end)


class AllCompacted:
    """The condition of a request that waits for several compactions."""

    def __init__(self, compactions: Iterable[Compaction]) -> None:
        self.keys = tuple(compactions)
        self._open = list(self.keys)

    @property
    def is_settled(self) -> bool:
        while self._open and self._open[-1].outcome is not None:
            self._open.pop()
        return not self._open

    def fulfilled_by(self, key: Hashable, news: object) -> bool:
        return self.is_settled


class Compactions:
    """The compactions that were asked for and have not ended."""

    def __init__(self, lot: ParkingLot, failed: Callable[[Partition, DiskFailed, Moment], None]) -> None:
        """`failed` hears of a log that its disk does not let roll, and ends its compaction."""
        self._lot = lot
        self._failed = failed
        self._present: dict[Partition, Compaction] = {}
        self._next: dict[Partition, Compaction] = {}
        self._queue: deque[Compaction] = deque()  # Those that a pass is to begin for.

    def __len__(self) -> int:
        return len(self._present)

    def ask(self, partition: Partition) -> Compaction:
        """Returns a compaction of all that the log has now."""
        present = self._present.setdefault(partition, Compaction(partition))
        return present if present.to is None else self._next.setdefault(partition, Compaction(partition))

    def end_for(self, partition: Partition) -> Offset | None:
        """Returns up to where a log is to be compacted; None if nobody has asked, or it is not known yet."""
        compaction = self._present.get(partition)
        return None if compaction is None else compaction.to

    def passed(self, partition: Partition, removed_records: int) -> None:
        """Takes in that a pass over the log has ended."""
        compaction = self._present.get(partition)
        if compaction is not None and compaction.to is not None:
            compaction.removed_records += removed_records

    def next(self) -> Partition | None:
        """Takes the next log that a pass is to begin for out of the queue; None if it is empty."""
        while self._queue:
            compaction = self._queue.popleft()
            compaction.is_queued = False
            if compaction.outcome is None:
                return compaction.partition
        return None

    def keep_house(self, now: Moment, partitions: Mapping[TopicPartition, Partition]) -> Iterator[None]:
        """Goes on with all of them, once a second, in short steps."""
        self._drop_lost(partitions)
        for number, compaction in enumerate(list(self._present.values()), 1):
            self._attend(compaction, now)
            if not number % ATTENDED_PER_SLICE:
                yield

    def _drop_lost(self, partitions: Mapping[TopicPartition, Partition]) -> None:
        for partition in list(self._present):
            name = partition.topic_partition
            if partitions.get(name) is not partition:
                self._end_all(partition, Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} is gone"))
            elif not partition.is_online:
                refused = Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {name} is offline")
                self._end_all(partition, refused)

    def _attend(self, compaction: Compaction, now: Moment) -> None:
        """Sets a compaction's end, queues it for its next pass, or ends it: whichever it is time for."""
        partition = compaction.partition
        if compaction.is_queued or compaction.outcome is not None or not partition.is_online:
            return
        log = partition.log
        if not may_be_cleaned(log):
            return  # A pass is under way, or its files have not got their names yet.
        try:
            check_is_compacted(partition)
            if compaction.to is None:
                log.roll(now.wall)
                compaction.begin(log, now.steady)
            seen = cleanable(log, now.wall, partition.positions.high_watermark)
        except Refused as refused:
            self.end(partition, Refused(refused.code, refused.detail))
            return
        except DiskFailed as failed:
            self._failed(partition, failed, now)
            return
        assert compaction.to is not None, "it has begun"
        if min(synced_to(log), partition.positions.high_watermark) < compaction.to:
            return
        won = compaction.won(log, seen, now.steady)
        if won is not None:
            self.end(partition, won)
        else:
            compaction.is_queued = True
            self._queue.append(compaction)

    def end(self, partition: Partition, outcome: Compacted | Refused) -> None:
        """Ends the log's compaction, if one is under way, and tells who waits for it; the next one may begin."""
        ended = self._present.pop(partition, None)
        if ended is None:
            return
        following = self._next.pop(partition, None)
        if following is not None:
            self._present[partition] = following
        ended.outcome = outcome
        self._lot.happened(ended)

    def _end_all(self, partition: Partition, refused: Refused) -> None:
        """Ends everything that was asked of a log that is not there any more."""
        while partition in self._present:
            self.end(partition, refused)
