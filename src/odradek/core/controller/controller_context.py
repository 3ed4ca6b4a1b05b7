"""What the controller knows of the cluster: who lives, which topics there are, who holds and who leads what.

It is read from the tree when a broker becomes the controller, and follows each change from then on.  Whether a replica
is online follows from who lives and whose directories have failed: there is no state of replicas beside these facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from odradek.base.units import NO_BROKER, BrokerId, TopicName, TopicPartition
from odradek.core.controller.partition_leader_election import Brokers
from odradek.core.kernel.cluster_view import NO_REPLICAS, BrokerInfo, LeaderAndIsr, TopicAssignment


class LiveBroker(NamedTuple):
    """A registered broker; `epoch` is the zxid that made its znode, another one after each start."""

    info: BrokerInfo
    epoch: int


class ControllerContext:
    """Changes come through its methods, which keep what each broker holds in step with the assignments."""

    def __init__(self) -> None:
        self.brokers: dict[BrokerId, LiveBroker] = {}  # Those that live, those that are shutting down among them.
        self.shutting_down: set[BrokerId] = set()
        self.topics: dict[TopicName, TopicAssignment] = {}
        self.states: dict[TopicPartition, LeaderAndIsr] = {}
        self.deleting: dict[TopicName, set[tuple[BrokerId, TopicPartition]]] = {}  # And the replicas that are left.
        self.unclean_elections = 0  # Leaders that were elected though they were not in the ISR.
        self._held: dict[BrokerId, dict[TopicPartition, None]] = {}
        self._in_failed_directories: dict[BrokerId, set[TopicPartition]] = {}

    # Brokers.

    def broker_came(self, broker: LiveBroker) -> None:
        """Takes in a broker that has started: nothing is known of its directories, and it does not stop."""
        self.broker_went(broker.info.id)
        self.brokers[broker.info.id] = broker

    def broker_went(self, broker: BrokerId) -> None:
        self.brokers.pop(broker, None)
        self.shutting_down.discard(broker)
        self._in_failed_directories.pop(broker, None)

    def directories_failed(self, broker: BrokerId, partitions: Iterable[TopicPartition]) -> None:
        """Takes in which of its partitions a live broker can't serve, until it starts again or says that it can."""
        assert broker in self.brokers, "a dead broker has no directories"
        self._in_failed_directories.setdefault(broker, set()).update(partitions)

    def directories_are_back(self, broker: BrokerId, partitions: Iterable[TopicPartition]) -> None:
        """Takes in which of these a live broker can serve again."""
        self._in_failed_directories[broker].difference_update(partitions)

    def is_online(self, broker: BrokerId, partition: TopicPartition) -> bool:
        """True if that broker, which may be shutting down, has a replica of the partition that it can serve."""
        return broker in self.brokers and partition not in self._in_failed_directories.get(broker, ())

    def online(self, partition: TopicPartition) -> Brokers:
        """Returns which of its replicas are online."""
        return {broker for broker in self.replicas(partition) if self.is_online(broker, partition)}

    # Topics.

    def topic_is(self, name: TopicName, assignment: TopicAssignment) -> list[TopicPartition]:
        """Takes in a topic, or more partitions of one; returns those that it did not have before."""
        known = self.topics[name].partitions if name in self.topics else NO_REPLICAS
        assert all(assignment.partitions.get(index) == replicas for index, replicas in known.items()), "only more"
        added = [TopicPartition(name, index) for index in assignment.partitions if index not in known]
        for partition in added:
            for broker in assignment.partitions[partition.partition]:
                self._held.setdefault(broker, {})[partition] = None
        self.topics[name] = assignment
        return added

    def topic_went(self, name: TopicName) -> None:
        for partition in self.partitions_of(name):
            self.states.pop(partition, None)
            for broker in self.replicas(partition):
                del self._held[broker][partition]
            for failed in self._in_failed_directories.values():
                failed.discard(partition)
        self.topics.pop(name, None)
        self.deleting.pop(name, None)

    def replicas(self, partition: TopicPartition) -> tuple[BrokerId, ...]:
        """Returns the brokers of a partition that is there, the preferred leader first."""
        return self.topics[partition.topic].partitions[partition.partition]

    def partitions_of(self, name: TopicName) -> list[TopicPartition]:
        """Returns the topic's partitions; none if there is no such topic."""
        topic = self.topics.get(name)
        return [] if topic is None else [TopicPartition(name, index) for index in topic.partitions]

    def partitions_on(self, broker: BrokerId) -> list[TopicPartition]:
        """Returns the partitions of which a broker, dead or alive, has a replica."""
        return list(self._held.get(broker, ()))

    def all_partitions(self) -> Iterator[TopicPartition]:
        for name, topic in self.topics.items():
            yield from (TopicPartition(name, index) for index in topic.partitions)

    def is_there(self, partition: TopicPartition) -> bool:
        topic = self.topics.get(partition.topic)
        return topic is not None and partition.partition in topic.partitions

    def staying(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Returns those that are there and are not being deleted."""
        return [one for one in partitions if self.is_there(one) and one.topic not in self.deleting]

    def became(self, states: Mapping[TopicPartition, LeaderAndIsr]) -> None:
        """Takes in the states of partitions that are there, as the tree has them now."""
        assert all(map(self.is_there, states)), "a state is somebody's"
        for partition, state in states.items():
            before = self.states.get(partition)
            if before is not None and state.leader not in (before.leader, NO_BROKER, *before.isr):
                self.unclean_elections += 1
        self.states.update(states)
