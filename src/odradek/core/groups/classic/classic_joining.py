"""JoinGroup of a classic group: a member joins or rejoins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.base.errors import ErrorCode, Refused
from odradek.base.uuids import to_hex
from odradek.core.groups.classic.classic_group import ClassicGroup
from odradek.core.groups.classic.classic_group_records import value_of
from odradek.core.groups.classic.classic_group_states import State
from odradek.core.groups.classic.members import Member, elected
from odradek.core.groups.classic.messages import JoinGroup, JoinGroupResult
from odradek.core.groups.classic.rebalancing import NEW_MEMBER_SESSION_MS
from odradek.core.groups.shard.group import CONSUMERS
from odradek.core.groups.shard.history import because
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.promise import Promise
from odradek.record.internal.consumer_protocol import decode_topics

if TYPE_CHECKING:
    from odradek.core.groups.shard.group_shard import GroupShard

TOPICS_AT_BYTES = 6  # The position of topics in a subscription, after its version and the number of topics.
MEMBER_ID_PREFIX_CHARACTERS_MAX = 8000  # In UTF-8, the prefix and the rest of the id fit into a protocol string.


def join(shard: GroupShard, group_id: str, request: JoinGroup, now: Moment) -> Promise[JoinGroupResult]:
    """Join a group, and create it if it does not exist; an empty consumer group becomes classic.

    Raises Refused: UNKNOWN_MEMBER_ID, INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED, FENCED_INSTANCE_ID.
    """
    present = shard.groups.get(group_id)
    if request.member_id and not isinstance(present, ClassicGroup):
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group_id!r} does not exist")
    group = present if isinstance(present, ClassicGroup) else ClassicGroup(group_id, shard)
    assert present is group or present is None or present.is_empty, "only an empty group of another type is replaced"
    _check_room(group, request, now)
    _check_protocols(group, request)
    if not shard.runtime.protocol.group_version:
        _check_subscriptions(request)
    if present is not group:
        if present is not None:
            shard.write(present.tombstones(), now)
        shard.groups[group_id] = group
    return _join_known(group, request, now) if request.member_id else _join_new(group, request, now)


def _check_protocols(group: ClassicGroup, request: JoinGroup) -> None:
    if group.is_empty:
        is_consistent = bool(request.protocol_type and request.protocols)
    else:
        is_consistent = request.protocol_type == group.protocol_type and group.members.supports_protocols(
            request.protocols
        )
    if not is_consistent:
        raise Refused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            "the protocol type differs from the group's, or no protocol is supported by all members",
        )


def _check_subscriptions(request: JoinGroup) -> None:
    """Raise Refused(INCONSISTENT_GROUP_PROTOCOL) if a consumer's subscription can't be read.

    A broker of Kafka 2.4 to 3.9 that becomes the coordinator parses the subscription, and resigns the whole partition
    if that fails. It ignores a subscription that ends before the topics. If parsing fails while a member joins, Kafka
    never answers.
    """
    if request.protocol_type != CONSUMERS:
        return
    for name, metadata in request.protocols:
        if len(metadata) >= TOPICS_AT_BYTES:
            try:
                decode_topics(metadata)
            except Refused as refused:
                text = f"invalid subscription for protocol {name!r}: {refused}"
                raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text) from refused


def _check_room(group: ClassicGroup, request: JoinGroup, now: Moment) -> None:
    """Raise Refused(GROUP_MAX_SIZE_REACHED) if the group has no room for the member.

    During a rebalance only members that have rejoined count. So after a restart with a smaller limit, the first
    members to rejoin stay.
    """
    limit, members = group.shard.runtime.configs.int("group.max.size"), group.members
    member = members.get(request.member_id)
    if group.phase is State.PREPARING:
        has_room = (member is not None and member.joining is not None) or members.waiting < limit
    else:
        has_room = group.is_empty or member is not None or len(members) < limit
    if has_room:
        return
    if member is not None:
        group.remove(member, f"member {member.id!r} exceeds group.max.size", now)
    elif request.member_id in members.pending:
        group.forget_pending(request.member_id, now)
    raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, f"{limit} members")


def _join_new(group: ClassicGroup, request: JoinGroup, now: Moment) -> Promise[JoinGroupResult]:
    prefix = request.client_id if request.instance_id is None else request.instance_id
    runtime = group.shard.runtime
    member_id = f"{prefix[:MEMBER_ID_PREFIX_CHARACTERS_MAX]}-{to_hex(runtime.entropy.new_uuid())}"
    present = None if request.instance_id is None else group.members.static(request.instance_id)
    if present is not None:
        return _replace(group, present, member_id, request, now)
    if request.needs_member_id and request.instance_id is None:
        group.await_member(member_id, request.session_timeout_ms, now)
        return _answered(group, JoinGroupResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    return _add(group, member_id, request, now)


def _add(group: ClassicGroup, member_id: str, request: JoinGroup, now: Moment) -> Promise[JoinGroupResult]:
    member = Member(member_id, request, group.session(member_id))
    group.add(member, request.protocol_type, now)
    promise = group.members.await_join(member)
    group.rebalance(because(f"member {member_id!r} joined", request.reason), now)
    assert group.phase is State.PREPARING or group.phase is State.COMPLETING
    return promise


def _join_known(group: ClassicGroup, request: JoinGroup, now: Moment) -> Promise[JoinGroupResult]:
    if request.member_id in group.members.pending and request.instance_id is None:
        return _add(group, request.member_id, request, now)
    member = group.members.known(request.member_id, request.instance_id)
    has_changed = member.protocols != request.protocols
    is_leader = group.members.leader == member.id
    if group.phase is State.PREPARING or has_changed or (is_leader and group.phase is State.STABLE):
        # A leader that rejoins wants to assign again, because it may know of new partitions.
        group.members.change_protocols(member, request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        promise = group.members.await_join(member)
        what = "updated its metadata" if has_changed else "rejoined as leader" if is_leader else "rejoined"
        group.rebalance(because(f"member {member.id!r} {what}", request.reason), now)
        return promise
    member.renew_session(now)
    return _answered(group, group.joined(member.id, group.joined_members() if is_leader else ()))


def _replace(
    group: ClassicGroup, old: Member, member_id: str, request: JoinGroup, now: Moment
) -> Promise[JoinGroupResult]:
    """Replace a static member that was restarted; in a stable group no other member has to rejoin."""
    new = Member(member_id, request, group.session(member_id))
    new.assignment = old.assignment
    new.is_new = False
    if group.phase is State.STABLE and elected(_with_replacement(group, old, new)) == group.protocol_name:
        return _replace_in_generation(group, old, new, request, now)
    group.members.replace(old, new)
    new.renew_session(now)
    promise = group.members.await_join(new)
    group.rebalance(because(f"static member {new.instance_id!r} was replaced by {new.id!r}", request.reason), now)
    return promise


def _with_replacement(group: ClassicGroup, old: Member, new: Member) -> list[Member]:
    """Return the members with `new` in place of `old`."""
    return [new if member is old else member for member in group.members]


def _replace_in_generation(
    group: ClassicGroup, old: Member, new: Member, request: JoinGroup, now: Moment
) -> Promise[JoinGroupResult]:
    """Replace a static member within its generation.

    A replaced leader must not assign again. If its version supports skip_assignment, the answer sets it (KIP-814).
    Otherwise the answer names the old member as leader.
    """
    is_leader = group.members.leader == old.id
    generation = group.stored_generation()._replace(leader=new.id if is_leader else group.members.leader)
    members = _with_replacement(group, old, new)
    written = group.store(value_of(generation, members, {member.id: member.assignment for member in members}), now)
    group.members.replace(old, new)
    group.generation_changed()
    new.session.extend(now, NEW_MEMBER_SESSION_MS)
    joined = group.joined(new.id)
    if is_leader and request.skips_assignment:
        joined = joined._replace(skip_assignment=True, members=group.joined_members())
    elif is_leader:
        joined = joined._replace(leader=old.id)
    promise, runtime = Promise[JoinGroupResult](), group.shard.runtime

    def on_safe(later: Moment) -> None:
        if new.id in group.members:
            new.renew_session(later)
        promise.keep(runtime.purgatory, joined)

    def on_lost(later: Moment) -> None:
        promise.keep(runtime.purgatory, JoinGroupResult(ErrorCode.NOT_COORDINATOR, ""))

    runtime.steps.when_safe(written, on_safe, now, on_lost)
    return promise


def _answered(group: ClassicGroup, joined: JoinGroupResult) -> Promise[JoinGroupResult]:
    promise = Promise[JoinGroupResult]()
    promise.keep(group.shard.runtime.purgatory, joined)
    return promise
