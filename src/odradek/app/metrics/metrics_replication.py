"""Replication part of a scrape's snapshot: missing replicas, lagging followers, elections.

Collected on the loop, partition by partition, like the rest of the snapshot (app/metrics/metrics_snapshot.py).
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.base.units import BrokerId, TopicPartition
from odradek.core.broker.broker import Broker
from odradek.core.kernel.cluster_view import TopicInfo
from odradek.core.partition.partition import Partition


class LeaderPartition(NamedTuple):
    """Partition that this broker leads."""

    topic: str
    partition: str
    replicas: int
    in_sync: int
    min_in_sync: int  # min.insync.replicas, at most the number of replicas.

    @property
    def is_under_replicated(self) -> bool:
        return self.in_sync < self.replicas

    @property
    def is_under_min_isr(self) -> bool:
        return self.in_sync < self.min_in_sync

    @property
    def is_at_min_isr(self) -> bool:
        return self.in_sync == self.min_in_sync


class Lag(NamedTuple):
    """Records by which a follower partition lags its leader's high watermark; `fetcher` is Kafka's name."""

    fetcher: str
    topic: str
    partition: str
    records: int


@dataclass(slots=True)
class Replication:
    """Replication state of one broker.

    The counters cover the broker's lifetime, except unclean elections, which cover its term as controller.
    """

    isr_shrinks: int
    isr_expands: int
    failed_isr_updates: int
    bytes_in: int = 0
    bytes_out: int = 0
    led: list[LeaderPartition] = field(default_factory=list)
    lags: list[Lag] = field(default_factory=list)
    failed: int = 0  # Partitions not fetched until their leader changes.
    unclean_elections: int = 0
    offline_partitions: int = 0
    not_preferred: int = 0

    @classmethod
    def of(cls, broker: Broker, unclean_elections: int) -> Replication:
        counts = broker.alter_partition.counts
        return cls(
            counts.shrinks,
            counts.expands,
            counts.failures,
            bytes_out=broker.replicated_out_bytes,
            unclean_elections=unclean_elections,
        )

    def add_partition(self, broker: Broker, name: TopicPartition, partition: Partition) -> None:
        """Add one online partition."""
        self.bytes_in += partition.log.replicated_bytes
        if partition.leading is not None:
            self.led.append(_led(name, partition))
            return
        fetcher = broker.fetchers.of(name)
        if fetcher is None:
            return  # It has no leader.
        following = fetcher.following(name)
        if following is None:
            self.failed += 1
        elif following.lag is not None:
            text = f"ReplicaFetcherThread-{fetcher.number}-{fetcher.leader}"
            self.lags.append(Lag(text, str(name.topic), str(name.partition), following.lag))

    def add_controller_topic(self, topic: TopicInfo, alive: Container[BrokerId]) -> None:
        """Add one topic from the metadata of the controller's broker."""
        for partition in topic.partitions:
            self.offline_partitions += partition.leader not in alive
            self.not_preferred += partition.replicas[:1] != (partition.leader,)


def _led(name: TopicPartition, partition: Partition) -> LeaderPartition:
    leading, info = partition.leading, partition.info
    assert leading is not None
    isr = info.isr if leading.in_sync is None else leading.in_sync.committed.isr
    replicas = len(info.replicas)
    min_in_sync = min(partition.configs.min_insync_replicas, replicas)
    return LeaderPartition(str(name.topic), str(name.partition), replicas, len(isr), min_in_sync)
