"""How the brokers and partitions of a cluster are, by what it tells its clients: `odradek cluster status` shows it."""

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

# A broker's offline folders, or why it does not answer; None if it may not be asked.
Told: TypeAlias = Sequence[str] | ClientError | None
LogEnds: TypeAlias = Mapping[int, Mapping[TopicPartition, Offset]]  # By broker: where its logs end.
NO_ENDS: LogEnds = MappingProxyType({})
NO_MIN_ISRS: Mapping[str, int] = MappingProxyType({})


class BrokerStatus(NamedTuple):
    """One broker that lives, or holds replicas; `offline_log_dirs` is None where it can't be asked.

    `silence` says why one that its cluster takes for alive does not answer.
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
    def is_well(self) -> bool:
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
    """What is wrong with a partition, the worst first."""

    OFFLINE = "offline"  # Nobody leads it.
    UNDER_MIN_ISR = "under min ISR"  # What is written with acks=all is refused.
    AT_MIN_ISR = "at min ISR"  # And would be, with one in-sync replica less.
    UNDER_REPLICATED = "under-replicated"

    @property
    def is_unavailable(self) -> bool:
        """True if it can't be read, or not be written with acks=all."""
        return self in (PartitionState.OFFLINE, PartitionState.UNDER_MIN_ISR)


class Trouble(NamedTuple):
    """A partition that nobody leads, or of which not all replicas are in sync.

    `min_isr` is its topic's min.insync.replicas, None if that is not told; `lags` has how many records replicas that
    are not in sync are behind their leader, as far as they tell.
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
    """Returns what is wrong with a partition that has a leader, and lacks replicas."""
    # No more replicas are asked for than there are.
    wanted = 0 if min_isr is None else min(min_isr, len(partition.replicas))
    if len(partition.isr) < wanted:
        return PartitionState.UNDER_MIN_ISR
    return PartitionState.AT_MIN_ISR if len(partition.isr) == wanted else PartitionState.UNDER_REPLICATED


def brokers_of(
    description: ClusterDescription, topics: Iterable[Topic], told: Mapping[int, Told]
) -> list[BrokerStatus]:
    """Returns all brokers that live or hold a replica; `told` has what those that live told of themselves."""
    partitions = [partition for topic in topics for partition in topic.partitions]
    alive = {broker.id: broker for broker in description.brokers}
    leads, replicas = dict.fromkeys(alive, 0), dict.fromkeys(alive, 0)
    for partition in partitions:
        for broker in partition.replicas:
            replicas[broker] = replicas.get(broker, 0) + 1
        if partition.leader >= 0:
            leads[partition.leader] = leads.get(partition.leader, 0) + 1
    return [
        _status(broker, alive.get(broker), leads.get(broker, 0), replicas.get(broker, 0), told.get(broker))
        for broker in sorted({*replicas, *leads})
    ]


def _status(broker: int, alive: Broker | None, leads: int, replicas: int, told: Told) -> BrokerStatus:
    address, rack = (None, None) if alive is None else (str(alive), alive.rack)
    if isinstance(told, ClientError):
        return BrokerStatus(broker, address, rack, leads, replicas, None, str(told))
    return BrokerStatus(broker, address, rack, leads, replicas, told)


def lacking(topics: Iterable[Topic]) -> Iterator[tuple[TopicPartition, Partition]]:
    """Yields the partitions that nobody leads, or of which not all replicas are in sync."""
    for topic in topics:
        for partition in topic.partitions:
            if partition.leader < 0 or len(partition.isr) < len(partition.replicas):
                yield TopicPartition(TopicName(topic.name), partition.index), partition


def asked_for_ends(topics: Iterable[Topic]) -> dict[int, list[TopicPartition]]:
    """Returns which brokers to ask for the ends of which logs: leaders, and replicas that are not in sync."""
    asked: dict[int, list[TopicPartition]] = {}
    for name, partition in lacking(topics):
        if partition.leader != NO_BROKER:
            for broker in (partition.leader, *_missing(partition)):
                asked.setdefault(broker, []).append(name)
    return asked


def troubles_of(
    topics: Iterable[Topic],
    brokers: Mapping[int, BrokerStatus],
    min_isrs: Mapping[str, int] = NO_MIN_ISRS,
    ends: LogEnds = NO_ENDS,
) -> list[Trouble]:
    """Returns the partitions that are not as they should be, the worst first.

    `min_isrs` has min.insync.replicas by topic, `ends` where the logs end that `asked_for_ends` says.
    """
    found = []
    for name, partition in lacking(topics):
        lags = _lags(name, partition, ends)
        why = _why(partition, brokers, lags)
        found.append(Trouble(name.topic, partition, min_isrs.get(name.topic), lags, why))
    order = list(PartitionState)
    return sorted(found, key=lambda one: order.index(one.state))


def _lags(name: TopicPartition, partition: Partition, ends: LogEnds) -> dict[int, int]:
    end = ends.get(partition.leader, {}).get(name)
    if end is None:
        return {}
    theirs = {broker: ends.get(broker, {}).get(name) for broker in _missing(partition)}
    # One that was asked later may have more.
    return {broker: max(0, end - own) for broker, own in theirs.items() if own is not None}


def _missing(partition: Partition) -> tuple[int, ...]:
    return tuple(one for one in partition.replicas if one not in partition.isr)


def _why(partition: Partition, brokers: Mapping[int, BrokerStatus], lags: Mapping[int, int]) -> str:
    """Says what is known of the replicas that are missing, those of which a leader is elected first."""
    if partition.leader < 0:
        # Of partitions with eligible leader replicas (KIP-966) none may be in sync.
        wanted = partition.isr or partition.eligible_leader_replicas or partition.replicas
    else:
        wanted = _missing(partition)
    missing = [_of_broker(broker, partition, brokers, lags.get(broker)) for broker in wanted]
    return "; ".join(dict.fromkeys(missing)) or "its replicas are there: no leader was elected yet"


def _of_broker(broker: int, partition: Partition, brokers: Mapping[int, BrokerStatus], lag: int | None) -> str:
    known = brokers.get(broker)
    if known is None or not known.is_alive:
        return f"broker {broker} is down"
    if broker in partition.offline:
        return f"broker {broker} can't read its log" + (f": {known.state}" if known.offline_log_dirs else "")
    if partition.leader < 0:
        return f"broker {broker} is there and was not elected yet"
    if lag is None:
        return f"broker {broker} is behind"
    return f"broker {broker} is {plural(lag, 'record')} behind" if lag else f"broker {broker} has all, and joins soon"
