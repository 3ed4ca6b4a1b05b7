"""The controller's state of the cluster: live brokers, topics, replicas and leaders.

It is read from the tree when a broker becomes the controller, and follows each change afterwards. The online state of
a replica is derived from live brokers and failed directories. There is no separate replica state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from odradek.base.units import NO_BROKER, BrokerId, TopicName, TopicPartition
from odradek.core.controller.partition_leader_election import Brokers
from odradek.core.kernel.cluster_view import NO_REPLICAS, BrokerInfo, LeaderAndIsr, TopicAssignment


class LiveBroker(NamedTuple):
    """A registered broker; `epoch` is the zxid that created its znode, which differs after each start."""

    info: BrokerInfo
    epoch: int


class ControllerContext:
    """The state; its methods keep the partitions held by each broker consistent with the assignments."""

    def __init__(self) -> None:
        self.brokers: dict[BrokerId, LiveBroker] = {}  # Live brokers, including brokers in controlled shutdown.
        self.shutting_down: set[BrokerId] = set()
        self.topics: dict[TopicName, TopicAssignment] = {}
        self.states: dict[TopicPartition, LeaderAndIsr] = {}
        self.deleting: dict[TopicName, set[tuple[BrokerId, TopicPartition]]] = {}  # With their remaining replicas.
        self.unclean_elections = 0  # Leaders elected from outside the ISR.
        self._held: dict[BrokerId, dict[TopicPartition, None]] = {}
        self._in_failed_directories: dict[BrokerId, set[TopicPartition]] = {}

    # Brokers.

    def add_broker(self, broker: LiveBroker) -> None:
        """Add a started broker, without failed directories and not shutting down."""
        self.remove_broker(broker.info.id)
        self.brokers[broker.info.id] = broker
        self._check()

    def remove_broker(self, broker: BrokerId) -> None:
        self.brokers.pop(broker, None)
        self.shutting_down.discard(broker)
        self._in_failed_directories.pop(broker, None)
        self._check()

    def _check(self) -> None:
        assert self.shutting_down <= self.brokers.keys(), "only live brokers are shutting down"
        assert self._in_failed_directories.keys() <= self.brokers.keys(), "only live brokers report their directories"

    def directories_failed(self, broker: BrokerId, partitions: Iterable[TopicPartition]) -> None:
        """Record partitions that a live broker can't serve, until it restarts or reports them online."""
        assert broker in self.brokers, "only live brokers have offline directories"
        self._in_failed_directories.setdefault(broker, set()).update(partitions)

    def directories_restored(self, broker: BrokerId, partitions: Iterable[TopicPartition]) -> None:
        """Record partitions that a live broker can serve again."""
        assert broker in self.brokers, "only live brokers have directories"
        self._in_failed_directories[broker].difference_update(partitions)

    def is_online(self, broker: BrokerId, partition: TopicPartition) -> bool:
        """Return whether that broker, which may be shutting down, has an online replica of the partition."""
        return broker in self.brokers and partition not in self._in_failed_directories.get(broker, ())

    def online(self, partition: TopicPartition) -> Brokers:
        """Return the brokers with an online replica of the partition."""
        return {broker for broker in self.replicas(partition) if self.is_online(broker, partition)}

    # Topics.

    def put_topic(self, name: TopicName, assignment: TopicAssignment) -> list[TopicPartition]:
        """Add a topic, or more partitions of one; return the new partitions."""
        known = self.topics[name].partitions if name in self.topics else NO_REPLICAS
        assert all(assignment.partitions.get(index) == replicas for index, replicas in known.items()), (
            "an assignment keeps the replicas of its known partitions"
        )
        added = [TopicPartition(name, index) for index in assignment.partitions if index not in known]
        assert not any(partition in self.states for partition in added), "only existing partitions have a state"
        for partition in added:
            for broker in assignment.partitions[partition.partition]:
                self._held.setdefault(broker, {})[partition] = None
        self.topics[name] = assignment
        return added

    def remove_topic(self, name: TopicName) -> None:
        for partition in self.partitions_of(name):
            self.states.pop(partition, None)
            for broker in self.replicas(partition):
                del self._held[broker][partition]
            for failed in self._in_failed_directories.values():
                failed.discard(partition)
        self.topics.pop(name, None)
        self.deleting.pop(name, None)

    def replicas(self, partition: TopicPartition) -> tuple[BrokerId, ...]:
        """Return the brokers of an existing partition, the preferred leader first."""
        return self.topics[partition.topic].partitions[partition.partition]

    def partitions_of(self, name: TopicName) -> list[TopicPartition]:
        """Return the topic's partitions, or none if it does not exist."""
        topic = self.topics.get(name)
        return [] if topic is None else [TopicPartition(name, index) for index in topic.partitions]

    def partitions_on(self, broker: BrokerId) -> list[TopicPartition]:
        """Return the partitions with a replica on a broker, dead or alive."""
        return list(self._held.get(broker, ()))

    def all_partitions(self) -> Iterator[TopicPartition]:
        for name, topic in self.topics.items():
            yield from (TopicPartition(name, index) for index in topic.partitions)

    def has_partition(self, partition: TopicPartition) -> bool:
        topic = self.topics.get(partition.topic)
        return topic is not None and partition.partition in topic.partitions

    def existing(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions that exist and are not being deleted."""
        return [
            partition
            for partition in partitions
            if self.has_partition(partition) and partition.topic not in self.deleting
        ]

    def put_states(self, states: Mapping[TopicPartition, LeaderAndIsr]) -> None:
        """Store the states of existing partitions, as read from or written to the tree."""
        assert all(map(self.has_partition, states)), "every stored state belongs to an existing partition"
        for partition, state in states.items():
            before = self.states.get(partition)
            if before is not None and state.leader not in (before.leader, NO_BROKER, *before.isr):
                self.unclean_elections += 1
        self.states.update(states)
