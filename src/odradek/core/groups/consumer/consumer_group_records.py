"""The records of a consumer group: one function for each kind, and all tombstones in Kafka's order."""

from __future__ import annotations

from collections.abc import Iterator

from odradek.core.coordinators.state_log import StateRecord
from odradek.core.groups.assignors.spec import Assignment
from odradek.core.groups.consumer.consumer_group_state import GroupState, TargetAssignmentMetadata
from odradek.core.groups.consumer.consumer_member import ConsumerMemberMetadata, CurrentAssignment
from odradek.record.internal.consumer_group_metadata import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
)

# Kafka uses it to detect topics created after a regex was resolved; this broker checks all topics after a start.
NO_VERSION = 0


def member_metadata(group_id: str, member_id: str, value: ConsumerMemberMetadata | None) -> StateRecord:
    key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
    return StateRecord(key, None if value is None else value.value())


def current(group_id: str, member_id: str, value: CurrentAssignment | None) -> StateRecord:
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return StateRecord(key, None if value is None else value.value())


def target(group_id: str, member_id: str, value: Assignment | None) -> StateRecord:
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    if value is None:
        return StateRecord(key, None)
    listed = [TopicPartition(topic_id=topic, partitions=sorted(value[topic])) for topic in sorted(value)]
    return StateRecord(key, ConsumerGroupTargetAssignmentMemberValue(topic_partitions=listed))


def epoch(group_id: str, value: int, metadata_hash: int) -> StateRecord:
    key = ConsumerGroupMetadataKey(group_id=group_id)
    return StateRecord(key, ConsumerGroupMetadataValue(epoch=value, metadata_hash=metadata_hash))


def assigned(group_id: str, value: TargetAssignmentMetadata) -> StateRecord:
    key = ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    return StateRecord(
        key, ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=value.epoch, assignment_timestamp=value.at)
    )


def regex(group_id: str, pattern: str, topics: frozenset[str] | None, at: int) -> StateRecord:
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern)
    if topics is None:
        return StateRecord(key, None)
    value = ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=NO_VERSION, timestamp=at)
    return StateRecord(key, value)


def no_partition_metadata(group_id: str) -> StateRecord:
    return StateRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def no_member(group_id: str, member_id: str) -> list[StateRecord]:
    return [
        current(group_id, member_id, None),
        target(group_id, member_id, None),
        member_metadata(group_id, member_id, None),
    ]


def tombstones(state: GroupState) -> Iterator[StateRecord]:
    """Yield the tombstones of the whole group, members first."""
    for member_id in state.members:
        yield current(state.id, member_id, None)
    for member_id in {**state.members, **state.targets}:
        yield target(state.id, member_id, None)
    yield StateRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=state.id), None)
    for member_id in state.members:
        yield member_metadata(state.id, member_id, None)
    for pattern in state.regexes:
        yield regex(state.id, pattern, None, 0)
    yield no_partition_metadata(state.id)
    yield StateRecord(ConsumerGroupMetadataKey(group_id=state.id), None)
