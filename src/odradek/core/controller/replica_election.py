"""Requested elections, and automatic moves of leadership to preferred replicas.

ElectLeaders                              the answer has the result for each partition
/admin/preferred_replica_election         the result is only in the log
auto.leader.rebalance.enable              for brokers that lead too few of their preferred partitions
unclean.leader.election.enable, altered   for partitions without a leader
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, TopicName, TopicPartition
from odradek.core.controller.controller_context import ControllerContext
from odradek.core.controller.controller_steps import Steps
from odradek.core.controller.events import ElectionEnd, ElectLeaders
from odradek.core.controller.leaders import Election, Leaders
from odradek.core.controller.partition_leader_election import ElectionType
from odradek.core.kernel.cluster_view import LeaderAndIsr

UNKNOWN = ElectionEnd(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
BEING_DELETED = ElectionEnd(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")
NOT_NEEDED = ElectionEnd(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")

# The error, and the class in Apache Kafka named in its text.
_FAILURES = {
    ElectionType.PREFERRED: (
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        "PreferredReplicaPartitionLeaderElectionStrategy",
    ),
    ElectionType.UNCLEAN: (
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        "OfflinePartitionLeaderElectionStrategy(true)",
    ),
}


def failed(partition: TopicPartition, election_type: ElectionType) -> ElectionEnd:
    """Return the result of an election in which no replica could be elected."""
    error, strategy = _FAILURES[election_type]
    return ElectionEnd(error, f"Failed to elect leader for partition {partition} under strategy {strategy}")


def elect_leaders(event: ElectLeaders, context: ControllerContext, leaders: Leaders) -> Steps:
    """Elect leaders for the partitions that need it; the answer has the result for each."""
    ends: dict[TopicPartition, ElectionEnd] = {}
    electable: list[TopicPartition] = []
    for partition in event.partitions:
        if not context.has_partition(partition):
            ends[partition] = UNKNOWN
        elif partition.topic in context.deleting:
            ends[partition] = BEING_DELETED
        else:
            electable.append(partition)

    def election(partition: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr:
        if not _is_needed(event.election_type, partition, state, context):
            ends[partition] = NOT_NEEDED
            return state
        if event.election_type is ElectionType.PREFERRED:
            elected = leaders.for_preferred(partition, state)
        else:
            elected = leaders.for_offline(partition, state, may_be_unclean=True)
        if elected is None:
            ends[partition] = failed(partition, event.election_type)
            return state
        ends[partition] = ElectionEnd(ErrorCode.NONE, None, elected.leader, elected.leader_epoch)
        return elected

    yield from leaders.elect(electable, election)
    for partition in electable:  # Partitions without a state, because none of their replicas has been alive yet.
        ends.setdefault(partition, failed(partition, event.election_type))
    event.answer = {partition: ends[partition] for partition in event.partitions}


def _is_needed(
    election_type: ElectionType, partition: TopicPartition, state: LeaderAndIsr, context: ControllerContext
) -> bool:
    if election_type is ElectionType.PREFERRED:
        return state.leader != context.replicas(partition)[0]
    return state.leader not in context.online(partition)


def preferred(context: ControllerContext, leaders: Leaders) -> Election:
    """Return the election of preferred replicas; the current leader stays if they can't lead."""

    def election(partition: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr:
        if not _is_needed(ElectionType.PREFERRED, partition, state, context):
            return state
        return leaders.for_preferred(partition, state) or state

    return election


def imbalanced(context: ControllerContext, leaders: Leaders, percentage: int) -> list[TopicPartition]:
    """Return the partitions that their preferred replicas should and can lead.

    A broker's partitions are either all included, or none if others lead at most `percentage` of the partitions that
    it should lead. During a reassignment there are none.
    """
    if any(topic.adding or topic.removing for topic in context.topics.values()):
        return []
    counts: dict[BrokerId, int] = {}
    led_by_others: dict[BrokerId, list[TopicPartition]] = {}
    for partition in context.existing(context.all_partitions()):
        broker = context.replicas(partition)[0]
        counts[broker] = counts.get(broker, 0) + 1
        state = context.states.get(partition)
        if state is not None and state.leader != broker:
            led_by_others.setdefault(broker, []).append(partition)
    return [
        partition
        for broker, others in led_by_others.items()
        if len(others) * 100 > percentage * counts[broker]
        for partition in others
        if leaders.for_preferred(partition, context.states[partition]) is not None
    ]


def without_leader(context: ControllerContext, name: TopicName | None) -> Iterator[TopicPartition]:
    """Yield the partitions of one topic, or of all topics, that have no live leader."""
    for partition in context.all_partitions() if name is None else context.partitions_of(name):
        state = context.states.get(partition)
        if state is not None and state.leader not in context.online(partition):
            yield partition
