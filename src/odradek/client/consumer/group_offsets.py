"""Committed offsets of groups, read, written and deleted without being a member.

The broker accepts a commit from a non-member only if the group has no members; otherwise the error is
UNKNOWN_MEMBER_ID.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.coordinator_lookup import KeyType, call_coordinator, call_coordinators
from odradek.client.cluster.describe import check
from odradek.client.connection.broker_connection import Connection
from odradek.client.connection.client_errors import ClientError, response_error
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from odradek.wire.messages.txn_offset_commit import TxnOffsetCommitResponse

# Later versions use topic ids, but a group may have offsets of deleted topics, whose names are then unknown.
COMMIT_VERSION_MAX = FETCH_VERSION_MAX = 9
FETCH_GROUPS_VERSION, FETCH_STABLE_VERSION = 8, 7

GroupPartitions = Mapping[str, Sequence[TopicPartition] | None]


class Committed(NamedTuple):
    """A committed offset, which is the offset of the next record to read."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Membership(NamedTuple):
    """The member that commits an offset; the default is no member."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


NO_MEMBER = Membership()


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    topics: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition)
    return topics


# Reading.


def fetch_offsets(
    cluster: Cluster,
    group_partitions: GroupPartitions,
    *,
    require_stable: bool = False,
    failures: dict[str, ClientError] | None = None,
) -> dict[str, dict[TopicPartition, Committed]]:
    """Return the committed offsets of each group, for these partitions or (None) for all.

    Partitions without a committed offset are omitted. require_stable waits for transactions that commit offsets
    (KIP-447) if the broker supports it. `failures` collects the groups whose coordinator does not answer; without it
    the first error is raised.
    """
    outcomes = call_coordinators(
        cluster,
        KeyType.GROUP,
        group_partitions,
        lambda node, groups: fetch_from_coordinator(
            cluster.connection(node), {group: group_partitions[group] for group in groups}, require_stable
        ),
    )
    found = {}
    for group, outcome in outcomes.items():
        if not isinstance(outcome, ClientError):
            found[group] = outcome
        elif failures is None:
            raise outcome
        else:
            failures[group] = outcome
    return found


def fetch_from_coordinator(
    connection: Connection, group_partitions: GroupPartitions, require_stable: bool
) -> dict[str, dict[TopicPartition, Committed] | ClientError]:
    """Request the offsets once, from the coordinator of all of these groups."""
    version = min(connection.version(OffsetFetchRequest), FETCH_VERSION_MAX)
    is_stable = require_stable and version >= FETCH_STABLE_VERSION
    if version < FETCH_GROUPS_VERSION:
        return {
            group: _fetch_single_group(connection, version, group, partitions, is_stable)
            for group, partitions in group_partitions.items()
        }
    request_groups = [
        OffsetFetchRequestGroup(
            group_id=group,
            topics=None if partitions is None else _request_topics(partitions),
        )
        for group, partitions in group_partitions.items()
    ]
    request = OffsetFetchRequest(groups=request_groups, require_stable=is_stable)
    response = connection.call(request, OffsetFetchResponse, version=version)
    return {
        each.group_id: _committed(
            each.group_id, each.error_code, [(topic.name, part) for topic in each.topics for part in topic.partitions]
        )
        for each in response.groups
    }


def _request_topics(partitions: Sequence[TopicPartition]) -> list[OffsetFetchRequestTopics]:
    return [
        OffsetFetchRequestTopics(name=topic, partition_indexes=[each.partition for each in those])
        for topic, those in by_topic(partitions).items()
    ]


def _fetch_single_group(
    connection: Connection, version: int, group: str, partitions: Sequence[TopicPartition] | None, is_stable: bool
) -> dict[TopicPartition, Committed] | ClientError:
    topics = None
    if partitions is not None:
        topics = [
            OffsetFetchRequestTopic(name=topic, partition_indexes=[each.partition for each in those])
            for topic, those in by_topic(partitions).items()
        ]
    request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=is_stable)
    response = connection.call(request, OffsetFetchResponse, version=version)
    parts = [(topic.name, part) for topic in response.topics for part in topic.partitions]
    return _committed(group, response.error_code, parts)


def _committed(
    group: str, code: int, parts: Iterable[tuple[str, OffsetFetchResponsePartition | OffsetFetchResponsePartitions]]
) -> dict[TopicPartition, Committed] | ClientError:
    if code != ErrorCode.NONE:
        return response_error(code, f"group {group}")
    found = {}
    for topic, part in parts:
        partition = TopicPartition(TopicName(topic), part.partition_index)
        if part.error_code != ErrorCode.NONE:
            return response_error(part.error_code, f"offset of {partition} in group {group}")
        if part.committed_offset >= 0:
            found[partition] = Committed(part.committed_offset, part.committed_leader_epoch, part.metadata or "")
    return dict(sorted(found.items()))


# Writing.


def commit_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
    """Commit a group's offsets as a non-member; raise the first error."""
    if offsets:
        call_coordinator(cluster, KeyType.GROUP, group, lambda connection: commit(connection, group, offsets))


def commit(
    connection: Connection,
    group: str,
    offsets: Mapping[TopicPartition, Committed],
    membership: Membership = NO_MEMBER,
) -> None:
    """Commit once at the group's coordinator; raise the first error after committing the others."""
    version = min(connection.version(OffsetCommitRequest), COMMIT_VERSION_MAX)
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=membership.generation,
        member_id=membership.member_id,
        group_instance_id=membership.instance_id,
        topics=[
            OffsetCommitRequestTopic(name=topic, partitions=[_partition_request(each, offsets[each]) for each in those])
            for topic, those in by_topic(offsets).items()
        ],
    )
    check_committed(group, connection.call(request, OffsetCommitResponse, version=version))


def check_committed(group: str, response: OffsetCommitResponse | TxnOffsetCommitResponse) -> None:
    """Raise the first error of a commit's answer."""
    for topic in response.topics:
        for part in topic.partitions:
            check(part.error_code, f"commit of {topic.name}-{part.partition_index} in group {group}", None)


def _partition_request(partition: TopicPartition, committed: Committed) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=partition.partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        committed_metadata=committed.metadata,
    )


# Deleting.


def delete_offsets(
    cluster: Cluster, group: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, ClientError | None]:
    """Delete a group's offsets and return an error for each partition still subscribed to.

    Raise an error that concerns the whole group.
    """
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=each.partition) for each in those]
            )
            for topic, those in by_topic(partitions).items()
        ],
    )

    def send_offset_delete(connection: Connection) -> dict[TopicPartition, ClientError | None]:
        response = connection.call(request, OffsetDeleteResponse)
        if response.error_code != ErrorCode.NONE:
            raise response_error(response.error_code, f"group {group}")
        return {
            TopicPartition(TopicName(topic.name), part.partition_index): None
            if part.error_code == ErrorCode.NONE
            else response_error(part.error_code, f"offset of {topic.name}-{part.partition_index} in group {group}")
            for topic in response.topics
            for part in topic.partitions
        }

    return call_coordinator(cluster, KeyType.GROUP, group, send_offset_delete)
