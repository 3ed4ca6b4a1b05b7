"""What the controller tells brokers, as values; only api/ knows the messages that these become.

One batch is what follows from one event: each broker gets its part in the order LeaderAndIsr, UpdateMetadata,
StopReplica, behind all that it was told before.  If brokers have come, that is said first: an Apache Kafka broker
follows nobody of whom it has not heard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from odradek.base.units import BrokerId, LeaderEpoch, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.controller.controller_context import ControllerContext
from odradek.core.kernel.cluster_view import BrokerInfo, LeaderAndIsr

# A topic that is being deleted has this for its leaders, and this is the epoch in which its replicas are stopped.
LEADER_DURING_DELETE, EPOCH_DURING_DELETE = BrokerId(-2), LeaderEpoch(-2)

TopicIds = Mapping[TopicName, Uuid]


class AssignedState(NamedTuple):
    """A partition's state and its replicas; `adding` and `removing` those that a reassignment changes (KIP-455)."""

    state: LeaderAndIsr
    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    is_new: bool = False


class BecomeLeaderOrFollower(NamedTuple):
    """LeaderAndIsr: the replicas that a broker leads or follows from now on, and where the leaders are."""

    partitions: Mapping[TopicPartition, AssignedState]
    topic_ids: TopicIds
    live_leaders: tuple[BrokerInfo, ...]


class PartitionMetadata(NamedTuple):
    """What all brokers tell clients of a partition."""

    state: LeaderAndIsr
    replicas: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...]


class UpdateMetadata(NamedTuple):
    """UpdateMetadata: all brokers that live, and the partitions that have changed.

    With `is_full` there are no other topics: what a controller that has died did not come to tell of may be gone.
    Partitions of a topic never go: one that is not among them was made a moment ago, and is told of soon.
    """

    partitions: Mapping[TopicPartition, PartitionMetadata]
    topic_ids: TopicIds
    brokers: tuple[BrokerInfo, ...]
    is_full: bool


class StopReplicas(NamedTuple):
    """StopReplica: replicas that a broker is to close, in their leader epochs, and to delete if it says so."""

    partitions: Mapping[TopicPartition, LeaderEpoch]
    deletes: bool


class ToBroker(NamedTuple):
    """One request to a broker, which refuses it if it has started again since, or knows a newer controller."""

    broker: BrokerId
    broker_epoch: int
    controller: BrokerId
    controller_epoch: int
    request: BecomeLeaderOrFollower | UpdateMetadata | StopReplicas


class RequestBatch:
    """The requests that follow from one event; their content is what the context has when they are taken."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._states: dict[BrokerId, dict[TopicPartition, None]] = {}
        self._new: set[TopicPartition] = set()
        self._metadata: dict[BrokerId, dict[TopicPartition, None]] = {}
        self._told_all: set[BrokerId] = set()
        self._announces = False
        self._stops: dict[BrokerId, dict[TopicPartition, bool]] = {}

    def become(self, brokers: Iterable[BrokerId], partition: TopicPartition, *, is_new: bool = False) -> None:
        """Tells the replicas on these brokers the partition's state, and every broker for its clients.

        `is_new` if nobody had it before: nobody looks for its log then, nor for who led it.
        """
        for broker in brokers:
            self._states.setdefault(broker, {})[partition] = None
        if is_new:
            self._new.add(partition)
        self.update_metadata([partition])

    def update_metadata(self, partitions: Iterable[TopicPartition]) -> None:
        """Tells all brokers who lives, and the state of these partitions for their clients."""
        told = dict.fromkeys(partitions)
        for broker in self._context.brokers:
            self._metadata.setdefault(broker, {}).update(told)

    def announce(self, to_know_all: Iterable[BrokerId]) -> None:
        """Tells all brokers who lives, first of all; and some, which may know nothing or what is over, everything."""
        self._announces = True
        self._told_all.update(to_know_all)

    def stop(self, broker: BrokerId, partition: TopicPartition, *, deletes: bool = False) -> None:
        """Tells a broker to close a replica, and to delete its log."""
        stops = self._stops.setdefault(broker, {})
        stops[partition] = deletes or stops.get(partition, False)

    def take(self, controller: BrokerId, epoch: int) -> list[ToBroker]:
        """Returns the requests, each broker's in their order, and begins anew.  Who does not live is told nothing."""
        requests: list[ToBroker] = []
        everything = self._update(self._context.all_partitions(), is_full=True) if self._told_all else None
        who_lives = self._update((), is_full=False) if self._announces else None
        bodies: dict[tuple[TopicPartition, ...], UpdateMetadata] = {}  # Most brokers are told the same.
        for broker, live in self._context.brokers.items():
            knows_all = broker in self._told_all
            asked: list[BecomeLeaderOrFollower | UpdateMetadata | StopReplicas | None] = []
            asked.append(everything if knows_all else who_lives)
            if broker in self._states:
                asked.append(self._become(self._states[broker]))
            if broker in self._metadata and not knows_all:
                partitions = tuple(self._metadata[broker])
                if partitions not in bodies:
                    bodies[partitions] = self._update(partitions, is_full=False)
                asked.append(bodies[partitions])
            asked += self._stop(self._stops.get(broker, {}))
            requests += (ToBroker(broker, live.epoch, controller, epoch, one) for one in asked if one is not None)
        for each in (self._states, self._new, self._metadata, self._told_all, self._stops):
            each.clear()
        self._announces = False
        return requests

    def _become(self, partitions: Iterable[TopicPartition]) -> BecomeLeaderOrFollower:
        context = self._context
        states: dict[TopicPartition, AssignedState] = {}
        for partition in partitions:
            if partition in context.states:
                topic, index = context.topics[partition.topic], partition.partition
                states[partition] = AssignedState(
                    context.states[partition],
                    topic.partitions[index],
                    topic.adding.get(index, ()),
                    topic.removing.get(index, ()),
                    is_new=partition in self._new,
                )
        leaders = dict.fromkeys(assigned.state.leader for assigned in states.values())
        live = tuple(context.brokers[leader].info for leader in leaders if leader in context.brokers)
        return BecomeLeaderOrFollower(states, self._topic_ids(states), live)

    def _update(self, partitions: Iterable[TopicPartition], *, is_full: bool) -> UpdateMetadata:
        context = self._context
        told: dict[TopicPartition, PartitionMetadata] = {}
        for partition in partitions:
            state = context.states.get(partition)
            if state is None:
                continue  # None of its replicas has lived yet: as in Apache Kafka, clients are not told of it.
            if partition.topic in context.deleting:
                state = state._replace(leader=LEADER_DURING_DELETE)
            replicas = context.replicas(partition)
            offline = tuple(broker for broker in replicas if not context.is_online(broker, partition))
            told[partition] = PartitionMetadata(state, replicas, offline)
        brokers = tuple(live.info for live in context.brokers.values())
        return UpdateMetadata(told, self._topic_ids(told), brokers, is_full)

    def _stop(self, stops: Mapping[TopicPartition, bool]) -> Iterator[StopReplicas]:
        """Yields a request for those that are closed, and one for those that are deleted: of old, none says both."""
        for deletes in (False, True):
            epochs: dict[TopicPartition, LeaderEpoch] = {}
            for partition in (one for one, is_deleted in stops.items() if is_deleted == deletes):
                state = None if partition.topic in self._context.deleting else self._context.states.get(partition)
                epochs[partition] = EPOCH_DURING_DELETE if state is None else state.leader_epoch
            if epochs:
                yield StopReplicas(epochs, deletes)

    def _topic_ids(self, partitions: Iterable[TopicPartition]) -> TopicIds:
        return {partition.topic: self._context.topics[partition.topic].topic_id for partition in partitions}
