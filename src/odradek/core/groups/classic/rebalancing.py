"""The rebalance of a classic group, the part of a group that changes its state.

    a member joins, changes, leaves ──> PreparingRebalance: all rejoin, or are removed after the rebalance timeout
    all have joined ──> a generation: CompletingRebalance, its leader assigns ──> written to the log ──> Stable

The first members of an empty group wait for others for group.initial.rebalance.delay.ms, and longer while more join.
A join does not extend the deadline of a rebalance in progress.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import MINUTE_MS, TimestampMs
from odradek.core.coordinators.durable import PendingWrite
from odradek.core.coordinators.state_log import StateRecord
from odradek.core.groups.classic.answer_round import MEMBERS_PER_TURN, PAUSE_MS, AnswerRound
from odradek.core.groups.classic.classic_group_records import Generation, value_of
from odradek.core.groups.classic.classic_group_states import NEXT, Event, State
from odradek.core.groups.classic.members import Member, Members
from odradek.core.groups.classic.messages import JoinedMember, JoinGroupResult, SyncGroupResult
from odradek.core.groups.shard.history import Rebalance, Rebalances, listed
from odradek.core.groups.shard.member_session import MemberSession
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.timers import Action, Timer
from odradek.record.internal.group_metadata import GroupMetadataKey, GroupMetadataValue

if TYPE_CHECKING:
    from odradek.core.groups.shard.group_shard import GroupShard

_LOG = logging.getLogger(__name__)

NEW_MEMBER_SESSION_MS = 5 * MINUTE_MS  # The session of a member waiting for its first answer; it may be disconnected.


class Rebalancing:
    """The base of ClassicGroup: its state, and the timers and writes of a rebalance."""

    def __init__(self, group_id: str, shard: GroupShard) -> None:
        self.id = group_id
        self.shard = shard
        self.phase = State.EMPTY
        self.generation = 0
        self.protocol_name: str | None = None
        self.members = Members(shard.runtime.purgatory)
        self.answer_round = AnswerRound(shard.runtime.timers)
        self.rebalances = Rebalances()
        self.written: PendingWrite | None = None  # The group's last write.
        self.is_assigned = False  # The assignments of this generation are in the log or being written.
        self._protocol_type: str | None = None
        self._since: TimestampMs | None = None  # The time of the last state change.
        self._is_stored = False  # The log has a record of the group.
        self._timer: Timer | None = None  # The deadline for all members to join, or to fetch their assignment.
        self._is_first = False  # The rebalance began with an empty group.
        self._has_newcomers = False  # Members have joined since the delay of a first rebalance began.

    # Members and their sessions.

    def session(self, member_id: str) -> MemberSession:
        return MemberSession(self.shard.runtime.timers, lambda now: self._session_ended(member_id, now))

    def await_member(self, member_id: str, session_timeout_ms: int, now: Moment) -> None:
        """Add a pending member, which has been assigned an id and is expected to join with it."""
        session = self.members.pending[member_id] = self.session(member_id)
        session.extend(now, session_timeout_ms)

    def add(self, member: Member, protocol_type: str, now: Moment) -> None:
        if not self.members:
            self._protocol_type = protocol_type
        if self._is_first:
            self._has_newcomers = True
        self.members.add(member)
        member.session.extend(now, NEW_MEMBER_SESSION_MS)

    def remove(self, member: Member, reason: str, now: Moment) -> None:
        self.members.remove(member.id)
        self.rebalance(reason, now)

    def forget_pending(self, member_id: str, now: Moment) -> None:
        self.members.forget_pending(member_id)
        self.on_pending_removed(now)

    def on_pending_removed(self, now: Moment) -> None:
        """Continue after pending members were removed.

        Drops a group without members, pending members and persistent state.
        """
        self.maybe_complete_join(now)
        is_used = self.phase is not State.EMPTY or self.members.pending or self._is_stored
        offsets = self.shard.offsets
        if not (is_used or offsets.of_group(self.id) or offsets.has_pending_of(self.id)):
            self.shard.groups.pop(self.id, None)

    def end_if_long_over(self, member: Member, now: Moment) -> None:
        """End the member's session if it expired over a session timeout ago without being checked.

        The broker could not check it in time. Such a member sent its request long ago and has given up since. Raises
        Refused(UNKNOWN_MEMBER_ID) in this case.
        """
        if member.syncing is None and member.session.is_long_over(now, member.session_timeout_ms):
            self._session_ended(member.id, now)
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)

    def _session_ended(self, member_id: str, now: Moment) -> None:
        if member_id in self.members.pending:
            self.forget_pending(member_id, now)
            return
        member = self.members.get(member_id)
        if member is None or (not member.is_new and (member.joining or member.syncing)):
            return  # The group keeps the member waiting; its session restarts when it is answered.
        self.remove(member, f"the session of member {member_id!r} expired", now)

    # Joining.

    def rebalance(self, reason: str, now: Moment) -> None:
        """Begin a rebalance, or continue the current one."""
        if Event.REBALANCE not in NEXT[self.phase]:
            self.maybe_complete_join(now)
            return
        self.answer_round.finish(now)
        if self.phase is State.COMPLETING:
            self.lose_assignments(ErrorCode.REBALANCE_IN_PROGRESS, now)
        self.rebalances.add(self.id, Rebalance(now.wall, self.generation, reason))
        self._is_first = self.phase is State.EMPTY
        self._has_newcomers = False
        self.move(Event.REBALANCE, now)
        if self._is_first:
            delay = self.shard.runtime.configs.int("group.initial.rebalance.delay.ms")
            self._delay_first_join(delay, max(self.members.rebalance_timeout_ms - delay, 0), now)
        else:
            self._set_timer(self.members.rebalance_timeout_ms, self._complete_join, now)
            self.maybe_complete_join(now)

    def _delay_first_join(self, delay: int, remaining: int, now: Moment) -> None:
        """Wait `delay` for more members of a first rebalance, and at most `remaining` longer while more join."""

        def on_delay_over(later: Moment) -> None:
            if self._has_newcomers and remaining > 0:
                self._has_newcomers = False
                self._delay_first_join(min(delay, remaining), max(remaining - delay, 0), later)
            else:
                self._complete_join(later)

        if delay > 0:
            self._set_timer(delay, on_delay_over, now)
        else:
            on_delay_over(now)

    def maybe_complete_join(self, now: Moment) -> None:
        """Complete the join phase if all members have joined; called when one has joined or left."""
        if self.phase is State.PREPARING and not self._is_first and self.members.have_all_joined:
            if len(self.members) > MEMBERS_PER_TURN:  # In a turn of its own, because it takes a while.
                self.shard.runtime.timers.at(now.steady + PAUSE_MS, self._complete_if_all_joined)
            else:
                self._complete_join(now)

    def _complete_if_all_joined(self, now: Moment) -> None:
        if self.phase is State.PREPARING and self.members.have_all_joined:
            self._complete_join(now)

    def _complete_join(self, now: Moment) -> None:
        assert self.phase is State.PREPARING
        self._cancel_timer()
        absent = [member for member in self.members if member.joining is None and not member.is_static]
        for member in absent:
            self.members.remove(member.id)
        if absent:
            names = listed([repr(member.id) for member in absent])
            _LOG.info("group %r removed members that did not rejoin within the rebalance timeout: %s", self.id, names)
        if not self.members.elect() and self.members:
            # Static members keep their place until their session ends.
            self._set_timer(self.members.rebalance_timeout_ms, self._complete_join, now)
            return
        self.generation += 1
        self.generation_changed()
        if self.members:
            self._begin_generation(now)
        else:
            self._become_empty(now)

    def generation_changed(self) -> None:
        """React to a new generation, whose members may have other subscriptions."""

    def _begin_generation(self, now: Moment) -> None:
        members = self.members
        assert members.waiting, "at least the leader has joined"
        self.move(Event.ALL_JOINED, now)
        self.protocol_name = members.select_protocol()
        self.is_assigned = False
        members.unsynced = {member.id for member in members}
        all_members, response = self.joined_members(), self.joined("")

        def answer_member(member: Member, later: Moment) -> None:
            if members.get(member.id) is member:
                shown = all_members if member.id == response.leader else ()
                members.answer_join(member, response._replace(member_id=member.id, members=shown))
                member.is_new = False
                member.renew_session(later)

        self._set_timer(members.rebalance_timeout_ms, self._sync_timed_out, now)
        leader = members.get(response.leader)
        assert leader is not None, "a generation with members has a leader"
        # The leader first, because it has to assign.
        self.answer_round.answer_members(
            [leader, *(member for member in members if member is not leader)], answer_member, now
        )

    def _become_empty(self, now: Moment) -> None:
        assert not self.members and self.members.leader is None
        self.move(Event.ALL_LEFT, now)
        self.protocol_name = None
        try:
            self.store(value_of(self.stored_generation(), (), {}), now)
        except Refused as refused:  # After a restart the members reappear and leave when their sessions end.
            _LOG.warning("group %r is empty, failed to write its state: %s", self.id, refused)

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """Return all members as the leader sees them."""
        protocol = self.protocol_name
        return tuple(JoinedMember(member.id, member.instance_id, member.metadata(protocol)) for member in self.members)

    def joined(self, member_id: str, members: tuple[JoinedMember, ...] = ()) -> JoinGroupResult:
        """Return the JoinGroup answer for a member of this generation."""
        return JoinGroupResult(
            ErrorCode.NONE,
            member_id,
            self.generation,
            self._protocol_type,
            self.protocol_name,
            self.members.leader or "",
            members=members,
        )

    # Assignment.

    def synced(self, member_id: str) -> None:
        """Record that a member has fetched its assignment."""
        unsynced = self.members.unsynced
        unsynced.discard(member_id)
        if not unsynced:
            self._cancel_timer()

    def _sync_timed_out(self, now: Moment) -> None:
        assert self.phase is State.COMPLETING or self.phase is State.STABLE
        late = sorted(self.members.unsynced)
        if not late:
            return  # All late members have left or were replaced.
        for member_id in late:
            self.members.remove(member_id)
        self.rebalance(f"members did not sync within the rebalance timeout: {listed([repr(one) for one in late])}", now)

    def lose_assignments(self, code: ErrorCode, now: Moment) -> None:
        assert self.phase is State.COMPLETING, "a stable group keeps its assignments until the next generation"
        for member in self.members:
            member.assignment = b""
            self.answer_sync(member, SyncGroupResult(code), now)

    def answer_sync(self, member: Member, answer: SyncGroupResult, now: Moment) -> None:
        """Answer the member's waiting SyncGroup, if any, and restart its session, which may have ended by now."""
        if self.members.answer_sync(member, answer):
            member.renew_session(now)

    # Records.

    def stored_generation(self) -> Generation:
        return Generation(self.generation, self._protocol_type, self.protocol_name, self.members.leader, self._since)

    def store(self, value: GroupMetadataValue, now: Moment) -> PendingWrite:
        """Write the group to the log, or raise Refused and write nothing."""
        self.written = self.shard.write_only([StateRecord(GroupMetadataKey(group=self.id), value)], now)
        self._is_stored = True
        return self.written

    # State.

    def move(self, event: Event, now: Moment) -> None:
        self.phase = NEXT[self.phase][event]
        self._since = now.wall

    def _set_timer(self, ms: int, action: Action, now: Moment) -> None:
        self._cancel_timer()
        self._timer = self.shard.runtime.timers.at(now.steady + max(ms, 0), action)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
