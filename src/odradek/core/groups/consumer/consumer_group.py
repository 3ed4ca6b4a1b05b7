"""A group of the consumer protocol, as seen by the rest of the broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicName
from odradek.core.coordinators.state_log import StateRecord
from odradek.core.groups.consumer import consumer_group_records as records
from odradek.core.groups.consumer.consumer_group_state import GroupState
from odradek.core.groups.consumer.consumer_member import Member, MemberState
from odradek.core.groups.shard.group import CONSUMER, CONSUMERS, CommitCheck
from odradek.core.groups.shard.history import Rebalances
from odradek.core.groups.shard.member_session import MemberSession
from odradek.core.kernel.moment import Moment

if TYPE_CHECKING:
    from odradek.core.groups.shard.group_shard import GroupShard

COMMIT_BY_EPOCH_SINCE = 9  # The first version of OffsetCommit with a member epoch.


class MemberTimer(Enum):
    """A timer of a member, named by the action due before it fires."""

    SESSION = auto()  # Send a heartbeat.
    REBALANCE = auto()  # Revoke the partitions being taken from the member.
    JOIN = auto()  # Classic members: rejoin.
    SYNC = auto()  # Classic members: fetch the assignment.


OnExpired = Callable[["ConsumerGroup", MemberTimer, str, Moment], None]


class ConsumerGroup:
    """One consumer group; `kept` is its state in the log, timers and history are in memory only."""

    def __init__(self, group_id: str, shard: GroupShard, on_expired: OnExpired) -> None:
        """Create the group; `on_expired` is called when a member misses a deadline."""
        self.id = group_id
        self.shard = shard
        self.kept = GroupState(group_id)
        self.rebalances = Rebalances()
        self._topics_seen: int | None = None  # The last version of the cluster's topics that was checked.
        self._regexes_seen: int | None = None
        self.resolved_at: int | None = None  # The last time regexes were matched against all topics (steady clock).
        self._on_expired = on_expired
        self._timers: dict[tuple[MemberTimer, str], MemberSession] = {}

    @property
    def type(self) -> str:
        return CONSUMER

    @property
    def state(self) -> str:
        kept = self.kept
        if not kept.members:
            return "Empty"
        if kept.epoch > kept.assigned.epoch:
            return "Assigning"
        is_stable = all(one.current.is_reconciled_to(kept.assigned.epoch) for one in kept.members.values())
        return "Stable" if is_stable else "Reconciling"

    @property
    def protocol_type(self) -> str:
        return CONSUMERS

    @property
    def is_empty(self) -> bool:
        return not self.kept.members

    # Queries by the rest of the broker.

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, is_transactional: bool, version: int, now: Moment
    ) -> CommitCheck | None:
        """Check a commit; with an older epoch, allow partitions assigned at or before it (KIP-1251)."""
        if epoch < 0 and self.is_empty:
            return None
        if is_transactional and epoch == -1 and not member_id and instance_id is None:
            return None
        member = self.kept.known(member_id)
        if not (is_transactional or member.is_classic) and version < COMMIT_BY_EPOCH_SINCE:
            raise Refused(
                ErrorCode.UNSUPPORTED_VERSION,
                "members that use the consumer protocol must commit with OffsetCommit version 9 or later",
            )
        if epoch == member.current.epoch:
            return None
        stale = _stale(member, is_transactional=is_transactional)
        if epoch > member.current.epoch:
            raise Refused(stale, f"Member epoch {epoch} is newer than the current epoch {member.current.epoch}.")
        return lambda topic, partition: self._check_partition(member, epoch, topic, partition, stale)

    def _check_partition(self, member: Member, epoch: int, topic: TopicName, partition: int, stale: ErrorCode) -> None:
        info = self.shard.runtime.view().topics.get(topic)
        for held in (member.current.assigned, member.current.revoking):
            since = None if info is None else held.get(info.id, {}).get(partition)
            if since is not None:
                if epoch < since:
                    raise Refused(
                        stale, f"{topic}-{partition} was assigned in epoch {since}, after member epoch {epoch}."
                    )
                return
        raise Refused(stale, f"{topic}-{partition} is not assigned to the member, and member epoch {epoch} is stale.")

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        member = self.kept.known(member_id or "")
        if epoch != member.current.epoch:
            stale = _stale(member, is_transactional=False)
            raise Refused(stale, f"Member epoch {epoch} does not match the current epoch {member.current.epoch}.")

    def check_delete(self) -> None:
        if not self.is_empty:
            raise Refused(ErrorCode.NON_EMPTY_GROUP, f"group {self.id} is {self.state}")

    def is_subscribed_to(self, topic: TopicName) -> bool:
        return topic in self.kept.topics()

    def offsets_expire_after(self, now: Moment) -> int | None:
        """Return 0: offsets expire by the time of each commit, regardless of members."""
        return 0

    # Records.

    def tombstones(self) -> list[StateRecord]:
        return list(records.tombstones(self.kept))

    def apply(self, key: object, value: object | None) -> None:
        """Apply one record from the log."""
        self.kept.apply(key, value)
        member_id = getattr(key, "member_id", None)
        if member_id is not None and member_id not in self.kept.members:
            self._cancel_all(member_id)

    def keep(self, state: GroupState, removed: Iterable[str]) -> None:
        """Adopt a state that was written to the log, without the members `removed`."""
        assert state.id == self.id and state.epoch >= self.kept.epoch, "the epoch of a group never goes back"
        self.kept = state
        for member_id in removed:
            self._cancel_all(member_id)

    def _cancel_all(self, member_id: str) -> None:
        for timer in MemberTimer:
            self.cancel(timer, member_id)

    # Timers.

    def set(self, timer: MemberTimer, member_id: str, ms: int, now: Moment) -> None:
        """Set a member's timer to `ms` from now, replacing an earlier setting."""
        assert member_id in self.kept.members, "only members have alarms"
        session = self._timers.get((timer, member_id))
        if session is None:
            session = MemberSession(self.shard.runtime.timers, lambda later: self._expire(timer, member_id, later))
            self._timers[timer, member_id] = session
        session.extend(now, max(ms, 0))

    def is_set(self, timer: MemberTimer, member_id: str) -> bool:
        return (timer, member_id) in self._timers

    def cancel(self, timer: MemberTimer, member_id: str) -> None:
        session = self._timers.pop((timer, member_id), None)
        if session is not None:
            session.cancel()

    def _expire(self, timer: MemberTimer, member_id: str, now: Moment) -> None:
        assert (timer, member_id) in self._timers and member_id in self.kept.members
        del self._timers[timer, member_id]
        self._on_expired(self, timer, member_id, now)

    def renew_session(self, member: Member, now: Moment) -> None:
        """Restart the member's session timeout."""
        classic = member.metadata.classic
        configs = self.shard.runtime.configs
        ms = configs.int("group.consumer.session.timeout.ms") if classic is None else classic.session_timeout_ms
        self.set(MemberTimer.SESSION, member.id, ms, now)

    def await_revocation(self, member: Member, now: Moment) -> None:
        """Set the deadline for the member to revoke partitions, if it has to.

        Classic members have a deadline to rejoin instead.
        """
        if member.current.state is MemberState.UNREVOKED and not member.is_classic:
            self.set(MemberTimer.REBALANCE, member.id, member.metadata.rebalance_timeout_ms, now)
        else:
            self.cancel(MemberTimer.REBALANCE, member.id)

    # The topics of the cluster.

    @property
    def has_stale_topics(self) -> bool:
        """Return whether the cluster's topics changed, so that the next heartbeat must check them."""
        return self._topics_seen != self.shard.runtime.view().version

    @property
    def has_stale_regexes(self) -> bool:
        return self._regexes_seen != self.shard.runtime.view().version

    def note_topics_seen(self) -> None:
        self._topics_seen = self.shard.runtime.view().version

    def note_regexes_resolved(self, now: Moment) -> None:
        self._regexes_seen = self.shard.runtime.view().version
        self.resolved_at = now.steady

    # Start and end of the shard.

    def on_loaded(self, now: Moment) -> None:
        for member in self.kept.members.values():
            self.renew_session(member, now)
            self.await_revocation(member, now)

    def on_unloaded(self) -> None:
        for session in self._timers.values():
            session.cancel()
        self._timers.clear()


def _stale(member: Member, *, is_transactional: bool) -> ErrorCode:
    """Return the error code for a stale epoch.

    For classic members and in transactions, an epoch is a generation.
    """
    return ErrorCode.ILLEGAL_GENERATION if is_transactional or member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
