"""What a scrape's snapshot has of replication: replicas that are missing, followers that are behind, elections.

Taken on the loop, partition by partition, as the rest of the snapshot (metrics_snapshot).
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.base.units import BrokerId, TopicPartition
from odradek.core.broker.broker import Broker
from odradek.core.kernel.cluster_view import TopicInfo
from odradek.core.partition.partition import Partition


class Led(NamedTuple):
    """A partition that this broker leads."""

    topic: str
    partition: str
    replicas: int
    in_sync: int
    min_in_sync: int  # min.insync.replicas, and no more than there are replicas.

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
    """How many records a partition that follows is behind its leader's high watermark; `fetcher` is Kafka's name."""

    fetcher: str
    topic: str
    partition: str
    records: int


@dataclass(slots=True)
class Replication:
    """One broker's; the counters are of its whole life, but unclean elections, which are of the controller's office."""

    isr_shrinks: int
    isr_expands: int
    failed_isr_updates: int
    bytes_in: int = 0
    bytes_out: int = 0
    led: list[Led] = field(default_factory=list)
    lags: list[Lag] = field(default_factory=list)
    failed: int = 0  # Partitions that are followed no more until their leader changes.
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

    def take(self, broker: Broker, name: TopicPartition, partition: Partition) -> None:
        """Takes in one partition that is online."""
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

    def take_as_controller(self, topic: TopicInfo, alive: Container[BrokerId]) -> None:
        """Takes in one topic as the controller's broker knows it."""
        for partition in topic.partitions:
            self.offline_partitions += partition.leader not in alive
            self.not_preferred += partition.replicas[:1] != (partition.leader,)


def _led(name: TopicPartition, partition: Partition) -> Led:
    leading, info = partition.leading, partition.info
    assert leading is not None
    isr = info.isr if leading.in_sync is None else leading.in_sync.committed.isr
    replicas = len(info.replicas)
    min_in_sync = min(partition.configs.min_insync_replicas, replicas)
    return Led(str(name.topic), str(name.partition), replicas, len(isr), min_in_sync)
