"""Periodic tasks on logs: retention, flushes, checkpoints, unlinking, expiry of producers.

Each has Kafka's own interval.  A round runs in slices, so that no request waits for thousands of partitions.  A slice
is limited by a count, since nothing here has a clock.  Work on files that need not run here is a chore.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from odradek.base.units import Offset, TopicPartition
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.kernel.chores import Chore
from odradek.core.kernel.moment import Moment
from odradek.core.partition.log_starts import LogStarts
from odradek.core.partition.partition import Partition
from odradek.core.partition.storage import Storage
from odradek.log.files.disk import DiskFailed
from odradek.log.log.durability import needs_flush

_LOG = logging.getLogger(__name__)

# Each slice takes far less than 2 ms on a slow machine.  A check of a partition costs some microseconds, and dozens if
# its memory was not touched for a second.  A decision on expired segments costs as much again, and more if it must read
# an index; deletion of segments costs some hundred microseconds.
CHECKED_PER_SLICE = 32
RETENTION_CHECKS_PER_SLICE = 16
PRODUCERS_PER_CHECK = 32


class DueWork(NamedTuple):
    """Work that one slice found due."""

    to_sync: Sequence[TopicPartition] = ()
    chores: Sequence[Chore] = ()


NOTHING = DueWork()
Partitions = Mapping[TopicPartition, Partition]


class Housekeeping:
    """Periodic tasks and the time of the last run of each, on the steady clock."""

    def __init__(self, storage: Storage, log_starts: LogStarts, configs: BrokerConfigs) -> None:
        self._storage = storage
        self._log_starts = log_starts
        self._retention_ms = configs.int("log.retention.check.interval.ms")
        self._delay_ms = configs.int("log.initial.task.delay.ms")
        # The recovery point and the log starts have intervals of their own, both a minute; one file write serves all.
        self._checkpoint_ms = configs.int("replica.high.watermark.checkpoint.interval.ms")
        self._configs = configs  # For the one of these keys that may change.
        self._expiry_ms = configs.int("producer.id.expiration.check.interval.ms")
        self._last_expiry: int | None = None  # None: due at the first tick, as time passed while the broker was down.
        self._last_retention: int | None = None
        self._last_checkpoint = 0
        self._reported: set[TopicPartition] = set()  # Partitions whose failing work was logged.

    def round(self, now: Moment, partitions: Partitions) -> Iterator[DueWork]:
        """Run every task that is due now, a slice at each step."""
        if self._last_retention is None:
            # By default not in the first 30 s, when a broker has more urgent work.
            self._last_retention = now.steady - self._retention_ms + self._delay_ms
        if now.steady - self._last_retention >= self._retention_ms:
            self._last_retention = now.steady
            yield from self._retain(now, partitions)
        if self._last_expiry is None or now.steady - self._last_expiry >= self._expiry_ms:
            self._last_expiry = now.steady
            yield from _expire_producers(now, partitions, self._configs.int("producer.id.expiration.ms"))
        storage = self._storage
        yield DueWork(chores=[*storage.reaps(now.wall), *storage.probes(), *storage.damages(now.wall)])
        if now.steady - self._last_checkpoint >= self._checkpoint_ms:
            self._last_checkpoint = now.steady
            yield from self._checkpoint(partitions)
        yield from self._find_due_flushes(now, partitions)

    def _retain(self, now: Moment, partitions: Partitions) -> Iterator[DueWork]:
        checked = 0
        for some in _slices(partitions):
            for partition in some.values():
                if partition.is_online and partition.log.config.cleanup_compact:
                    continue  # The cleaner handles these, as in Apache Kafka.
                checked += 1
                if self._log_starts.retain(partition, now) or checked >= RETENTION_CHECKS_PER_SLICE:
                    checked = 0
                    yield NOTHING
        yield NOTHING

    def _checkpoint(self, partitions: Partitions) -> Iterator[DueWork]:
        found: dict[TopicPartition, Offset] = {}
        for some in _slices(partitions):
            found |= high_watermarks(some)
            yield NOTHING
        for checkpoint in self._storage.checkpoints(found):  # A microsecond for each partition of the directory.
            yield NOTHING if checkpoint is None else DueWork(chores=(checkpoint,))

    def _find_due_flushes(self, now: Moment, partitions: Partitions) -> Iterator[DueWork]:
        """Yield the logs that have a flush due, and retry pending file work."""
        for some in _slices(partitions):
            online = [(name, one) for name, one in some.items() if one.is_online]
            for name, one in online:
                if one.log.has_pending_work:
                    self._settle(name, one)
            yield DueWork([name for name, one in online if one.is_online and needs_flush(one.log, now.wall)])

    def _settle(self, name: TopicPartition, partition: Partition) -> None:
        try:
            partition.log.settle()
            self._reported.discard(name)
        except DiskFailed as failed:
            if name not in self._reported:
                _LOG.error("%s: failed to complete pending file operations (will retry): %s", name, failed)
            self._reported.add(name)


def high_watermarks(partitions: Partitions) -> dict[TopicPartition, Offset]:
    return {name: partition.positions.high_watermark for name, partition in partitions.items() if partition.is_online}


def _slices(partitions: Partitions) -> Iterator[Partitions]:
    """Yield all partitions of the start of the round in slices, without those deleted since."""
    names = list(partitions)
    for start in range(0, len(names), CHECKED_PER_SLICE):
        some = names[start : start + CHECKED_PER_SLICE]
        yield {name: partitions[name] for name in some if name in partitions}


def _expire_producers(now: Moment, partitions: Partitions, idle_ms: int) -> Iterator[DueWork]:
    checks = 0
    for some in _slices(partitions):
        for partition in some.values():
            if partition.is_online:
                checks += 1 + len(partition.log.producers) // PRODUCERS_PER_CHECK
                partition.log.producers.expire(now.wall, idle_ms)
            if checks >= CHECKED_PER_SLICE:
                checks = 0
                yield NOTHING
    yield NOTHING
