"""Requests about groups: parts of the scenarios of groups, and a plain one for every API."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from differential.steps import id_of
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.wire.messages import offset_commit, offset_fetch
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.offset_commit import OffsetCommitRequest
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.wire.schema.api_keys import ApiKey

BASE = "base"
LONG_MS = 30_000  # A session longer than any scenario.
UNKNOWN_MEMBER = "nobody"
RANGE: Sequence[tuple[str, bytes]] = (("range", b"m"),)
IDS_SINCE = 10  # Versions of OffsetCommit and OffsetFetch.
Identity = tuple[str, str | None]
Commit = tuple[str, int, int, str | None]  # Topic, partition, offset, metadata.
RequestedPartitions = Sequence[tuple[str, list[int]]] | None


def find(version: int, *keys: str, kind: int = 0) -> FindCoordinatorRequest:
    if version < 4:
        return FindCoordinatorRequest(key=keys[0], key_type=kind)
    return FindCoordinatorRequest(coordinator_keys=list(keys), key_type=kind)


def join(
    version: int,
    group: str,
    member_id: str = "",
    *,
    instance: str | None = None,
    protocols: Sequence[tuple[str, bytes]] = RANGE,
    kind: str = "consumer",
    session_ms: int = LONG_MS,
    rebalance_ms: int = LONG_MS,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms if version >= 1 else -1,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=kind,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        reason="because" if version >= 8 else None,
    )


def sync(
    version: int,
    group: str,
    member_id: str,
    generation: int,
    *assigned: tuple[str, bytes],
    instance: str | None = None,
    kind: str | None = "consumer",
    protocol: str | None = "range",
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=kind if version >= 5 else None,
        protocol_name=protocol if version >= 5 else None,
        assignments=[SyncGroupRequestAssignment(member_id=each, assignment=share) for each, share in assigned],
    )


def heartbeat(group: str, member_id: str, generation: int, instance: str | None = None) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance)


def leave(version: int, group: str, *members: Identity) -> LeaveGroupRequest:
    """Return a leave request; before version 3, only of the first member."""
    if version < 3:
        return LeaveGroupRequest(group_id=group, member_id=members[0][0])
    reason = "because" if version >= 5 else None
    return LeaveGroupRequest(
        group_id=group,
        members=[
            MemberIdentity(member_id=each, group_instance_id=instance, reason=reason) for each, instance in members
        ],
    )


def describe(version: int, *groups: str, operations: bool = False) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=list(groups), include_authorized_operations=operations and version >= 3)


def listed(states: Sequence[str] = (), types: Sequence[str] = ()) -> ListGroupsRequest:
    return ListGroupsRequest(states_filter=list(states), types_filter=list(types))


def delete_groups(*groups: str) -> DeleteGroupsRequest:
    return DeleteGroupsRequest(groups_names=list(groups))


def commit(
    version: int,
    group: str,
    *commits: Commit,
    member_id: str = "",
    generation: int = -1,
    instance: str | None = None,
    leader_epoch: int = -1,
) -> OffsetCommitRequest:
    topics: dict[str, list[offset_commit.OffsetCommitRequestPartition]] = {}
    for topic, partition, offset, metadata in commits:
        topics.setdefault(topic, []).append(
            offset_commit.OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                committed_metadata=metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        topics=[
            offset_commit.OffsetCommitRequestTopic(**_named(topic, version), partitions=parts)  # type: ignore[arg-type]
            for topic, parts in topics.items()
        ],
    )


def fetch_offsets(
    version: int,
    *groups: tuple[str, RequestedPartitions],
    stable: bool = False,
    member_id: str | None = None,
    epoch: int = -1,
) -> OffsetFetchRequest:
    """Return a request for offsets; before version 8, only of the first group. Without topics, of all."""
    if version < 8:
        group, topics = groups[0]
        topics_requested = (
            None
            if topics is None
            else [offset_fetch.OffsetFetchRequestTopic(name=topic, partition_indexes=parts) for topic, parts in topics]
        )
        return OffsetFetchRequest(group_id=group, topics=topics_requested, require_stable=stable)
    return OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group, member_id=member_id, member_epoch=epoch, topics=_topics(version, topics)
            )
            for group, topics in groups
        ],
        require_stable=stable,
    )


def _topics(version: int, topics: RequestedPartitions) -> list[offset_fetch.OffsetFetchRequestTopics] | None:
    if topics is None:
        return None
    return [
        offset_fetch.OffsetFetchRequestTopics(**_named(topic, version), partition_indexes=parts)  # type: ignore[arg-type]
        for topic, parts in topics
    ]


def _named(topic: str, version: int) -> dict[str, str | Uuid]:
    if version < IDS_SINCE:
        return {"name": topic}
    return {"topic_id": ZERO_UUID if topic == "" else id_of(topic)}


def delete_offsets(group: str, *topics: tuple[str, list[int]]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in parts]
            )
            for topic, parts in topics
        ],
    )


def beat(
    group: str,
    member_id: str,
    epoch: int,
    *,
    instance: str | None = None,
    rack: str | None = None,
    rebalance_ms: int = -1,
    names: Sequence[str] | None = None,
    regex: str | None = None,
    assignor: str | None = None,
    owned: Sequence[tuple[str, list[int]]] | None = None,
) -> ConsumerGroupHeartbeatRequest:
    """Return a heartbeat without the None fields, as of a member without changes."""
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=epoch,
        instance_id=instance,
        rack_id=rack,
        rebalance_timeout_ms=rebalance_ms,
        subscribed_topic_names=None if names is None else list(names),
        subscribed_topic_regex=regex,
        server_assignor=assignor,
        topic_partitions=None
        if owned is None
        else [TopicPartitions(topic_id=id_of(topic), partitions=parts) for topic, parts in owned],
    )


def describe_consumers(*groups: str, operations: bool = False) -> ConsumerGroupDescribeRequest:
    return ConsumerGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=operations)


def _group(key: ApiKey, version: int) -> str:
    """Return an unused group name, since the request may create the group."""
    return f"{BASE}-{key}-{version}"


PLAIN_OF_GROUPS: dict[int, Callable[[int], object]] = {
    ApiKey.FIND_COORDINATOR: lambda version: find(version, BASE),
    ApiKey.JOIN_GROUP: lambda version: join(version, _group(ApiKey.JOIN_GROUP, version), UNKNOWN_MEMBER),
    ApiKey.SYNC_GROUP: lambda version: sync(version, BASE, UNKNOWN_MEMBER, 1, (UNKNOWN_MEMBER, b"a")),
    ApiKey.HEARTBEAT: lambda version: heartbeat(BASE, UNKNOWN_MEMBER, 1),
    ApiKey.LEAVE_GROUP: lambda version: leave(version, BASE, (UNKNOWN_MEMBER, None)),
    ApiKey.OFFSET_COMMIT: lambda version: commit(version, _group(ApiKey.OFFSET_COMMIT, version), (BASE, 0, 5, "m")),
    ApiKey.OFFSET_FETCH: lambda version: fetch_offsets(
        version, (_group(ApiKey.OFFSET_COMMIT, version), [(BASE, [0])]), stable=version >= 7
    ),
    ApiKey.OFFSET_DELETE: lambda version: delete_offsets(_group(ApiKey.OFFSET_COMMIT, 5), (BASE, [1])),
    ApiKey.DESCRIBE_GROUPS: lambda version: describe(version, BASE),
    ApiKey.LIST_GROUPS: lambda version: listed(["Dead"] if version >= 4 else []),
    ApiKey.DELETE_GROUPS: lambda version: delete_groups("never"),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: lambda version: beat(
        _group(ApiKey.CONSUMER_GROUP_HEARTBEAT, version),
        UNKNOWN_MEMBER,
        5,
        rebalance_ms=LONG_MS,
        names=[BASE],
        owned=[],
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: lambda version: describe_consumers("never"),
}
