"""One requested compaction: its end offset and its result."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import Offset
from odradek.core.partition.partition import Partition
from odradek.log.compaction.cleanable import LogToClean
from odradek.log.log.log import Log

TRANSACTION = "an open transaction"
MIN_LAG = "min.compaction.lag.ms"


def check_is_compacted(partition: Partition) -> None:
    """Raise Refused if the log is offline, or its topic is not configured to be compacted."""
    if not partition.log.config.cleanup_compact:
        topic = partition.topic_partition.topic
        text = f"topic {topic} is not compacted: set cleanup.policy=compact first"
        raise Refused(ErrorCode.INVALID_CONFIG, text)


class CompactionResult(NamedTuple):
    """Result of a compaction below its end.  Sizes in bytes."""

    bytes_before: int
    bytes_after: int
    removed_records: int
    compacted_to: Offset
    held_back_by: str | None  # The reason if it ended before the log end offset.
    duration_ms: int


class Compaction:
    """Requested compaction of one log."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.to: Offset | None = None  # None: the log end offset when its turn comes.
        self.is_queued = False  # A pass is to begin as soon as a thread is free.
        self.removed_records = 0
        self.outcome: CompactionResult | Refused | None = None  # None: it has not ended.
        self._began = 0  # On the steady clock.
        self._bytes_before = 0

    def begin_compaction(self, log: Log, steady: int) -> None:
        """Set its end to the log end offset; the active segment is empty."""
        assert self.to is None, "a compaction begins once"
        assert log.active.base_offset == log.end_offset, "the log was rolled: its active segment is never compacted"
        self.to, self._began = log.end_offset, steady
        self._bytes_before = _bytes_below(log, log.end_offset)

    def result(self, log: Log, to_clean: LogToClean, steady: int) -> CompactionResult | None:
        """Return the result if nothing is left to compact; None if another pass is needed."""
        assert self.to is not None, "a compaction that ends has begun"
        held_back_by = None
        if to_clean.first_dirty < self.to:
            if to_clean.first_uncleanable > to_clean.first_dirty:
                return None
            held_back_by = TRANSACTION if log.producers.first_unstable < self.to else MIN_LAG
        return CompactionResult(
            self._bytes_before,
            _bytes_below(log, self.to),
            self.removed_records,
            min(to_clean.first_dirty, self.to),
            held_back_by,
            steady - self._began,
        )

    @property
    def answer(self) -> CompactionResult | Refused:
        """The current answer for its requests."""
        if self.outcome is not None:
            return self.outcome
        name = self.partition.topic_partition
        text = f"{name} is not compacted yet; the broker continues to compact it in the background"
        return Refused(ErrorCode.REQUEST_TIMED_OUT, text)


def _bytes_below(log: Log, end: Offset) -> int:
    return sum(segment.size for segment in log.segments if segment.base_offset < end)


class AllCompacted:
    """Condition of a request that waits for several compactions."""

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
