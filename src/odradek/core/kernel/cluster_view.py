"""Cluster metadata as this broker knows it: brokers, topics and leaders.

Brokers, partitions and topics are values.  The view that contains them changes in place, so that the cost of an update
depends on the change and not on the size of the cluster.  This is the one part of the core that coordination/ may
import.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Self

from odradek.base.units import NO_BROKER, BrokerId, LeaderEpoch, TopicName
from odradek.base.uuids import ZERO_UUID, Uuid

CONSUMER_OFFSETS, TRANSACTION_STATE = TopicName("__consumer_offsets"), TopicName("__transaction_state")
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, TopicName("__share_group_state")})


PLAINTEXT = "PLAINTEXT"  # A security protocol, and the name of a broker's default listener.


class Endpoint(NamedTuple):
    """One address of a broker under one listener name; `protocol` is its security protocol."""

    listener: str
    host: str
    port: int
    protocol: str = PLAINTEXT


class BrokerInfo(NamedTuple):
    """Live broker."""

    id: BrokerId
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)


RECOVERED, RECOVERING = 0, 1  # Recovery state of a leader after an unclean election (KIP-704).


class LeaderAndIsr(NamedTuple):
    """Leader and ISR of a partition, as in the tree.

    `controller_epoch` belongs to the controller that wrote it, `partition_epoch` is the version of its znode.
    """

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    recovery: int = RECOVERED
    controller_epoch: int = 0
    partition_epoch: int = 0


Replicas = Mapping[int, tuple[BrokerId, ...]]  # By partition; the preferred leader first.
NO_REPLICAS: Replicas = MappingProxyType({})


class TopicAssignment(NamedTuple):
    """Assignment of a topic to brokers.

    `topic_id` is ZERO_UUID for a topic without one (before Kafka 2.8).  `adding` and `removing` name the replicas of
    partitions under reassignment (KIP-455).
    """

    partitions: Replicas
    topic_id: Uuid = ZERO_UUID
    adding: Replicas = NO_REPLICAS
    removing: Replicas = NO_REPLICAS


class PartitionInfo(NamedTuple):
    """State and replicas of one partition.  The first of the replicas is the preferred leader.

    `offline` are replicas that cannot be used although their broker may live: their data directory has failed.  The
    epochs are those of LeaderAndIsr.
    """

    leader: BrokerId
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...] = ()
    partition_epoch: int = 0
    controller_epoch: int = 0

    @classmethod
    def of(cls, state: LeaderAndIsr, replicas: tuple[BrokerId, ...], offline: tuple[BrokerId, ...] = ()) -> Self:
        """Return a partition with this state on these replicas."""
        epochs = state.partition_epoch, state.controller_epoch
        return cls(state.leader, state.leader_epoch, replicas, state.isr, offline, *epochs)


class TopicInfo(NamedTuple):
    """One topic: its id, its partitions by index, and its configuration overrides."""

    name: TopicName
    id: Uuid
    partitions: tuple[PartitionInfo, ...]
    configs: Mapping[str, str] = MappingProxyType({})

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


class ClusterView:
    """Cluster as this broker knows it now.

    `put` and `remove` change it.  A loop over `topics` that yields must copy them to a list first.  A value derived
    from the topics must be kept with their `version`.
    """

    __slots__ = (
        "_by_collision_key",
        "_names",
        "_topics",
        "brokers",
        "cluster_id",
        "controller",
        "names",
        "topics",
        "unreadable",
        "version",
    )

    def __init__(
        self,
        cluster_id: str,
        controller: BrokerId = NO_BROKER,
        brokers: Mapping[BrokerId, BrokerInfo] = MappingProxyType({}),
        topics: Iterable[TopicInfo] = (),
        unreadable: Mapping[TopicName, str] = MappingProxyType({}),
    ) -> None:
        self.cluster_id = cluster_id
        self.controller = controller
        self.brokers = brokers
        self._topics: dict[TopicName, TopicInfo] = {}
        self._names: dict[Uuid, TopicName] = {}
        self._by_collision_key: dict[str, dict[TopicName, None]] = {}
        self.topics: Mapping[TopicName, TopicInfo] = self._topics
        self.names: Mapping[Uuid, TopicName] = self._names  # A topic created before ids existed (Kafka 2.7) has none.
        self.unreadable = dict(unreadable)  # Existing topics with unreadable metadata, and the reasons.
        self.version = 0  # Rises with each change of the topics.
        for name in unreadable:
            self._add_name(name)
        for topic in topics:
            self.put(topic)

    def topic_by_id(self, topic_id: Uuid) -> TopicInfo | None:
        name = self.names.get(topic_id)
        return None if name is None else self.topics[name]

    def collides_with(self, name: TopicName) -> TopicName | None:
        """Return the first topic whose name collides with this one, or None."""
        return next(iter(self._by_collision_key.get(collision_key(name), ())), None) if _may_collide(name) else None

    def put(self, topic: TopicInfo) -> None:
        """Add a topic, or replace the one of its name."""
        before = self._topics.get(topic.name)
        if before is not None and before.id != topic.id:
            self._forget_id(before)
        self._topics[topic.name] = topic
        if topic.id != ZERO_UUID:
            self._names[topic.id] = topic.name
        self._add_name(topic.name)
        self.unreadable.pop(topic.name, None)
        self.version += 1
        assert len(self._names) <= len(self._topics), "an id leads to an existing topic"

    def _forget_id(self, topic: TopicInfo) -> None:
        if self._names.get(topic.id) == topic.name:  # A damaged tree may give one id to two topics.
            del self._names[topic.id]

    def _add_name(self, name: TopicName) -> None:
        if _may_collide(name):
            self._by_collision_key.setdefault(collision_key(name), {})[name] = None

    def remove(self, name: TopicName) -> None:
        """Remove a topic, if it exists."""
        topic = self._topics.pop(name, None)
        if topic is None:
            return
        self._forget_id(topic)
        if _may_collide(name):
            colliding = self._by_collision_key[collision_key(name)]
            del colliding[name]
            if not colliding:
                del self._by_collision_key[collision_key(name)]
        self.version += 1
        assert len(self._names) <= len(self._topics), "an id leads to an existing topic"


def collision_key(name: str) -> str:
    """Return a key that is equal for names that collide: metric names replace '.' by '_'."""
    return name.replace(".", "_")


def _may_collide(name: str) -> bool:
    return "." in name or "_" in name
