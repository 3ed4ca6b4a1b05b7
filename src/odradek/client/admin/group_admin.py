"""Listing, description and deletion of groups by their coordinators.

A group uses the classic protocol (JoinGroup: the members agree through the broker) or the consumer protocol (KIP-848:
the broker assigns). Each protocol has its own API; one description covers both here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicName, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.coordinator_lookup import KeyType, call_coordinators, call_every_broker
from odradek.client.cluster.describe import check
from odradek.client.cluster.topic_metadata import Broker
from odradek.client.connection.broker_connection import Connection
from odradek.client.connection.client_errors import ClientError, ErrorResponse, Unsupported, response_error
from odradek.record.internal.consumer_protocol import decode_assignment, decode_subscription
from odradek.wire.messages import consumer_group_describe as modern
from odradek.wire.messages import describe_groups as classic
from odradek.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from odradek.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

CLASSIC, CONSUMER = "classic", "consumer"
CONSUMER_PROTOCOL = "consumer"  # The protocol type of consumers; Kafka Connect, for example, uses a different one.
DEAD = "Dead"
INACTIVE = frozenset({"Empty", DEAD})

VERSION_WITH_STATES, VERSION_WITH_TYPES = 4, 5

# Error codes for groups that the consumer protocol's API does not know but the classic API may.
NOT_MODERN = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A listed group.

    `state` is "" if the broker does not return it (before Kafka 2.6); `protocol` is "" if the group has none.
    """

    group: str
    type: str
    protocol: str
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A group member; fields are None if the group's protocol does not have them or is not for consumers."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...] | None
    target: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    is_classic: bool = True


class Rebalance(NamedTuple):
    """A rebalance of a group: its time, the generation or epoch it ended, and its reason."""

    at_ms: int
    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """The current state of one group."""

    group: str
    type: str
    protocol: str
    state: str
    assignor: str
    members: tuple[MemberDescription, ...]
    coordinator: Broker
    epoch: int | None = None
    assignment_epoch: int | None = None
    rebalances: tuple[Rebalance, ...] = ()  # The last ones, newest at the end; Apache Kafka returns none.

    @property
    def is_active(self) -> bool:
        """Return whether the group has members, which prevents commits by non-members."""
        return bool(self.members) or self.state not in INACTIVE


def list_groups(
    cluster: Cluster,
    *,
    states: Iterable[str] = (),
    types: Iterable[str] = (),
    failures: dict[int, ClientError] | None = None,
) -> list[ListedGroup]:
    """List the groups of the cluster by name, optionally filtered by states and types in any case.

    `failures` collects the errors of unavailable brokers, whose groups are missing; without it their error is raised.
    """
    states_filter, types_filter = list(states), list(types)

    def send_list_groups(connection: Connection) -> list[ListedGroup]:
        version = connection.version(ListGroupsRequest)
        if states_filter and version < VERSION_WITH_STATES:
            raise Unsupported(f"{connection.where} does not report group states: it is older than Kafka 2.6")
        request = ListGroupsRequest(
            states_filter=states_filter, types_filter=types_filter if version >= VERSION_WITH_TYPES else []
        )
        response = connection.call(request, ListGroupsResponse, version=version)
        check(response.error_code, f"groups of {connection.where}", None)
        return [
            ListedGroup(each.group_id, each.group_type or CLASSIC, each.protocol_type, each.group_state, -1)
            for each in response.groups
        ]

    listed = call_every_broker(cluster, send_list_groups, failures)
    lower_types = {each.lower() for each in types_filter}
    # A group whose coordinator moves during the listing may be returned by both brokers.
    groups = {each.group: replace(each, coordinator=node) for node, those in listed.items() for each in those}
    chosen = (each for each in groups.values() if not lower_types or each.type.lower() in lower_types)
    return sorted(chosen, key=lambda each: each.group)


def describe_groups(cluster: Cluster, groups: Iterable[str]) -> dict[str, GroupDescription | ClientError]:
    """Return the description or error of each group: GROUP_ID_NOT_FOUND, GROUP_AUTHORIZATION_FAILED, ..."""

    def send_describe_groups(node: int, names: list[str]) -> dict[str, GroupDescription | ClientError]:
        connection, broker = cluster.connection(node), cluster.metadata.brokers[node]
        found = _describe_modern(connection, broker, names)
        rest = [name for name in names if name not in found or _is_not_modern(found[name])]
        return found | _describe_classic(connection, broker, rest)

    return call_coordinators(cluster, KeyType.GROUP, groups, send_describe_groups)


def _is_not_modern(outcome: GroupDescription | ClientError) -> bool:
    return isinstance(outcome, ErrorResponse) and outcome.code in NOT_MODERN


def _describe_modern(
    connection: Connection, broker: Broker, names: list[str]
) -> dict[str, GroupDescription | ClientError]:
    request = modern.ConsumerGroupDescribeRequest(
        group_ids=names, include_authorized_operations=False, include_rebalances=True
    )
    try:
        response = connection.call(request, modern.ConsumerGroupDescribeResponse)
    except Unsupported:
        return {}
    return {
        each.group_id: _modern_group(each, broker)
        if each.error_code == ErrorCode.NONE
        else response_error(each.error_code, f"group {each.group_id}", each.error_message)
        for each in response.groups
    }


def _modern_group(group: modern.DescribedGroup, broker: Broker) -> GroupDescription:
    return GroupDescription(
        group.group_id,
        CONSUMER,
        CONSUMER_PROTOCOL,
        group.group_state,
        group.assignor_name,
        tuple(sorted(map(_modern_member, group.members), key=lambda member: member.member_id)),
        broker,
        group.group_epoch,
        group.assignment_epoch,
        _rebalances(group.rebalances),
    )


def _modern_member(member: modern.Member) -> MemberDescription:
    return MemberDescription(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host.removeprefix("/"),
        _partitions((each.topic_name, each.partitions) for each in member.assignment.topic_partitions),
        _partitions((each.topic_name, each.partitions) for each in member.target_assignment.topic_partitions),
        member.member_epoch,
        tuple(sorted(member.subscribed_topic_names)),
        member.subscribed_topic_regex or None,
        member.member_type == 0,
    )


def _describe_classic(
    connection: Connection, broker: Broker, names: list[str]
) -> dict[str, GroupDescription | ClientError]:
    if not names:
        return {}
    request = classic.DescribeGroupsRequest(groups=names, include_rebalances=True)
    response = connection.call(request, classic.DescribeGroupsResponse)
    return {each.group_id: _classic_outcome(each, broker) for each in response.groups}


def _classic_outcome(group: classic.DescribedGroup, broker: Broker) -> GroupDescription | ClientError:
    code = group.error_code
    if code == ErrorCode.NONE and group.group_state == DEAD:
        code = ErrorCode.GROUP_ID_NOT_FOUND  # The error code since version 6.
    if code != ErrorCode.NONE:
        return response_error(code, f"group {group.group_id}", group.error_message)
    is_consumer_protocol = group.protocol_type in ("", CONSUMER_PROTOCOL)
    return GroupDescription(
        group.group_id,
        CLASSIC,
        group.protocol_type,
        group.group_state,
        group.protocol_data,
        tuple(
            sorted(
                (_classic_member(each, is_consumer_protocol) for each in group.members),
                key=lambda member: member.member_id,
            )
        ),
        broker,
        rebalances=_rebalances(group.rebalances),
    )


def _rebalances(rebalances: Iterable[classic.DescribedRebalance]) -> tuple[Rebalance, ...]:
    return tuple(Rebalance(each.at_ms, each.generation, each.reason) for each in rebalances)


def _classic_member(member: classic.DescribedGroupMember, is_consumer_protocol: bool) -> MemberDescription:
    return MemberDescription(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host.removeprefix("/"),
        _parse_assignment(bytes(member.member_assignment)) if is_consumer_protocol else None,
        topics=_parse_subscription(bytes(member.member_metadata)) if is_consumer_protocol else None,
    )


def _parse_assignment(data: bytes) -> tuple[TopicPartition, ...] | None:
    if not data:
        return ()  # During a rebalance.
    try:
        decoded = decode_assignment(data)
    except Refused:
        return None
    return _partitions((each.topic, each.partitions) for each in decoded.assigned_partitions)


def _parse_subscription(data: bytes) -> tuple[str, ...] | None:
    try:
        return tuple(sorted(decode_subscription(data).topics))
    except Refused:
        return None


def _partitions(topics: Iterable[tuple[str, Sequence[int]]]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(TopicName(topic), index) for topic, indexes in topics for index in indexes))


def delete_groups(cluster: Cluster, groups: Iterable[str]) -> dict[str, ClientError | None]:
    """Delete groups and return the error of each, or None if it was deleted.

    Errors are NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, ...
    """

    def send_delete_groups(node: int, names: list[str]) -> dict[str, ClientError | None]:
        response = cluster.connection(node).call(DeleteGroupsRequest(groups_names=names), DeleteGroupsResponse)
        return {
            each.group_id: None
            if each.error_code == ErrorCode.NONE
            else response_error(each.error_code, f"group {each.group_id}", each.error_message)
            for each in response.results
        }

    return call_coordinators(cluster, KeyType.GROUP, groups, send_delete_groups)
