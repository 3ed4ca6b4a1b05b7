"""Online migration of groups between the protocols (group.consumer.migration.policy).

    classic ──> consumer: a member of the consumer protocol joins.  All keep their partitions; the classic members
                continue with JoinGroup, SyncGroup and Heartbeat (classic_members.py)
    consumer ──> classic: the last member of the consumer protocol leaves.  All keep their partitions until they
                have rejoined

An empty group takes the protocol of the next member.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import TYPE_CHECKING

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicName
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.coordinators.durable import PendingWrite
from odradek.core.coordinators.state_log import StateRecord
from odradek.core.groups.assignors.spec import Assignment, Partitions
from odradek.core.groups.classic import ClassicGroup
from odradek.core.groups.classic.members import Member as ClassicGroupMember
from odradek.core.groups.classic.messages import JoinGroupResult, SyncGroupResult
from odradek.core.groups.consumer import consumer_group_records as records
from odradek.core.groups.consumer import subscribed_topics as topics
from odradek.core.groups.consumer.consumer_group import ConsumerGroup
from odradek.core.groups.consumer.consumer_group_state import TargetAssignmentMetadata
from odradek.core.groups.consumer.consumer_member import (
    ClassicMember,
    ConsumerMemberMetadata,
    CurrentAssignment,
    Member,
    MemberState,
    held_since,
)
from odradek.core.groups.consumer.draft import Draft
from odradek.core.groups.shard.group import CONSUMERS
from odradek.core.groups.shard.history import Rebalances
from odradek.core.kernel.cluster_view import ClusterView
from odradek.core.kernel.moment import Moment
from odradek.record.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from odradek.record.internal.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata

if TYPE_CHECKING:
    from odradek.core.groups.shard.group_shard import GroupShard

_LOG = logging.getLogger(__name__)

NEWEST_ASSIGNMENT = 3
_UPGRADES, _DOWNGRADES = ("upgrade", "bidirectional"), ("downgrade", "bidirectional")


def _policy(draft: Draft) -> str:
    return draft.configs.str("group.consumer.migration.policy").lower()


# From the classic to the consumer protocol.


def open_draft(shard: GroupShard, group_id: str, *, may_create: bool) -> tuple[Draft, ClassicGroup | None]:
    """Open a draft of a consumer group and return it with the classic group that it replaces, if any.

    Raises Refused(GROUP_ID_NOT_FOUND).
    """
    group = shard.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return Draft(shard, group_id, group), None
    if not may_create:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    draft = Draft(shard, group_id, None)
    if group is None:
        return draft, None
    assert isinstance(group, ClassicGroup), "a group with members is classic or consumer"
    draft.replaces(group.tombstones())
    if not group.is_empty:
        _check_upgrade(draft, group)
        _convert(draft, group)
    return draft, group


def commit(draft: Draft, upgraded: ClassicGroup | None, now: Moment) -> tuple[ConsumerGroup, PendingWrite | None]:
    """Write the draft, or raise Refused and leave the group unchanged.

    On an upgrade, classic members have to resend their waiting requests in either case.
    """
    if upgraded is None:
        return draft.commit(now)
    for member in upgraded.members:
        upgraded.members.answer_join(member, JoinGroupResult(ErrorCode.REBALANCE_IN_PROGRESS, member.id))
        upgraded.members.answer_sync(member, SyncGroupResult(ErrorCode.REBALANCE_IN_PROGRESS))
    assert not upgraded.members.waiting, "every waiting request is answered before its group is gone"
    group, written = draft.commit(now, upgraded.rebalances)
    group.on_loaded(now)
    assert not group.is_empty and draft.shard.groups[group.id] is group
    _LOG.info("converted classic group %r to a consumer group", group.id)
    return group, written


def _check_upgrade(draft: Draft, group: ClassicGroup) -> None:
    reason = None
    if _policy(draft) not in _UPGRADES:
        reason = "online upgrade is disabled"
    elif group.protocol_type != CONSUMERS:
        reason = f"its protocol type is {group.protocol_type!r}"
    elif len(group.members) > draft.configs.int("group.consumer.max.size"):
        reason = "it has more members than group.consumer.max.size allows"
    if reason is not None:
        _cannot_upgrade(group, reason)


def _cannot_upgrade(group: ClassicGroup, reason: str) -> None:
    text = f"Cannot upgrade classic group {group.id} to a consumer group: {reason}."
    _LOG.info(text)
    raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, text)


def _convert(draft: Draft, group: ClassicGroup) -> None:
    """Convert a classic group: its generation becomes an epoch, its leader's assignment the target."""
    taken: set[tuple[Uuid, int]] = set()
    for member in group.members:
        try:
            metadata, target = _metadata_of(group, member), _target(draft.view, member)
        except Refused as refused:
            _cannot_upgrade(group, f"the metadata of member {member.id} is invalid: {refused}")
        if target is None:
            _cannot_upgrade(group, "its members use a custom assignor, whose user data would be lost")
            continue
        target = _without_taken(target, taken)
        draft.put_metadata(member.id, metadata)
        draft.add(records.target(group.id, member.id, target))
        held = held_since(target, group.generation)
        draft.put_current(member.id, CurrentAssignment(group.generation, group.generation, MemberState.STABLE, held))
    metadata_hash = topics.metadata_hash(draft.state.topics(), draft.view)
    draft.add(
        records.epoch(group.id, group.generation, metadata_hash),
        records.assigned(group.id, TargetAssignmentMetadata(group.generation)),
    )


def _metadata_of(group: ClassicGroup, member: ClassicGroupMember) -> ConsumerMemberMetadata:
    metadata = member.metadata(group.protocol_name) or member.protocols[0][1]
    subscription = decode_subscription(metadata)
    return ConsumerMemberMetadata(
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMember(member.session_timeout_ms, member.protocols),
    )


def _target(view: ClusterView, member: ClassicGroupMember) -> Assignment | None:
    """Return a classic member's assignment as a target, or None if it contains user data."""
    if not member.assignment:
        return {}
    assignment = decode_assignment(member.assignment)
    return None if assignment.user_data else by_id(assignment.assigned_partitions, view)


def _without_taken(target: Assignment, taken: set[tuple[Uuid, int]]) -> Assignment:
    """Return the target without taken partitions; a leader may have assigned one twice."""
    mine = {}
    for topic, partitions in target.items():
        free = Partitions(partition for partition in partitions if (topic, partition) not in taken)
        taken.update((topic, partition) for partition in free)
        if free:
            mine[topic] = free
    return mine


def by_id(listed: list[TopicPartition], view: ClusterView) -> Assignment:
    """Translate partitions from topic names to topic ids; unknown topics are omitted."""
    found = ((view.topics.get(TopicName(listed_topic.topic)), listed_topic.partitions) for listed_topic in listed)
    return {
        topic.id: Partitions(partitions) for topic, partitions in found if topic is not None and topic.id != ZERO_UUID
    }


# From the consumer to the classic protocol.


def can_downgrade(draft: Draft, removed: Set[str] = frozenset()) -> bool:
    """Return whether members remain without the `removed` ones, and all use the classic protocol."""
    left = [member for member in draft.state.members.values() if member.id not in removed]
    if not left or not all(member.is_classic for member in left):
        return False
    return _policy(draft) in _DOWNGRADES and len(left) <= draft.configs.int("group.max.size")


def downgrade(draft: Draft, removed: Set[str], reason: str | None, now: Moment) -> PendingWrite:
    """Convert the group to a stable classic one with each member's target.

    With a reason, its members have to rejoin. Raises Refused and changes nothing.
    """
    shard, group = draft.shard, draft.group
    assert group is not None
    members = [member for member in draft.state.members.values() if member.id not in removed]
    assert members, "an empty group has no protocol to convert to"
    key, value = GroupMetadataKey(group=group.id), _classic_value(draft, members, now)
    history = Rebalances()
    history.extend(group.rebalances)
    written = shard.write([*draft.records, *records.tombstones(draft.state), StateRecord(key, value)], now)
    classic = shard.groups[group.id]
    assert isinstance(classic, ClassicGroup), "the record of a classic group replays to one"
    classic.rebalances.extend(history)
    _LOG.info("converted consumer group %r to a classic group", group.id)
    classic.on_loaded(now)
    if reason is not None:
        classic.rebalance(f"{reason}; no member uses the consumer protocol", now)
    return written


def _classic_value(draft: Draft, members: list[Member], now: Moment) -> GroupMetadataValue:
    protocol = _elected(members)
    return GroupMetadataValue(
        protocol_type=CONSUMERS,
        generation=draft.state.epoch,
        protocol=protocol,
        leader=members[0].id,
        current_state_timestamp=now.wall,
        members=[_classic_member(draft, member, protocol) for member in members],
    )


def _classic_member(draft: Draft, member: Member, protocol: str) -> MemberMetadata:
    assert member.metadata.classic is not None
    metadata = dict(member.metadata.classic.protocols)[protocol]
    return MemberMetadata(
        member_id=member.id,
        group_instance_id=member.metadata.instance_id,
        client_id=member.metadata.client_id,
        client_host=member.metadata.client_host,
        rebalance_timeout=member.metadata.rebalance_timeout_ms,
        session_timeout=member.metadata.classic.session_timeout_ms,
        subscription=metadata,
        assignment=assignment_bytes(draft.state.target_of(member.id), metadata, draft.view),
    )


def assignment_bytes(assignment: Mapping[Uuid, Iterable[int]], metadata: bytes, view: ClusterView) -> bytes:
    """Encode an assignment like a classic leader, in the version of the member's subscription."""
    version = int.from_bytes(metadata[:2], "big", signed=True) if len(metadata) >= 2 else 0
    named = sorted((view.names[topic], partitions) for topic, partitions in assignment.items() if topic in view.names)
    listed = [TopicPartition(topic=name, partitions=sorted(partitions)) for name, partitions in named]
    return encode_assignment(
        ConsumerProtocolAssignment(assigned_partitions=listed), min(max(version, 0), NEWEST_ASSIGNMENT)
    )


def _elected(members: list[Member]) -> str:
    """Return the protocol with the most votes; members vote only for protocols that all support."""
    protocols = [
        [name for name, _ in member.metadata.classic.protocols] for member in members if member.metadata.classic
    ]
    supporters = Counter(name for names in protocols for name in names)
    votes = Counter(next(name for name in names if supporters[name] == len(protocols)) for names in protocols)
    return max(votes, key=votes.__getitem__)
