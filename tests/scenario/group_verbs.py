"""Verbs for members of classic groups. Each client remembers its responses, and its options for joining."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from odradek.core.groups.classic import ClassicGroup
from odradek.core.groups.consumer import ConsumerGroup
from odradek.record.internal.consumer_protocol import (
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    encode_subscription,
)
from odradek.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from odradek.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from scenario.world import World, clients, error, milliseconds, names, options, partition_of

MEMBER_ID_REQUIRED = 79
UNKNOWN_MEMBER_ID = 25
ADMIN = "admin"
BEAT_MS = 3000
_UUID = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


@dataclass
class Client:
    """One consumer in one group."""

    name: str
    group: str
    member_id: str = ""
    generation: int = -1
    protocol: str = ""
    how: dict[str, str] = field(default_factory=dict)

    @property
    def instance(self) -> str | None:
        return self.how.get("instance")

    def version(self, latest: int) -> int:
        return min(int(self.how.get("version", latest)), latest)


def client(world: World, group: str, name: str) -> Client:
    found = world.memory.setdefault(("member", group, name), Client(name, group))
    assert isinstance(found, Client)
    return found


def named(world: World, member_id: str) -> str:
    """Return the name of the client with this id, or, for an unknown id, its beginning."""
    return str(world.memory.get(("id", member_id), _UUID.sub("", member_id)))


# Joining.


def knock(world: World, arguments: list[str]) -> None:
    """knock g a: joins, and does not come back with the id it is told."""
    for one in _with_options(world, arguments):
        _join(world, one, retries=False)


def join(world: World, arguments: list[str]) -> None:
    """join g m1..m3 [instance=] [version=] [session=10s] [rebalance=60s] [protocols=range,roundrobin] [topics=t]
    [owns=t-0,t-1] [type=consumer] [reason=]: as clients do, with the id it was told if it was.  Options are remembered.
    """
    for one in _with_options(world, arguments):
        _join(world, one, retries=True)


def _with_options(world: World, arguments: list[str]) -> list[Client]:
    (group, *selectors), how = options(arguments)
    found = [client(world, group, name) for some in selectors for name in clients(some)]
    for one in found:
        one.how.update(how)
    return found


def _join(world: World, one: Client, *, retries: bool) -> None:
    how = one.how
    request = JoinGroupRequest(
        group_id=one.group,
        session_timeout_ms=milliseconds(how.get("session", "10s")),
        rebalance_timeout_ms=milliseconds(how.get("rebalance", "60s")),
        member_id=one.member_id,
        group_instance_id=one.instance,
        protocol_type=how.get("type", "consumer"),
        protocols=[
            JoinGroupRequestProtocol(name=name, metadata=_subscription(how))
            for name in how.get("protocols", "range").split(",")
        ],
        reason=how.get("reason"),
    )

    def outcome_of(answer: JoinGroupResponse) -> str | None:
        if answer.member_id:
            world.memory["id", answer.member_id] = one.name
        if answer.error_code == MEMBER_ID_REQUIRED:
            one.member_id = answer.member_id
            if retries:
                _join(world, one, retries=False)
                return None
        if answer.error_code == UNKNOWN_MEMBER_ID:
            one.member_id = ""  # So that it begins anew.
        if answer.error_code:
            return error(answer.error_code)
        one.member_id, one.generation, one.protocol = answer.member_id, answer.generation_id, answer.protocol_name or ""
        return _joined(world, one, answer)

    world.send(one.name, request, one.version(9), JoinGroupResponse, outcome_of)


def _subscription(how: dict[str, str]) -> bytes:
    owned: dict[str, list[int]] = {}
    for text in filter(None, how.get("owns", "").split(",")):
        topic, partition = partition_of(text)
        owned.setdefault(topic, []).append(partition)
    subscription = ConsumerProtocolSubscription(
        topics=how.get("topics", "t").split(","),
        owned_partitions=[TopicPartition(topic=topic, partitions=parts) for topic, parts in owned.items()],
    )
    return encode_subscription(subscription, 1)


def _joined(world: World, one: Client, answer: JoinGroupResponse) -> str:
    by = f" by {one.protocol}" if "protocols" in one.how else ""
    if not answer.leader:
        rest = "nobody leads"
    elif answer.leader != one.member_id:
        rest = f"follows {named(world, answer.leader)}"
    else:
        rest = f"leads {names([named(world, member.member_id) for member in answer.members])}".rstrip()
    return f"generation {one.generation}{by}, {rest}" + (", assigns nothing" if answer.skip_assignment else "")


def forget(world: World, arguments: list[str]) -> None:
    """forget g a: the client was started anew, and knows nothing of its membership."""
    group, *selectors = arguments
    for name in selectors:
        one = client(world, group, name)
        one.member_id, one.generation = "", -1
        world.hang_up(name)


# In a generation.


def sync(world: World, arguments: list[str]) -> None:
    """sync g m1..m3 [m1=t-0 ...]: with assignments, if it leads."""
    (group, *selectors), assigned = options(arguments)
    overridden = {name: assigned.pop(name) for name in ("protocol",) if name in assigned}
    assignments = [
        SyncGroupRequestAssignment(member_id=client(world, group, name).member_id, assignment=share.encode())
        for some, share in assigned.items()
        for name in clients(some)
    ]
    for name in [name for some in selectors for name in clients(some)]:
        one = client(world, group, name)
        request = SyncGroupRequest(
            group_id=group,
            generation_id=one.generation,
            member_id=one.member_id,
            group_instance_id=one.instance,
            protocol_type=one.how.get("type", "consumer"),
            protocol_name=overridden.get("protocol", one.protocol),
            assignments=assignments,
        )
        world.send(name, request, one.version(5), SyncGroupResponse, _synced)


def _synced(answer: SyncGroupResponse) -> str:
    if answer.error_code:
        return error(answer.error_code)
    return f"assigned {share_text(bytes(answer.assignment)) or 'nothing'}"


def share_text(assignment: bytes) -> str:
    """Return an assignment as stories write it, or as consumers encode it."""
    if not assignment.startswith(b"\0"):
        return assignment.decode()
    listed = decode_assignment(assignment).assigned_partitions
    return ",".join(sorted(f"{one.topic}-{index}" for one in listed for index in one.partitions))


def heartbeat(world: World, arguments: list[str]) -> None:
    """heartbeat g m1..m3 [generation=]"""
    (group, *selectors), how = options(arguments)
    for name in [name for some in selectors for name in clients(some)]:
        one = client(world, group, name)
        _heartbeat(world, one, int(how.get("generation", one.generation)), lambda answer: error(answer.error_code))


def beat(world: World, arguments: list[str]) -> None:
    """beat g a b 60s: heartbeats for so long; they are told of when the answer is another one."""
    group, *selectors, duration = arguments
    ends = world.harness.now.steady + milliseconds(duration)
    last: dict[str, str] = {}

    def news(one: Client, answer: HeartbeatResponse) -> str | None:
        text = error(answer.error_code)
        before, last[one.name] = last.get(one.name, "ok"), text
        return None if before == text else text

    while world.harness.now.steady < ends:
        for name in [name for some in selectors for name in clients(some)]:
            one = client(world, group, name)
            _heartbeat(world, one, one.generation, partial(news, one))
        world.pass_time(min(BEAT_MS, ends - world.harness.now.steady))


def _heartbeat(
    world: World, one: Client, generation: int, outcome_of: Callable[[HeartbeatResponse], str | None]
) -> None:
    request = HeartbeatRequest(
        group_id=one.group, generation_id=generation, member_id=one.member_id, group_instance_id=one.instance
    )
    world.send(one.name, request, one.version(4), HeartbeatResponse, outcome_of)


def leave(world: World, arguments: list[str]) -> None:
    """leave g a b [reason=]: in one request; or  leave g instance=i: an administrator sends it away."""
    (group, *selectors), how = options(arguments)
    leavers = [client(world, group, name) for some in selectors for name in clients(some)]
    members = [MemberIdentity(member_id=one.member_id, group_instance_id=one.instance) for one in leavers]
    if "instance" in how:
        members.append(MemberIdentity(member_id="", group_instance_id=how["instance"]))
    for member in members:
        member.reason = how.get("reason")

    def outcome_of(answer: LeaveGroupResponse) -> str | None:
        if answer.error_code:
            return error(answer.error_code)
        admin = [Client(ADMIN, group)] if "instance" in how else []
        for one, left in zip(leavers + admin, answer.members, strict=True):
            world.report(one.name, error(left.error_code) if left.error_code else "left")
            one.member_id = ""
        return None

    world.send(ADMIN, LeaveGroupRequest(group_id=group, members=members), 5, LeaveGroupResponse, outcome_of)


# Looking.


def describe(world: World, arguments: list[str]) -> None:
    """describe g: its state, and what each member has."""

    def outcome_of(answer: DescribeGroupsResponse) -> str:
        (group,) = answer.groups
        by = f" by {group.protocol_data}" if group.protocol_data else ""
        has: dict[str, list[str]] = {}
        for one in group.members:
            has.setdefault(share_text(bytes(one.member_assignment)), []).append(named(world, one.member_id))
        return (
            group.group_state + by + "".join(f", {names(owners)}: {what or 'nothing'}" for what, owners in has.items())
        )

    world.send(ADMIN, DescribeGroupsRequest(groups=arguments), 5, DescribeGroupsResponse, outcome_of)


def why(world: World, arguments: list[str]) -> None:
    """why g: the reasons of its last rebalances, the oldest first."""
    (group_id,) = arguments
    group = world.harness.broker.groups.group(group_id)
    assert isinstance(group, ClassicGroup | ConsumerGroup)
    for rebalance in group.rebalances:
        reason = re.sub(r"'([^']*)'", lambda found: named(world, found[1]), rebalance.reason)
        world.report(group_id, f"{rebalance.generation} ended, {reason}")


VERBS = {
    "knock": knock,
    "join": join,
    "forget": forget,
    "sync": sync,
    "heartbeat": heartbeat,
    "beat": beat,
    "leave": leave,
    "describe": describe,
    "why": why,
}
