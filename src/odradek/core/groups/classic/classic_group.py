"""A group of the classic protocol, as seen by the rest of the broker.

A group that never had members belongs to simple consumers, which only commit offsets under its name.
"""

from __future__ import annotations

from itertools import chain

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TimestampMs, TopicName
from odradek.core.coordinators.state_log import StateRecord
from odradek.core.groups.classic.classic_group_records import join_of
from odradek.core.groups.classic.classic_group_states import NEXT, Event, State
from odradek.core.groups.classic.members import Member, Members
from odradek.core.groups.classic.messages import JoinGroupResult, SyncGroupResult
from odradek.core.groups.classic.rebalancing import Rebalancing
from odradek.core.groups.shard.group import CLASSIC, CONSUMERS
from odradek.core.kernel.moment import Moment
from odradek.record.internal.consumer_protocol import decode_topics
from odradek.record.internal.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata


class ClassicGroup(Rebalancing):
    """One classic group; the requests of its members are handled in classic_joining, syncing and leaving."""

    # The subscribed topics of this generation, computed on first use; None if a subscription can't be read.
    _topics: frozenset[str] | None = None
    _are_topics_cached = False

    @property
    def type(self) -> str:
        return CLASSIC

    @property
    def state(self) -> str:
        return self.phase.value

    @property
    def protocol_type(self) -> str:
        return self._protocol_type or ""

    @property
    def is_empty(self) -> bool:
        """Return whether the group has no members; ids assigned but not yet used to join do not count."""
        is_empty = self.phase is State.EMPTY
        assert not (is_empty and self.members), "a group with members is rebalancing, stable or gone"
        return is_empty

    # Queries by the rest of the broker.

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, is_transactional: bool, version: int, now: Moment
    ) -> None:
        """Raise Refused if the commit is not allowed.

        Without a generation, only an empty group accepts commits, as from simple consumers and administrators.
        """
        if epoch < 0 and self.is_empty:
            return
        member = None
        if epoch >= 0 or member_id or instance_id is not None:
            member = self.member(member_id, instance_id, epoch)
        elif not is_transactional:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"group {self.id!r} has members, so a commit needs a member id")
        if self.phase is State.COMPLETING and not is_transactional:
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS)
        if member is not None and not is_transactional:
            member.renew_session(now)

    def member(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        """Return the member, or raise Refused(UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION)."""
        member = self.members.known(member_id, instance_id)
        if generation != self.generation:
            raise Refused(
                ErrorCode.ILLEGAL_GENERATION, f"generation {generation} is not the current generation {self.generation}"
            )
        return member

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Allow every fetch; any client may fetch a classic group's offsets."""

    def check_delete(self) -> None:
        if not self.is_empty:
            raise Refused(ErrorCode.NON_EMPTY_GROUP, f"group {self.id} is {self.state}")

    def is_subscribed_to(self, topic: TopicName) -> bool:
        if self.protocol_type != CONSUMERS:
            return False
        topics = self._subscribed()
        return topics is None or topic in topics

    def offsets_expire_after(self, now: Moment) -> int | None:
        if self._protocol_type is None:
            return 0
        if self.is_empty:
            return self._since or 0
        knows_topics = self.protocol_type == CONSUMERS and self._subscribed() is not None
        return 0 if self.phase is State.STABLE and knows_topics else None

    def _subscribed(self) -> frozenset[str] | None:
        """Return the topics that members are subscribed to, or None if a subscription can't be read."""
        if self.is_empty:
            return frozenset()
        if self.protocol_name is None:
            return None
        if not self._are_topics_cached:
            self._are_topics_cached = True
            try:
                topics = [decode_topics(member.metadata(self.protocol_name)) for member in self.members]
                self._topics = frozenset(chain.from_iterable(topics))
            except Refused:
                self._topics = None
        return self._topics

    def generation_changed(self) -> None:
        self._are_topics_cached = False

    # Records.

    def tombstones(self) -> list[StateRecord]:
        return [StateRecord(GroupMetadataKey(group=self.id), None)]

    def load(self, value: GroupMetadataValue) -> None:
        """Load the group from its record in the log, as stable or empty."""
        self._is_stored = True
        self._protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
        self.generation = value.generation
        self._since = None if value.current_state_timestamp < 0 else TimestampMs(value.current_state_timestamp)
        self.members = Members(self.shard.runtime.purgatory)
        for stored in value.members:
            if self._is_present(stored):
                continue  # A broker never writes the same instance twice.
            member = Member(stored.member_id, join_of(value, stored), self.session(stored.member_id))
            member.assignment = bytes(stored.assignment)
            member.is_new = False
            self.members.add(member)
        if value.leader in self.members:
            self.members.leader = value.leader
        self.phase = State.STABLE if self.members else State.EMPTY
        self.generation_changed()

    def _is_present(self, member: MemberMetadata) -> bool:
        instance_id = member.group_instance_id
        return member.member_id in self.members or (
            instance_id is not None and self.members.static(instance_id) is not None
        )

    # Start and end of the shard.

    def on_loaded(self, now: Moment) -> None:
        for member in self.members:
            member.renew_session(now)
        if len(self.members) > self.shard.runtime.configs.int("group.max.size"):
            self.rebalance("the group has more members than group.max.size allows", now)

    def on_unloaded(self) -> None:
        self._cancel_timer()
        self.answer_round.drop()
        for member_id in list(self.members.pending):
            self.members.forget_pending(member_id)
        for member in self.members:
            member.session.cancel()
            self.members.answer_join(member, JoinGroupResult(ErrorCode.NOT_COORDINATOR, member.id))
            self.members.answer_sync(member, SyncGroupResult(ErrorCode.NOT_COORDINATOR))
        assert not self.members.waiting and not self.members.pending, "no request waits for a group that is gone"
        self.phase = NEXT[self.phase][Event.REMOVED]
