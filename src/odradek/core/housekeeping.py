"""What is done from time to time, and when it is due: retention, flushes, checkpoints, unlinking, forgetting producers.

Each has Kafka's own interval.  Deciding costs microseconds a partition; what takes longer comes out as chores.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from odradek.base.units import Offset, TopicPartition
from odradek.core.configs.broker import BrokerConfigs
from odradek.core.effects import Chore
from odradek.core.moment import Moment
from odradek.core.partition import Partition
from odradek.core.storage import Storage
from odradek.log.disk import DiskFailed

_LOG = logging.getLogger(__name__)


class Due(NamedTuple):
    """What has come due."""

    to_sync: Sequence[TopicPartition]
    chores: Sequence[Chore]


class Housekeeping:
    """Remembers when each thing was last done, on the steady clock."""

    def __init__(self, storage: Storage, configs: BrokerConfigs) -> None:
        self._storage = storage
        self._retention_ms = configs.int("log.retention.check.interval.ms")
        self._delay_ms = configs.int("log.initial.task.delay.ms")
        # The recovery point and the log starts have intervals of their own, both a minute; one file write serves all.
        self._checkpoint_ms = configs.int("replica.high.watermark.checkpoint.interval.ms")
        self._producers_idle_ms = configs.int("producer.id.expiration.ms")
        self._expiry_ms = configs.int("producer.id.expiration.check.interval.ms")
        self._last_expiry: int | None = None  # At the first tick: who was idle while the broker was not there is known.
        self._last_retention: int | None = None
        self._last_checkpoint = 0

    def tick(self, now: Moment, partitions: Mapping[TopicPartition, Partition]) -> Due:
        if self._last_retention is None:
            # By default not in the first half minute: a broker that starts has better things to do.
            self._last_retention = now.steady - self._retention_ms + self._delay_ms
        if now.steady - self._last_retention >= self._retention_ms:
            self._last_retention = now.steady
            _retain(now, partitions)
        if self._last_expiry is None or now.steady - self._last_expiry >= self._expiry_ms:
            self._last_expiry = now.steady
            _forget_producers(now, partitions, self._producers_idle_ms)
        chores: list[Chore] = list(self._storage.reaps(now.wall))
        if now.steady - self._last_checkpoint >= self._checkpoint_ms:
            self._last_checkpoint = now.steady
            chores += self._storage.checkpoints(high_watermarks(partitions))
        return Due(_to_flush(now, partitions), chores)


def high_watermarks(partitions: Mapping[TopicPartition, Partition]) -> dict[TopicPartition, Offset]:
    return {name: partition.positions.high_watermark for name, partition in partitions.items() if partition.is_online}


def _to_flush(now: Moment, partitions: Mapping[TopicPartition, Partition]) -> list[TopicPartition]:
    return [name for name, one in partitions.items() if one.is_online and one.log.needs_flush(now.wall)]


def _forget_producers(now: Moment, partitions: Mapping[TopicPartition, Partition], idle_ms: int) -> None:
    for partition in partitions.values():
        if partition.is_online:
            partition.log.producers.expire(now.wall, idle_ms)


def _retain(now: Moment, partitions: Mapping[TopicPartition, Partition]) -> None:
    for partition in partitions.values():
        if partition.is_online:
            try:
                partition.log.delete_old_segments(now.wall, partition.positions.high_watermark)
            except DiskFailed as failed:
                _LOG.error("%s: retention failed: %s", partition.topic_partition, failed)
                if not failed.is_full:  # Of a full disk the next round may get something back.
                    partition.take_offline()
