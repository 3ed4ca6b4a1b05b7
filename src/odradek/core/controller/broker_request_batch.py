"""The controller's requests to brokers, as values; only api/ knows their messages.

One batch follows from one event. Each broker receives its part in the order LeaderAndIsr, UpdateMetadata,
StopReplica, after all earlier requests. If brokers have started, they are announced first, because an Apache Kafka
broker follows only brokers that it knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from odradek.base.units import BrokerId, LeaderEpoch, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.controller.controller_context import ControllerContext
from odradek.core.kernel.cluster_view import BrokerInfo, LeaderAndIsr

# The leader of partitions in a topic being deleted, and the epoch in which their replicas are stopped.
LEADER_DURING_DELETE, EPOCH_DURING_DELETE = BrokerId(-2), LeaderEpoch(-2)

TopicIds = Mapping[TopicName, Uuid]


class AssignedState(NamedTuple):
    """A partition's state and its replicas, with `adding` and `removing` in a reassignment (KIP-455)."""

    state: LeaderAndIsr
    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    is_new: bool = False


class BecomeLeaderOrFollower(NamedTuple):
    """LeaderAndIsr: the replicas that a broker leads or follows now, and the leaders' addresses."""

    partitions: Mapping[TopicPartition, AssignedState]
    topic_ids: TopicIds
    live_leaders: tuple[BrokerInfo, ...]


class PartitionMetadata(NamedTuple):
    """The metadata of a partition that all brokers return to clients."""

    state: LeaderAndIsr
    replicas: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...]


class UpdateMetadata(NamedTuple):
    """UpdateMetadata: all live brokers, and the changed partitions.

    With `is_full` no other topics exist: a controller may have died before it announced their deletion. Partitions
    are never removed from a topic. A missing partition has just been created and follows soon.
    """

    partitions: Mapping[TopicPartition, PartitionMetadata]
    topic_ids: TopicIds
    brokers: tuple[BrokerInfo, ...]
    is_full: bool


class StopReplicas(NamedTuple):
    """StopReplica: replicas that a broker must close, in their leader epochs, and delete if set."""

    partitions: Mapping[TopicPartition, LeaderEpoch]
    deletes: bool


class ControlRequest(NamedTuple):
    """One request to a broker, which rejects it after a restart or from an outdated controller."""

    broker: BrokerId
    broker_epoch: int
    controller: BrokerId
    controller_epoch: int
    request: BecomeLeaderOrFollower | UpdateMetadata | StopReplicas


class RequestBatch:
    """The requests that follow from one event; `take_requests` reads their content from the context."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._states: dict[BrokerId, dict[TopicPartition, None]] = {}
        self._new: set[TopicPartition] = set()
        self._metadata: dict[BrokerId, dict[TopicPartition, None]] = {}
        self._full_updates: set[BrokerId] = set()
        self._announces = False
        self._stops: dict[BrokerId, dict[TopicPartition, bool]] = {}

    def become(self, brokers: Iterable[BrokerId], partition: TopicPartition, *, is_new: bool = False) -> None:
        """Send the partition's state to the replicas on these brokers, and its metadata to all brokers.

        `is_new` means that no broker had the partition before, so brokers do not look for its log or an earlier
        leader.
        """
        assert self._context.has_partition(partition), "only existing partitions have replicas"
        for broker in brokers:
            self._states.setdefault(broker, {})[partition] = None
        if is_new:
            self._new.add(partition)
        self.update_metadata([partition])

    def update_metadata(self, partitions: Iterable[TopicPartition]) -> None:
        """Send all brokers the live brokers, and the state of these partitions for their clients."""
        changed = dict.fromkeys(partitions)
        for broker in self._context.brokers:
            self._metadata.setdefault(broker, {}).update(changed)

    def announce(self, full_update_to: Iterable[BrokerId]) -> None:
        """Send all brokers the live brokers first, and the full metadata to the given ones.

        The given brokers may have no metadata or outdated metadata.
        """
        self._announces = True
        self._full_updates.update(full_update_to)

    def stop(self, broker: BrokerId, partition: TopicPartition, *, deletes: bool = False) -> None:
        """Request a broker to close a replica, and optionally to delete its log."""
        stops = self._stops.setdefault(broker, {})
        stops[partition] = deletes or stops.get(partition, False)

    def take_requests(self, controller: BrokerId, epoch: int) -> list[ControlRequest]:
        """Return the requests, in order for each broker, and reset the batch; dead brokers get none."""
        requests: list[ControlRequest] = []
        everything = self._update(self._context.all_partitions(), is_full=True) if self._full_updates else None
        live_brokers = self._update((), is_full=False) if self._announces else None
        bodies: dict[tuple[TopicPartition, ...], UpdateMetadata] = {}  # Most brokers receive the same content.
        for broker, live in self._context.brokers.items():
            gets_full = broker in self._full_updates
            parts: list[BecomeLeaderOrFollower | UpdateMetadata | StopReplicas | None] = []
            parts.append(everything if gets_full else live_brokers)
            if broker in self._states:
                parts.append(self._become(self._states[broker]))
            if broker in self._metadata and not gets_full:
                partitions = tuple(self._metadata[broker])
                if partitions not in bodies:
                    bodies[partitions] = self._update(partitions, is_full=False)
                parts.append(bodies[partitions])
            parts += self._stop(self._stops.get(broker, {}))
            requests += (
                ControlRequest(broker, live.epoch, controller, epoch, part) for part in parts if part is not None
            )
        for each in (self._states, self._new, self._metadata, self._full_updates, self._stops):
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
        metadata: dict[TopicPartition, PartitionMetadata] = {}
        for partition in partitions:
            state = context.states.get(partition)
            if state is None:
                continue  # None of its replicas has been alive yet: as in Apache Kafka, clients do not see it.
            if partition.topic in context.deleting:
                state = state._replace(leader=LEADER_DURING_DELETE)
            replicas = context.replicas(partition)
            offline = tuple(broker for broker in replicas if not context.is_online(broker, partition))
            metadata[partition] = PartitionMetadata(state, replicas, offline)
        brokers = tuple(live.info for live in context.brokers.values())
        return UpdateMetadata(metadata, self._topic_ids(metadata), brokers, is_full)

    def _stop(self, stops: Mapping[TopicPartition, bool]) -> Iterator[StopReplicas]:
        """Yield one request for closed and one for deleted replicas, as old versions can't combine both."""
        for deletes in (False, True):
            epochs: dict[TopicPartition, LeaderEpoch] = {}
            for partition in (partition for partition, is_deleted in stops.items() if is_deleted == deletes):
                state = None if partition.topic in self._context.deleting else self._context.states.get(partition)
                epochs[partition] = EPOCH_DURING_DELETE if state is None else state.leader_epoch
            if epochs:
                yield StopReplicas(epochs, deletes)

    def _topic_ids(self, partitions: Iterable[TopicPartition]) -> TopicIds:
        return {partition.topic: self._context.topics[partition.topic].topic_id for partition in partitions}
