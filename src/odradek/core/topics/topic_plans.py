"""Plans of new and extended topics, made and checked before anything is written.

The plan is checked against the cluster as this broker knows it.  The metadata tree decides in the end, since another
broker may have been faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId, LeaderEpoch, TopicName
from odradek.base.uuids import Uuid
from odradek.core.kernel import topic_names
from odradek.core.kernel.cluster_view import ClusterView, PartitionInfo, TopicInfo
from odradek.core.topics import assignment

FIRST_EPOCH = LeaderEpoch(0)
PARTITIONS_PER_REQUEST_MAX = 10_000
UNSET = -1


class TopicSpec(NamedTuple):
    """Topic as requested by a client.  -1 for either number means the broker's default."""

    name: str
    partitions: int = UNSET
    replication_factor: int = UNSET
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Mapping[str, str] = MappingProxyType({})


class Planner(NamedTuple):
    """Maker of plans from a view of the cluster.  The two callables are the shell's randomness."""

    partitions_default: int
    replication_factor_default: int
    random_int31: Callable[[], int]
    new_uuid: Callable[[], Uuid]

    def new_topic(self, spec: TopicSpec, view: ClusterView) -> TopicInfo:
        """Return the topic to be written; raise Refused with the client's error code and message."""
        return self.planned(self.check_name(spec.name, view), spec, view)

    def planned(self, name: TopicName, spec: TopicSpec, view: ClusterView) -> TopicInfo:
        """Return the topic for a name that check_name has returned."""
        replicas = self._replicas(spec, _racks(view))
        return TopicInfo(name, self.new_uuid(), _led_by_first(replicas), dict(spec.configs))

    def check_name(self, text: str, view: ClusterView) -> TopicName:
        """Return the text as the name of a topic that could be created; raise Refused otherwise."""
        name = topic_names.checked(text)
        if name == topic_names.METADATA_TOPIC:
            raise Refused(ErrorCode.INVALID_REQUEST, f"internal topic {name} cannot be created by clients")
        if name in view.topics:
            raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if name in view.unreadable:
            raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists, but {view.unreadable[name]}")
        other = view.collides_with(name)
        if other is not None:
            text = f"Topic '{name}' collides with existing topic: {other}"
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, text)
        return name

    def _replicas(self, spec: TopicSpec, racks: assignment.Racks) -> list[tuple[BrokerId, ...]]:
        if spec.assignments:
            if spec.partitions != UNSET or spec.replication_factor != UNSET:
                text = "a manual assignment excludes a partition count and a replication factor"
                raise Refused(ErrorCode.INVALID_REQUEST, text)
            return assignment.checked_manual(spec.assignments, racks)
        partitions = self.partitions_default if spec.partitions == UNSET else spec.partitions
        factor = self.replication_factor_default if spec.replication_factor == UNSET else spec.replication_factor
        if partitions <= 0:
            raise Refused(
                ErrorCode.INVALID_PARTITIONS, f"the number of partitions must be larger than 0, not {partitions}"
            )
        if partitions > PARTITIONS_PER_REQUEST_MAX:
            text = f"{partitions} partitions exceed the limit of {PARTITIONS_PER_REQUEST_MAX} in one request"
            raise Refused(ErrorCode.INVALID_PARTITIONS, text)
        start, shift = self.random_int31(), self.random_int31()
        return assignment.spread(racks, partitions, factor, start=start, shift=shift)

    def more_partitions(
        self, topic: TopicInfo, count: int, assignments: Sequence[Sequence[int]] | None, view: ClusterView
    ) -> tuple[PartitionInfo, ...]:
        """Return the partitions to append so that the topic has `count`; raise Refused if it may not."""
        present = len(topic.partitions)
        _check_count(topic.name, present, count)
        _check_added(count - present)
        racks = _racks(view)
        if assignments is None:
            replicas = topic.partitions[0].replicas
            # Continues the round that began with the first partition's first replica, as in Apache Kafka.
            start = sum(broker < replicas[0] for broker in racks) % max(len(racks), 1)
            added = assignment.spread(racks, count - present, len(replicas), start=start, shift=start, first=present)
            assert len(added) == count - present
            return _led_by_first(added)
        if len(assignments) != count - present:
            text = f"{count - present} partitions to add, but {len(assignments)} assignments"
            raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        return _led_by_first(assignment.checked_manual(list(enumerate(assignments)), racks))


def _racks(view: ClusterView) -> assignment.Racks:
    return {broker.id: broker.rack for broker in view.brokers.values()}


def _check_count(name: str, present: int, count: int) -> None:
    if count < present:
        text = f"The topic {name} currently has {present} partition(s); {count} would not be an increase."
        raise Refused(ErrorCode.INVALID_PARTITIONS, text)
    if count == present:
        raise Refused(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")


def _check_added(added: int) -> None:
    if added > PARTITIONS_PER_REQUEST_MAX:
        text = f"at most {PARTITIONS_PER_REQUEST_MAX} partitions can be added by one request"
        raise Refused(ErrorCode.POLICY_VIOLATION, text)


def _led_by_first(replicas: Iterable[tuple[BrokerId, ...]]) -> tuple[PartitionInfo, ...]:
    """Return new partitions, each led by its first replica; equal ones share one value."""
    known: dict[tuple[BrokerId, ...], PartitionInfo] = {}
    partitions = []
    for brokers in replicas:
        info = known.get(brokers)
        if info is None:
            info = PartitionInfo(leader=brokers[0], leader_epoch=FIRST_EPOCH, replicas=brokers, isr=brokers)
            known[brokers] = info
        partitions.append(info)
    return tuple(partitions)
