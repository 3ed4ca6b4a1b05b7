"""Verbs for members of groups of the consumer protocol, and for classic members in the same groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from odradek.base.uuids import Uuid
from odradek.core.groups.consumer import ConsumerGroup
from odradek.record.internal.consumer_protocol import ConsumerProtocolAssignment, TopicPartition, encode_assignment
from odradek.wire.messages import consumer_group_describe as describing
from odradek.wire.messages import consumer_group_heartbeat as beating
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from odradek.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from scenario import group_verbs
from scenario.group_verbs import ADMIN
from scenario.world import World, clients, error, milliseconds, options

FENCED = 25, 110, 82  # Unknown member id, fenced member epoch, fenced instance id: the client begins anew.
LEAVES, LEAVES_FOR_A_WHILE = -1, -2
BEAT_MS = 5000


@dataclass
class Consumer:
    """One member of one group; its id is its name."""

    name: str
    group: str
    epoch: int = 0
    assigned: list[str] = field(default_factory=list)  # What it shall own.
    how: dict[str, str] = field(default_factory=dict)


def consumer(world: World, group: str, name: str) -> Consumer:
    found = world.memory.setdefault(("consumer", group, name), Consumer(name, group))
    assert isinstance(found, Consumer)
    return found


def _some(world: World, arguments: list[str]) -> tuple[list[Consumer], dict[str, str]]:
    (group, *selectors), how = options(arguments)
    return [consumer(world, group, name) for some in selectors for name in clients(some)], how


# Heartbeats.


def enter(world: World, arguments: list[str]) -> None:
    """enter g a b [topics=t,u] [regex=t.*] [instance=] [rebalance=60s] [assignor=]: joins, with nothing in hand."""
    members, how = _some(world, arguments)
    for one in members:
        one.how, one.epoch, one.assigned = how, 0, []
        _beat(world, one, how, [])


def poll(world: World, arguments: list[str]) -> None:
    """poll g a b [owns=t-0,t-1] [topics=] [regex=] [epoch=]: a heartbeat that says only what is given."""
    members, how = _some(world, arguments)
    for one in members:
        one.epoch = int(how.get("epoch", one.epoch))
        one.how.update({name: how[name] for name in ("topics", "regex") if name in how})
        owned = _list(how["owns"]) if "owns" in how else None
        _beat(world, one, how, owned)


def settle(world: World, arguments: list[str]) -> None:
    """settle g a b: they report that they own exactly their assignment."""
    members, _ = _some(world, arguments)
    for one in members:
        _beat(world, one, {}, one.assigned)


def reconcile(world: World, arguments: list[str]) -> None:
    """reconcile g a b 30s: heartbeats as clients send them, for so long; members follow new assignments."""
    *selectors, duration = arguments
    members, _ = _some(world, selectors)
    ends = world.harness.now.steady + milliseconds(duration)
    while world.harness.now.steady < ends:
        for one in members:
            _beat(world, one, {}, one.assigned, only_news=True)
        world.pass_time(min(BEAT_MS, ends - world.harness.now.steady))


def quit_(world: World, arguments: list[str]) -> None:
    """quit g a [for=while]: leaves; a static member may come back."""
    members, how = _some(world, arguments)
    for one in members:
        epoch = LEAVES_FOR_A_WHILE if "for" in how else LEAVES
        request = ConsumerGroupHeartbeatRequest(
            group_id=one.group, member_id=one.name, member_epoch=epoch, instance_id=one.how.get("instance")
        )
        world.send(one.name, request, 1, ConsumerGroupHeartbeatResponse, _left)


def _left(answer: ConsumerGroupHeartbeatResponse) -> str:
    return error(answer.error_code) if answer.error_code else "left"


def _beat(
    world: World, one: Consumer, fields: dict[str, str], owned: list[str] | None, *, only_news: bool = False
) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=one.group,
        member_id=one.name,
        member_epoch=one.epoch,
        instance_id=one.how.get("instance"),
        rebalance_timeout_ms=-1 if one.epoch else milliseconds(one.how.get("rebalance", "60s")),
        subscribed_topic_names=_list(fields["topics"]) if "topics" in fields else None,
        subscribed_topic_regex=fields.get("regex"),
        server_assignor=fields.get("assignor"),
        topic_partitions=None if owned is None else _by_id(world, owned),
    )
    before = one.epoch

    def outcome_of(answer: ConsumerGroupHeartbeatResponse) -> str | None:
        if answer.error_code:
            if answer.error_code in FENCED:
                one.epoch = 0
            return error(answer.error_code)
        one.epoch = answer.member_epoch
        if answer.assignment is None:
            return None if only_news and before == one.epoch else f"epoch {one.epoch}"
        had, one.assigned = one.assigned, _named(world, answer.assignment.topic_partitions)
        if only_news and had == one.assigned and before == one.epoch:
            return None
        return f"epoch {one.epoch}, {_shown(one.assigned)}"

    world.send(one.name, request, 1, ConsumerGroupHeartbeatResponse, outcome_of)


def _list(text: str) -> list[str]:
    return [one for one in text.split(",") if one]


def _by_id(world: World, owned: list[str]) -> list[beating.TopicPartitions]:
    partitions: dict[str, list[int]] = {}
    for text in owned:
        topic, _, index = text.rpartition("-")
        partitions.setdefault(topic, []).append(int(index))
    topics = world.harness.broker.view.topics
    return [
        beating.TopicPartitions(topic_id=topics[name].id, partitions=indexes)  # type: ignore[index]
        for name, indexes in partitions.items()
        if name in topics
    ]


def _named(world: World, listed: Iterable[beating.TopicPartitions]) -> list[str]:
    names = world.harness.broker.view.names
    return sorted(f"{names.get(Uuid(one.topic_id), '?')}-{index}" for one in listed for index in one.partitions)


def _shown(partitions: list[str]) -> str:
    return f"has {','.join(partitions)}" if partitions else "has nothing"


# Looking.


def members(world: World, arguments: list[str]) -> None:
    """members g: the group's state and epochs, and each member's epoch, partitions and, if they differ, its target."""

    def outcome_of(answer: ConsumerGroupDescribeResponse) -> str | None:
        (group,) = answer.groups
        if group.error_code:
            return error(group.error_code)
        world.report(ADMIN, f"{group.group_state}, epoch {group.group_epoch}, assigned {group.assignment_epoch}")
        for one in group.members:
            world.report(_client_name(world, group.group_id, one.member_id), _member(one))
        return None

    request = ConsumerGroupDescribeRequest(group_ids=arguments, include_authorized_operations=False)
    world.send(ADMIN, request, 1, ConsumerGroupDescribeResponse, outcome_of)


def _client_name(world: World, group: str, member_id: str) -> str:
    for one in world.memory.values():
        if isinstance(one, Consumer) and one.group == group and one.name == member_id:
            return one.name
    return group_verbs.named(world, member_id)


def _member(member: describing.Member) -> str:
    has, target = (
        sorted(f"{one.topic_name}-{index}" for one in part.topic_partitions for index in one.partitions)
        for part in (member.assignment, member.target_assignment)
    )
    kind = "classic, " if member.member_type == 0 else ""
    shall = "" if has == target else f", shall have {','.join(target) or 'nothing'}"
    return f"{kind}epoch {member.member_epoch}, {_shown(has)}{shall}"


def states(world: World, arguments: list[str]) -> None:
    """states g: how far each member is."""
    (group_id,) = arguments
    group = world.harness.broker.groups.group(group_id)
    assert isinstance(group, ConsumerGroup)
    for member in group.kept.members.values():
        world.report(_client_name(world, group_id, member.id), member.current.state.name.lower())


# Offsets.


def commit(world: World, arguments: list[str]) -> None:
    """epoch-commit g a t-0=5 ... [epoch=] [version=9]: as a member, by its epoch or another."""
    (group, name), offsets = options(arguments)
    one = consumer(world, group, name)
    epoch, version = int(offsets.pop("epoch", one.epoch)), int(offsets.pop("version", "9"))
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for text, offset in offsets.items():
        topic, _, index = text.rpartition("-")
        part = OffsetCommitRequestPartition(
            partition_index=int(index), committed_offset=int(offset), committed_metadata=None
        )
        topics.setdefault(topic, []).append(part)
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=one.name,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=parts) for topic, parts in topics.items()],
    )

    def outcome_of(answer: OffsetCommitResponse) -> str:
        codes = {error(part.error_code) for topic in answer.topics for part in topic.partitions}
        return ", ".join(sorted(codes))

    world.send(name, request, version, OffsetCommitResponse, outcome_of)


def fetch(world: World, arguments: list[str]) -> None:
    """epoch-fetch g a t-0 [epoch=]: as a member, by its epoch or another."""
    (group, name, text), how = options(arguments)
    one = consumer(world, group, name)
    topic, _, index = text.rpartition("-")
    requested_group = OffsetFetchRequestGroup(
        group_id=group,
        member_id=one.name,
        member_epoch=int(how.get("epoch", one.epoch)),
        topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[int(index)])],
    )

    def outcome_of(answer: OffsetFetchResponse) -> str:
        (fetched,) = answer.groups
        if fetched.error_code:
            return error(fetched.error_code)
        return str(fetched.topics[0].partitions[0].committed_offset)

    world.send(name, OffsetFetchRequest(groups=[requested_group]), 9, OffsetFetchResponse, outcome_of)


# Topics.


def grow(world: World, arguments: list[str]) -> None:
    """grow-topic t 4"""
    name, count = arguments
    topic = CreatePartitionsTopic(name=name, count=int(count), assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=1000, validate_only=False)
    response = world.harness.request(request, 3, CreatePartitionsResponse)
    assert response.results[0].error_code == 0, error(response.results[0].error_code)


# Classic members.


def share(world: World, arguments: list[str]) -> None:
    """share g a b [a=t-0,t-1 b=t-2]: SyncGroup, with what consumers really write to each other."""
    (group, *selectors), shares = options(arguments)
    assignments = [
        SyncGroupRequestAssignment(
            member_id=group_verbs.client(world, group, name).member_id, assignment=_assignment(_list(partitions))
        )
        for name, partitions in shares.items()
    ]
    for name in [name for some in selectors for name in clients(some)]:
        one = group_verbs.client(world, group, name)
        request = SyncGroupRequest(
            group_id=group,
            generation_id=one.generation,
            member_id=one.member_id,
            group_instance_id=one.instance,
            protocol_type="consumer",
            protocol_name=one.protocol,
            assignments=assignments,
        )
        world.send(name, request, 5, SyncGroupResponse, _synced)


def _assignment(partitions: list[str]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for text in partitions:
        topic, _, index = text.rpartition("-")
        by_topic.setdefault(topic, []).append(int(index))
    listed = [TopicPartition(topic=topic, partitions=indexes) for topic, indexes in by_topic.items()]
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=listed), 1)


def _synced(answer: SyncGroupResponse) -> str:
    if answer.error_code:
        return error(answer.error_code)
    return _shown(_list(group_verbs.share_text(bytes(answer.assignment))))


VERBS = {
    "enter": enter,
    "poll": poll,
    "settle": settle,
    "reconcile": reconcile,
    "quit": quit_,
    "members": members,
    "states": states,
    "grow-topic": grow,
    "epoch-commit": commit,
    "epoch-fetch": fetch,
    "share": share,
}
