"""Status of a cluster's brokers and partitions from its metadata, shown by `odradek cluster status`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from odradek.app.terminal.output import plural
from odradek.base.units import NO_BROKER, Offset, TopicName, TopicPartition
from odradek.client.cluster.describe import ClusterDescription
from odradek.client.cluster.topic_metadata import Broker, Partition, Topic
from odradek.client.connection.client_errors import ClientError

# A broker's offline log directories, or the error of the request; None if unauthorized.
LogDirReport: TypeAlias = Sequence[str] | ClientError | None
LogEnds: TypeAlias = Mapping[int, Mapping[TopicPartition, Offset]]  # By broker: the log end offsets.
NO_ENDS: LogEnds = MappingProxyType({})
NO_MIN_ISRS: Mapping[str, int] = MappingProxyType({})


class BrokerStatus(NamedTuple):
    """Status of a broker that is alive or has replicas; `offline_log_dirs` is None if unknown.

    `silence` is the error of a broker that is registered but does not answer.
    """

    id: int
    address: str | None
    rack: str | None
    leads: int
    replicas: int
    offline_log_dirs: Sequence[str] | None
    silence: str | None = None

    @property
    def is_alive(self) -> bool:
        return self.address is not None

    @property
    def is_healthy(self) -> bool:
        return self.is_alive and self.silence is None and not self.offline_log_dirs

    @property
    def state(self) -> str:
        if not self.is_alive:
            return "down"
        if self.silence is not None:
            return self.silence
        if not self.offline_log_dirs:
            return "ok"
        return f"{', '.join(self.offline_log_dirs)} {'are' if len(self.offline_log_dirs) > 1 else 'is'} offline"


class PartitionState(StrEnum):
    """Problem of a partition, in order from worst to least."""

    OFFLINE = "offline"  # No leader.
    UNDER_MIN_ISR = "under min ISR"  # Produce requests with acks=all are rejected.
    AT_MIN_ISR = "at min ISR"  # They would be, with one in-sync replica less.
    UNDER_REPLICATED = "under-replicated"

    @property
    def is_unavailable(self) -> bool:
        """Return whether the partition rejects reads, or writes with acks=all."""
        return self in (PartitionState.OFFLINE, PartitionState.UNDER_MIN_ISR)


class Trouble(NamedTuple):
    """Partition without a leader or with replicas that are not in sync.

    `min_isr` is the topic's min.insync.replicas, None if unknown. `lags` contains the lag in records of replicas that
    are not in sync, where known.
    """

    topic: str
    partition: Partition
    min_isr: int | None
    lags: Mapping[int, int]
    why: str

    @property
    def state(self) -> PartitionState:
        if self.partition.leader < 0:
            return PartitionState.OFFLINE
        return state_of_led(self.partition, self.min_isr)


def state_of_led(partition: Partition, min_isr: int | None) -> PartitionState:
    """Return the problem of a partition that has a leader and lacks in-sync replicas."""
    # The number of replicas is the maximum.
    required = 0 if min_isr is None else min(min_isr, len(partition.replicas))
    if len(partition.isr) < required:
        return PartitionState.UNDER_MIN_ISR
    return PartitionState.AT_MIN_ISR if len(partition.isr) == required else PartitionState.UNDER_REPLICATED


def brokers_of(
    description: ClusterDescription, topics: Iterable[Topic], reports: Mapping[int, LogDirReport]
) -> list[BrokerStatus]:
    """Return all brokers that are alive or have a replica; `reports` has those of the live ones."""
    partitions = [partition for topic in topics for partition in topic.partitions]
    alive = {broker.id: broker for broker in description.brokers}
    leads, replicas = dict.fromkeys(alive, 0), dict.fromkeys(alive, 0)
    for partition in partitions:
        for broker in partition.replicas:
            replicas[broker] = replicas.get(broker, 0) + 1
        if partition.leader >= 0:
            leads[partition.leader] = leads.get(partition.leader, 0) + 1
    return [
        _status(broker, alive.get(broker), leads.get(broker, 0), replicas.get(broker, 0), reports.get(broker))
        for broker in sorted({*replicas, *leads})
    ]


def _status(broker: int, alive: Broker | None, leads: int, replicas: int, report: LogDirReport) -> BrokerStatus:
    address, rack = (None, None) if alive is None else (str(alive), alive.rack)
    if isinstance(report, ClientError):
        return BrokerStatus(broker, address, rack, leads, replicas, None, str(report))
    return BrokerStatus(broker, address, rack, leads, replicas, report)


def partitions_with_problems(topics: Iterable[Topic]) -> Iterator[tuple[TopicPartition, Partition]]:
    """Yield the partitions without a leader or with replicas that are not in sync."""
    for topic in topics:
        for partition in topic.partitions:
            if partition.leader < 0 or len(partition.isr) < len(partition.replicas):
                yield TopicPartition(TopicName(topic.name), partition.index), partition


def partitions_by_broker(topics: Iterable[Topic]) -> dict[int, list[TopicPartition]]:
    """Return the log ends to request from each broker: of leaders, and of replicas not in sync."""
    partitions: dict[int, list[TopicPartition]] = {}
    for name, partition in partitions_with_problems(topics):
        if partition.leader != NO_BROKER:
            for broker in (partition.leader, *_missing(partition)):
                partitions.setdefault(broker, []).append(name)
    return partitions


def troubles_of(
    topics: Iterable[Topic],
    brokers: Mapping[int, BrokerStatus],
    min_isrs: Mapping[str, int] = NO_MIN_ISRS,
    ends: LogEnds = NO_ENDS,
) -> list[Trouble]:
    """Return the partitions with problems, the worst first.

    `min_isrs` has min.insync.replicas by topic, `ends` the log end offsets that `partitions_by_broker` lists.
    """
    found = []
    for name, partition in partitions_with_problems(topics):
        lags = _lags(name, partition, ends)
        why = _why(partition, brokers, lags)
        found.append(Trouble(name.topic, partition, min_isrs.get(name.topic), lags, why))
    order = list(PartitionState)
    return sorted(found, key=lambda one: order.index(one.state))


def _lags(name: TopicPartition, partition: Partition, ends: LogEnds) -> dict[int, int]:
    end = ends.get(partition.leader, {}).get(name)
    if end is None:
        return {}
    replica_ends = {broker: ends.get(broker, {}).get(name) for broker in _missing(partition)}
    # A replica that was queried later may have more.
    return {
        broker: max(0, end - replica_end) for broker, replica_end in replica_ends.items() if replica_end is not None
    }


def _missing(partition: Partition) -> tuple[int, ...]:
    return tuple(one for one in partition.replicas if one not in partition.isr)


def _why(partition: Partition, brokers: Mapping[int, BrokerStatus], lags: Mapping[int, int]) -> str:
    """Describe the missing replicas, or the candidates for leader if there is none."""
    if partition.leader < 0:
        # With eligible leader replicas (KIP-966), the ISR may be empty.
        candidates = partition.isr or partition.eligible_leader_replicas or partition.replicas
    else:
        candidates = _missing(partition)
    missing = [_of_broker(broker, partition, brokers, lags.get(broker)) for broker in candidates]
    return "; ".join(dict.fromkeys(missing)) or "its replicas are alive, but no leader has been elected yet"


def _of_broker(broker: int, partition: Partition, brokers: Mapping[int, BrokerStatus], lag: int | None) -> str:
    known = brokers.get(broker)
    if known is None or not known.is_alive:
        return f"broker {broker} is down"
    if broker in partition.offline:
        return f"broker {broker} cannot read its log" + (f": {known.state}" if known.offline_log_dirs else "")
    if partition.leader < 0:
        return f"broker {broker} is alive and has not been elected yet"
    if lag is None:
        return f"broker {broker} is behind"
    return (
        f"broker {broker} is {plural(lag, 'record')} behind"
        if lag
        else f"broker {broker} has caught up and joins the ISR soon"
    )
