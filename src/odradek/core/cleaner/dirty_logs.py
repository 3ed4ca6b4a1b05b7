"""Choice of the logs worth a pass of the cleaner, the dirtiest first, and retention of compacted logs.

As in Apache Kafka, the log with the highest dirty ratio above its min.cleanable.dirty.ratio comes first, or one with
records older than max.compaction.lag.ms.  Also as in Kafka, the cleaner applies the retention of compacted logs
(compact,delete) every log.cleaner.backoff.ms; core/broker/housekeeping.py does so for all others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping

from odradek.base.units import TopicPartition
from odradek.core.cleaner.uncleanable_logs import UncleanableLogs
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.kernel.moment import Moment
from odradek.core.partition.log_starts import LogStarts
from odradek.core.partition.partition import Partition
from odradek.log.compaction.cleanable import cleanable, must_roll
from odradek.log.files.disk import DiskFailed

CHECKED_PER_SLICE = 256
RETENTION_CHECKS_PER_SLICE = 16  # Compacted logs, as in core/broker/housekeeping.py.

Partitions = Mapping[TopicPartition, Partition]


class DirtyLogs:
    """Logs that the last look found worth a pass."""

    def __init__(
        self,
        configs: BrokerConfigs,
        log_starts: LogStarts,
        set_aside: UncleanableLogs,
        running: Container[TopicPartition],
        failed: Callable[[Partition, DiskFailed, Moment], None],
    ) -> None:
        """Create an empty queue.

        `running` contains the partitions with a running pass; `failed` handles a log whose disk does not let it roll.
        """
        self._configs = configs
        self._log_starts = log_starts
        self._set_aside = set_aside
        self._running = running
        self._failed = failed
        self._queue: deque[Partition] = deque()
        self._next_search = 0
        self.max_ratio = 0.0  # The highest dirty ratio of the last look.

    def search_soon(self) -> None:
        """Look in the next round: a log was cleaned, or a relevant configuration was altered."""
        self._next_search = 0

    def next(self) -> Partition | None:
        """Remove and return the dirtiest log; None if the queue is empty."""
        return self._queue.popleft() if self._queue else None

    def find_dirty_logs(self, now: Moment, partitions: Partitions) -> Iterator[None]:
        """Search for logs worth a pass, if a search is due and none is queued; in short steps."""
        if self._queue or now.steady < self._next_search:
            return
        found: list[tuple[float, Partition]] = []
        self.max_ratio = 0.0
        left = CHECKED_PER_SLICE
        for name in list(partitions):
            partition = partitions.get(name)
            left -= 1
            if partition is not None and self._is_candidate(partition):
                left -= CHECKED_PER_SLICE // RETENTION_CHECKS_PER_SLICE
                if self._log_starts.retain(partition, now):
                    left = 0  # Retention deletes a part of it: a later pass has less to read.
                elif (ratio := self._dirty_ratio(partition, now)) is not None:
                    found.append((ratio, partition))
            if left <= 0:
                left = CHECKED_PER_SLICE
                yield
        self._queue.extend(partition for _, partition in sorted(found, key=lambda one: -one[0]))
        if not found:
            self._next_search = now.steady + self._configs.int("log.cleaner.backoff.ms")

    def _is_candidate(self, partition: Partition) -> bool:
        """Return whether a log is compacted, not set aside and not being cleaned.

        Retention would undo the work of a running pass.
        """
        if not (partition.is_online and partition.log.config.cleanup_compact):
            return False
        return partition not in self._set_aside and partition.topic_partition not in self._running

    def _dirty_ratio(self, partition: Partition, now: Moment) -> float | None:
        """Return the log's dirty ratio if it is to be cleaned now, else None."""
        if self._set_aside.waits(partition, now.steady):
            return None
        log = partition.log
        try:
            if must_roll(log, now.wall):
                log.roll(now.wall)
            to_clean = cleanable(log, now.wall, partition.positions.high_watermark)
        except DiskFailed as failed:
            self._failed(partition, failed, now)
            return None
        assert 0.0 <= to_clean.ratio <= 1.0, "the dirty ratio is a share of the bytes that a pass reads"
        self.max_ratio = max(self.max_ratio, to_clean.ratio)
        if to_clean.first_uncleanable <= to_clean.first_dirty:
            return None
        is_due = to_clean.is_overdue or to_clean.ratio > log.config.min_cleanable_dirty_ratio
        return to_clean.ratio if is_due else None
