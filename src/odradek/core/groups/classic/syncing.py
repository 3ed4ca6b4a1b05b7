"""SyncGroup and Heartbeat of a classic group: members fetch assignments and stay alive."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.base.errors import ErrorCode, Refused
from odradek.core.groups.classic.classic_group import ClassicGroup
from odradek.core.groups.classic.classic_group_records import value_of
from odradek.core.groups.classic.classic_group_states import Event, State
from odradek.core.groups.classic.members import Member
from odradek.core.groups.classic.messages import Heartbeat, SyncGroup, SyncGroupResult
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.promise import Promise


def sync(group: ClassicGroup, request: SyncGroup, now: Moment) -> Promise[SyncGroupResult]:
    """Accept the assignments from the leader; every other member waits for its share.

    Raises Refused: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL,
    REBALANCE_IN_PROGRESS.
    """
    member = group.member(request.member_id, request.instance_id, request.generation)
    _check_protocol(request.protocol_type, group.protocol_type or None)
    _check_protocol(request.protocol_name, group.protocol_name)
    if group.phase is State.PREPARING:
        raise Refused(ErrorCode.REBALANCE_IN_PROGRESS)
    group.synced(member.id)
    if group.phase is State.STABLE:
        member.renew_session(now)
        promise = Promise[SyncGroupResult]()
        promise.keep(group.shard.runtime.purgatory, _share(group, member))
        return promise
    assert group.phase is State.COMPLETING, "a group with members is neither empty nor dead"
    if member.syncing is None:
        member.syncing = Promise()
    promise = member.syncing
    if group.members.leader == member.id:
        _assign(group, request.assignments, now)
    return promise


def _check_protocol(requested: str | None, present: str | None) -> None:
    if requested is not None and present is not None and requested != present:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{requested!r} does not match the group's {present!r}")


def _assign(group: ClassicGroup, assignments: Mapping[str, bytes], now: Moment) -> None:
    """Write the assignments and send them when the write is safe, unless the group has changed by then."""
    if group.is_assigned:
        return
    generation = group.generation
    try:
        written = group.store(value_of(group.stored_generation(), group.members, assignments), now)
    except Refused as refused:
        group.lose_assignments(refused.code, now)
        group.rebalance(f"failed to write the assignments: {refused}", now)
        return
    group.is_assigned = True

    def is_current() -> bool:
        return group.phase is State.COMPLETING and group.generation == generation

    def on_safe(later: Moment) -> None:
        if is_current():
            _propagate_assignments(group, assignments, later)

    def on_lost(later: Moment) -> None:
        if is_current():
            group.lose_assignments(ErrorCode.NOT_COORDINATOR, later)

    group.shard.runtime.steps.when_safe(written, on_safe, now, on_lost)


def _propagate_assignments(group: ClassicGroup, assignments: Mapping[str, bytes], now: Moment) -> None:
    assert group.is_assigned, "assignments are written before they are handed out"
    group.move(Event.ASSIGNED, now)
    for member in group.members:
        member.assignment = assignments.get(member.id, b"")

    def answer_member(member: Member, later: Moment) -> None:
        group.answer_sync(member, _share(group, member), later)

    group.answer_round.answer_members(group.members, answer_member, now)


def _share(group: ClassicGroup, member: Member) -> SyncGroupResult:
    return SyncGroupResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)


def heartbeat(group: ClassicGroup, request: Heartbeat, now: Moment) -> None:
    """Restart the member's session.

    Raises Refused: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, or REBALANCE_IN_PROGRESS to make it
    rejoin.
    """
    member = group.member(request.member_id, request.instance_id, request.generation)
    if member.joining is None:  # A new member that waits has a longer session.
        group.end_if_long_over(member, now)
        member.renew_session(now)
    if group.phase is State.PREPARING:
        raise Refused(ErrorCode.REBALANCE_IN_PROGRESS)
