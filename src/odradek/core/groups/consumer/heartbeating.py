"""ConsumerGroupHeartbeat, with which a member joins, reports, receives its assignment and leaves.

find the member ──> update its metadata ──> steps.py ──> one batch into the log ──> restart its session
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.uuids import to_text
from odradek.core.coordinators.durable import PendingWrite
from odradek.core.groups.assignors.spec import Assignment, Partitions
from odradek.core.groups.consumer import fencing, migration
from odradek.core.groups.consumer import member_lookup as lookup
from odradek.core.groups.consumer import rebalance_steps as steps
from odradek.core.groups.consumer.consumer_group import ConsumerGroup, MemberTimer
from odradek.core.groups.consumer.consumer_member import LEFT_EPOCH, NOTHING, ConsumerMemberMetadata, Held, Member
from odradek.core.groups.consumer.draft import Draft
from odradek.core.groups.consumer.member_lookup import JOIN_EPOCH
from odradek.core.kernel.moment import Moment

if TYPE_CHECKING:
    from odradek.core.groups.shard.group_shard import GroupShard

LEAVE_EPOCH, LEAVE_STATIC_MEMBER_EPOCH = -1, LEFT_EPOCH
UNCHANGED = -1  # A rebalance timeout: unchanged.


SUBSCRIBED_TOPICS_MAX = 8_000  # Parsed, sorted and written at once: 10 ms.


class Heartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat request; None in a field means unchanged."""

    group_id: str
    member_id: str  # "" for a new member, in v0.
    epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topics: Collection[str] | None
    regex: str | None
    assignor: str | None
    owned: Assignment | None
    can_describe: Callable[[str], bool] | None = None  # Returns whether the client may describe a topic; None: all.


class HeartbeatResult(NamedTuple):
    """The answer, which waits for `written` if there is a write.

    An `assignment` of None means unchanged.
    """

    member_id: str
    epoch: int
    interval_ms: int = 0
    assignment: Assignment | None = None
    written: PendingWrite | None = None


def check(request: Heartbeat, assignors: Collection[str], *, makes_member_ids: bool) -> None:
    """Check a request without its group, or raise Refused; `makes_member_ids` is set for v0."""
    needs_member_id = not makes_member_ids or request.epoch > JOIN_EPOCH or request.epoch == LEAVE_EPOCH
    _check_present("MemberId", request.member_id if needs_member_id else None)
    _check_present("GroupId", request.group_id)
    _check_present("InstanceId", request.instance_id)
    _check_present("RackId", request.rack_id)
    if request.topics is not None and len(request.topics) > SUBSCRIBED_TOPICS_MAX:
        text = (
            f"A member may subscribe to {SUBSCRIBED_TOPICS_MAX} topics, not {len(request.topics)}; use a regex instead."
        )
        raise Refused(ErrorCode.INVALID_REQUEST, text)
    if request.epoch == JOIN_EPOCH:
        _check_join(request)
    elif request.epoch == LEAVE_STATIC_MEMBER_EPOCH and request.instance_id is None:
        raise Refused(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    elif request.epoch < LEAVE_STATIC_MEMBER_EPOCH:
        raise Refused(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    if request.assignor is not None and request.assignor not in assignors:
        text = f"ServerAssignor {request.assignor} is not supported. Supported assignors: {', '.join(assignors)}."
        raise Refused(ErrorCode.UNSUPPORTED_ASSIGNOR, text)


def _check_present(name: str, text: str | None) -> None:
    if text is not None and not text.strip():
        raise Refused(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")


def _check_join(request: Heartbeat) -> None:
    if request.rebalance_timeout_ms == UNCHANGED:
        raise Refused(ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in the first request.")
    if request.owned is None or request.owned:
        raise Refused(ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when a member joins.")
    if request.topics is None and request.regex is None:
        raise Refused(ErrorCode.INVALID_REQUEST, "SubscribedTopicNames or SubscribedTopicRegex must be provided.")


def heartbeat(shard: GroupShard, request: Heartbeat, now: Moment) -> HeartbeatResult:
    """Handle one heartbeat, or raise Refused and leave the group unchanged."""
    if request.epoch < JOIN_EPOCH:
        return _leave(shard, request, now)
    draft, upgraded = migration.open_draft(shard, request.group_id, may_create=request.epoch == JOIN_EPOCH)
    draft.can_describe = request.can_describe
    lookup.check_room(draft, request.member_id, request.instance_id)
    member_id = request.member_id or to_text(shard.runtime.entropy.new_uuid())
    before = _member(draft, request, member_id)
    assignor = steps.assignor_name(draft)
    has_resubscribed = _update_metadata(draft, before, request, now)
    if steps.assignor_name(draft) != assignor:
        draft.reasons.append("the preferred assignor of most members changed")
    steps.refresh_regexes(draft, now)
    steps.raise_epoch(draft)
    steps.assign(draft, now)
    member = steps.reconcile(draft, member_id, request.owned, has_resubscribed=has_resubscribed)
    assert member.id == member_id
    group, written = migration.commit(draft, upgraded, now)
    assert group.kept.members[member_id] == member, "the member has what its answer says"
    group.renew_session(member, now)
    if before.is_classic:
        group.cancel(MemberTimer.JOIN, member_id)
        group.cancel(MemberTimer.SYNC, member_id)
    if member.current != before.current:
        group.await_revocation(member, now)
    includes_assignment = (
        request.epoch == JOIN_EPOCH or _is_full(request) or member.current.assigned != before.current.assigned
    )
    return HeartbeatResult(
        member_id,
        member.current.epoch,
        draft.configs.int("group.consumer.heartbeat.interval.ms"),
        _assignment(member.current.assigned) if includes_assignment else None,
        written,
    )


def _member(draft: Draft, request: Heartbeat, member_id: str) -> Member:
    """Return the member that sent the request.

    Raises Refused: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID.
    """
    if request.epoch == JOIN_EPOCH:
        if request.instance_id is not None:
            return lookup.join_static(draft, member_id, request.instance_id, is_classic=False)
        return draft.state.members.get(member_id) or Member(member_id)
    member = draft.state.named(member_id, request.instance_id)
    lookup.check_epoch(member, request.epoch, request.owned)
    return member


def _update_metadata(draft: Draft, before: Member, request: Heartbeat, now: Moment) -> bool:
    """Apply the member's metadata to the draft; return True if its subscription changed."""
    old = before.metadata
    metadata = ConsumerMemberMetadata(
        instance_id=old.instance_id if request.instance_id is None else request.instance_id,
        rack_id=old.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=old.topics if request.topics is None else frozenset(request.topics),
        regex=old.regex if request.regex is None else request.regex,
        rebalance_timeout_ms=old.rebalance_timeout_ms
        if request.rebalance_timeout_ms == UNCHANGED
        else request.rebalance_timeout_ms,
        assignor=old.assignor if request.assignor is None else request.assignor,
    )
    return subscribe(draft, before, metadata, now)


def subscribe(draft: Draft, before: Member, metadata: ConsumerMemberMetadata, now: Moment) -> bool:
    """Put the member's new metadata into the draft; return True if its subscription changed."""
    is_new = before.id not in draft.state.members
    if is_new or metadata != before.metadata:
        draft.put_metadata(before.id, metadata)
    has_other_regex = steps.resolve(draft, before.metadata, draft.state.members[before.id], now)
    if metadata.topics == before.metadata.topics and not has_other_regex:
        return False
    draft.reasons.append(f"member {before.id!r} {'joined' if is_new else 'subscribed to other topics'}")
    return True


def _is_full(request: Heartbeat) -> bool:
    """Return whether the request has all fields; it gets a full answer, as one may have been lost."""
    has_subscription = request.topics is not None or request.regex is not None
    return request.rebalance_timeout_ms != UNCHANGED and has_subscription and request.owned is not None


def _assignment(held: Held) -> Assignment:
    return {topic: Partitions(epochs) for topic, epochs in held.items()}


def _leave(shard: GroupShard, request: Heartbeat, now: Moment) -> HeartbeatResult:
    """Remove the member, or raise Refused.

    Codes: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    group = shard.groups.get(request.group_id)
    if not isinstance(group, ConsumerGroup):
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")
    member = group.kept.named(request.member_id, request.instance_id)
    if request.epoch == LEAVE_STATIC_MEMBER_EPOCH and request.instance_id is not None:
        return _leave_temporarily(group, member, now)
    written = fencing.remove(group, [member], f"member {member.id!r} left", now)
    return HeartbeatResult(request.member_id, request.epoch, written=written)


def _leave_temporarily(group: ConsumerGroup, member: Member, now: Moment) -> HeartbeatResult:
    """Keep a static member's partitions until its session ends, except partitions being revoked."""
    draft = Draft(group.shard, group.id, group)
    assigned = {topic: dict.fromkeys(epochs, 0) for topic, epochs in member.current.assigned.items()}
    assert member.metadata.instance_id is not None, "only static members leave for a while"
    left = member.current._replace(epoch=LEFT_EPOCH, assigned=assigned, revoking=NOTHING)
    draft.put_current(member.id, left)
    _, written = draft.commit(now)
    group.cancel(MemberTimer.REBALANCE, member.id)
    return HeartbeatResult(member.id, LEFT_EPOCH, written=written)
