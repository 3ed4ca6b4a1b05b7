"""Members of the classic protocol in a group of the consumer protocol (migration.py).

    JoinGroup   subscribes and reports owned partitions; the member revokes partitions before it rejoins
    SyncGroup   returns the member's assignment in the format of a classic leader; the coordinator assigns
    Heartbeat   asks the member to rejoin while it has a next step

The member's epoch is the generation that it knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.base.errors import ErrorCode, Refused
from odradek.base.uuids import to_text
from odradek.core.groups.classic.messages import (
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeaveGroupResult,
    Leaver,
    SyncGroup,
    SyncGroupResult,
)
from odradek.core.groups.consumer import fencing, heartbeating, migration
from odradek.core.groups.consumer import member_lookup as lookup
from odradek.core.groups.consumer import rebalance_steps as steps
from odradek.core.groups.consumer.consumer_group import ConsumerGroup, MemberTimer
from odradek.core.groups.consumer.consumer_group_state import GroupState
from odradek.core.groups.consumer.consumer_member import ClassicMember, ConsumerMemberMetadata, Member, MemberState
from odradek.core.groups.consumer.draft import Draft
from odradek.core.groups.shard.group import CONSUMERS
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.promise import Promise
from odradek.record.internal.consumer_protocol import ConsumerProtocolSubscription, decode_subscription

if TYPE_CHECKING:
    from odradek.core.coordinators.durable import PendingWrite
    from odradek.core.coordinators.runtime import Runtime


def join(group: ConsumerGroup, request: JoinGroup, now: Moment) -> Promise[JoinGroupResult]:
    """Join the group, or raise Refused (GROUP_MAX_SIZE_REACHED, ...) and leave the group unchanged."""
    runtime, draft = group.shard.runtime, Draft(group.shard, group.id, group)
    draft.can_describe = request.can_describe
    member_id = request.member_id or to_text(runtime.entropy.new_uuid())
    lookup.check_room(draft, member_id, request.instance_id)
    subscription = _checked(draft.state, request)
    if request.needs_member_id and not request.member_id and request.instance_id is None:
        return _kept_promise(runtime, JoinGroupResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    replaced = draft.state.static_member(request.instance_id)
    before = _member(draft, request, member_id)
    has_resubscribed = heartbeating.subscribe(draft, before, _metadata_of(before, request, subscription), now)
    steps.refresh_regexes(draft, now)
    steps.raise_epoch(draft)
    owned = migration.by_id(subscription.owned_partitions, draft.view)
    if replaced is not None and not replaced.is_classic and migration.can_downgrade(draft):
        is_stale = draft.state.assigned.epoch < draft.state.epoch
        if not is_stale:
            steps.reconcile(draft, member_id, owned, has_resubscribed=has_resubscribed)
        member = draft.state.members[member_id]
        reason = f"member {member_id!r} replaced a static member" if is_stale else None
        written: PendingWrite | None = migration.downgrade(draft, frozenset(), reason, now)
    else:
        steps.assign(draft, now)
        member = steps.reconcile(draft, member_id, owned, has_resubscribed=has_resubscribed)
        _, written = draft.commit(now)
        _await_sync(group, member, now)
    assert member.id == member_id and member.is_classic
    return _promise_when_safe(runtime, written, _joined(member), now)


def _checked(state: GroupState, request: JoinGroup) -> ConsumerProtocolSubscription:
    """Parse the first protocol's subscription; Refused(INCONSISTENT_GROUP_PROTOCOL) if that fails.

    All protocols of a member carry the same subscription.
    """
    classic = [dict(member.metadata.classic.protocols) for member in state.classic_members if member.metadata.classic]
    is_common = any(all(name in protocols for protocols in classic) for name, _ in request.protocols)
    if request.protocol_type != CONSUMERS or not is_common:
        raise Refused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            "the protocol type is not consumer, or no protocol is supported by all members",
        )
    try:
        return decode_subscription(request.protocols[0][1])
    except Refused as refused:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"invalid subscription: {refused}") from refused


def _member(draft: Draft, request: JoinGroup, member_id: str) -> Member:
    """Return the joining member, which may be new.

    Raises Refused(UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID).
    """
    if request.instance_id is None:
        return draft.state.members.get(member_id) or Member(member_id)
    if request.member_id:
        return draft.state.named(request.member_id, request.instance_id)
    return lookup.join_static(draft, member_id, request.instance_id, is_classic=True)


def _metadata_of(
    before: Member, request: JoinGroup, subscription: ConsumerProtocolSubscription
) -> ConsumerMemberMetadata:
    old = before.metadata
    return ConsumerMemberMetadata(
        instance_id=old.instance_id if request.instance_id is None else request.instance_id,
        rack_id=subscription.rack_id or old.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=frozenset(subscription.topics),
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        assignor=old.assignor,
        classic=ClassicMember(request.session_timeout_ms, request.protocols),
    )


def _joined(member: Member) -> JoinGroupResult:
    assert member.metadata.classic is not None
    name = member.metadata.classic.protocols[0][0]
    return JoinGroupResult(ErrorCode.NONE, member.id, member.current.epoch, CONSUMERS, name)


def _await_sync(group: ConsumerGroup, member: Member, now: Moment) -> None:
    group.cancel(MemberTimer.JOIN, member.id)
    group.cancel(MemberTimer.REBALANCE, member.id)
    group.renew_session(member, now)
    group.set(MemberTimer.SYNC, member.id, member.metadata.rebalance_timeout_ms, now)


def _kept_promise(runtime: Runtime, joined: JoinGroupResult) -> Promise[JoinGroupResult]:
    promise = Promise[JoinGroupResult]()
    promise.keep(runtime.purgatory, joined)
    return promise


def _promise_when_safe(
    runtime: Runtime, written: PendingWrite | None, joined: JoinGroupResult, now: Moment
) -> Promise[JoinGroupResult]:
    if written is None:
        return _kept_promise(runtime, joined)
    promise, lost = Promise[JoinGroupResult](), JoinGroupResult(ErrorCode.NOT_COORDINATOR, joined.member_id)
    runtime.steps.when_safe(
        written, lambda _: promise.keep(runtime.purgatory, joined), now, lambda _: promise.keep(runtime.purgatory, lost)
    )
    return promise


def sync(group: ConsumerGroup, request: SyncGroup, now: Moment) -> Promise[SyncGroupResult]:
    """Answer with the member's assignment.

    Raises Refused: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL, and
    REBALANCE_IN_PROGRESS if a newer assignment exists, for which the member has to rejoin.
    """
    member, classic = _classic(group, request.member_id, request.instance_id, request.generation)
    name, metadata = classic.protocols[0]
    if request.protocol_type not in (None, CONSUMERS) or request.protocol_name not in (None, name):
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the member uses protocol {name!r} of type {CONSUMERS!r}")
    if group.kept.assigned.epoch > member.current.epoch and member.current.state is not MemberState.UNREVOKED:
        _await_join(group, member, now)
        raise Refused(ErrorCode.REBALANCE_IN_PROGRESS)
    group.cancel(MemberTimer.SYNC, member.id)
    group.renew_session(member, now)
    runtime = group.shard.runtime
    assignment = migration.assignment_bytes(member.current.assigned, metadata, runtime.view())
    promise = Promise[SyncGroupResult]()
    promise.keep(
        runtime.purgatory, SyncGroupResult(ErrorCode.NONE, request.protocol_type, request.protocol_name, assignment)
    )
    return promise


def heartbeat(group: ConsumerGroup, request: Heartbeat, now: Moment) -> None:
    """Renew the member's session, and require it to rejoin if it has a next step.

    Raises Refused: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, or REBALANCE_IN_PROGRESS to make it
    rejoin.
    """
    member, _ = _classic(group, request.member_id, request.instance_id, request.generation)
    group.renew_session(member, now)
    if has_next_step(group.kept, member):
        _await_join(group, member, now)
        raise Refused(ErrorCode.REBALANCE_IN_PROGRESS)


def has_next_step(state: GroupState, member: Member) -> bool:
    current = member.current
    if current.epoch < state.assigned.epoch or current.state is MemberState.UNREVOKED:
        return True
    return current.state is MemberState.UNRELEASED and not _must_wait_for_others(state, member)


def _must_wait_for_others(state: GroupState, member: Member) -> bool:
    return any(
        not state.is_free(topic, partition, member.id)
        for topic, partitions in state.target_of(member.id).items()
        for partition in partitions
    )


def _await_join(group: ConsumerGroup, member: Member, now: Moment) -> None:
    """Set the deadline for the member to rejoin, counted from the first request to do so."""
    if not group.is_set(MemberTimer.JOIN, member.id):
        group.set(MemberTimer.JOIN, member.id, member.metadata.rebalance_timeout_ms, now)


def _classic(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[Member, ClassicMember]:
    """Return the classic member, or raise Refused.

    Codes: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    member = group.kept.named(member_id, instance_id)
    if member.metadata.classic is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member.id!r} uses the consumer protocol")
    if generation != member.current.epoch:
        raise Refused(
            ErrorCode.ILLEGAL_GENERATION,
            f"generation {generation} is not the current generation {member.current.epoch}",
        )
    return member, member.metadata.classic


def leave(group: ConsumerGroup, leavers: Sequence[Leaver], now: Moment) -> LeaveGroupResult:
    """Remove members of either protocol, as an administrator does, or raise Refused and remove none."""
    codes: list[ErrorCode] = []
    left: dict[str, tuple[Member, str]] = {}
    for leaver in leavers:
        try:
            member = _leaver(group, leaver)
        except Refused as refused:
            codes.append(refused.code)
            continue
        codes.append(ErrorCode.NONE)
        left[member.id] = member, f"{member.id!r} ({leaver.reason})" if leaver.reason else repr(member.id)
    if not left:
        return LeaveGroupResult(codes)
    reason = f"left: {', '.join(text for _, text in left.values())}"
    return LeaveGroupResult(codes, fencing.remove(group, [member for member, _ in left.values()], reason, now))


def _leaver(group: ConsumerGroup, leaver: Leaver) -> Member:
    """Return a leaver, found by its ids or by its instance id alone.

    Raises Refused(UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID).
    """
    if leaver.instance_id is not None and not leaver.member_id:
        member = group.kept.static_member(leaver.instance_id)
        if member is not None:
            return member
    return group.kept.named(leaver.member_id, leaver.instance_id)
