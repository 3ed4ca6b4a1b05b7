"""A pending change of a consumer group: its records so far, and the state that they lead to.

Every step sees the decisions of earlier steps. Nothing takes effect until all records are in the log, as one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from odradek.core.coordinators.durable import PendingWrite
from odradek.core.coordinators.state_log import StateRecord
from odradek.core.groups.consumer import consumer_group_records as records
from odradek.core.groups.consumer.consumer_group import ConsumerGroup
from odradek.core.groups.consumer.consumer_group_state import GroupState
from odradek.core.groups.consumer.consumer_member import ConsumerMemberMetadata, CurrentAssignment, Member
from odradek.core.groups.shard.history import Rebalance, Rebalances
from odradek.core.kernel.moment import Moment

if TYPE_CHECKING:
    from odradek.core.groups.shard.group_shard import GroupShard


class Draft:
    """One change of a group.

    `state` is changed only through `add`. It becomes the group's own once the records are written.
    """

    def __init__(self, shard: GroupShard, group_id: str, group: ConsumerGroup | None) -> None:
        """Begin a change of `group`, or the creation of a new group if it is None."""
        self.shard = shard
        self.group = group
        self.state = GroupState(group_id) if group is None else group.kept
        self.view = shard.runtime.view()
        self.configs = shard.runtime.configs
        self.records: list[StateRecord] = []
        self.reasons: list[str] = []  # Reasons for a new group epoch.
        self.can_describe: Callable[[str], bool] | None = None  # Whether the client may describe a topic; None: all.
        self.has_checked_topics = self.has_refreshed_regexes = False
        self._is_copy = group is None
        self._removed: list[str] = []  # Ids of members that were removed.

    def add(self, *added: StateRecord) -> None:
        if not self._is_copy:
            self.state = self.state.copy()
            self._is_copy = True
        for record in added:
            self.state.apply(record.key, record.value)
        self.records.extend(added)

    def replaces(self, tombstones: Iterable[StateRecord]) -> None:
        """Delete a group of another protocol with the same name by its tombstones."""
        assert not self.records
        self.records.extend(tombstones)

    def put_metadata(self, member_id: str, metadata: ConsumerMemberMetadata) -> None:
        self.add(records.member_metadata(self.state.id, member_id, metadata))

    def put_current(self, member_id: str, current: CurrentAssignment) -> None:
        self.add(records.current(self.state.id, member_id, current))

    def remove(self, member: Member) -> None:
        assert member.id in self.state.members
        self.add(*records.no_member(self.state.id, member.id))
        assert member.id not in self.state.members
        self._removed.append(member.id)

    @property
    def has_stale_topics(self) -> bool:
        return self.group is None or self.group.has_stale_topics

    def commit(self, now: Moment, history: Rebalances | None = None) -> tuple[ConsumerGroup, PendingWrite | None]:
        """Write the change and return the current group, or raise Refused and change nothing."""
        written = self._write(now) if self.records else None
        group = self.shard.groups[self.state.id]
        assert isinstance(group, ConsumerGroup), "a draft writes a consumer group"
        kept, state = group.kept, self.state
        assert kept.epoch == state.epoch and kept.assigned == state.assigned, "the records lead to the draft's state"
        assert len(kept.members) == len(state.members) and len(kept.targets) == len(state.targets)
        if history is not None:
            group.rebalances.extend(history)
        if self.reasons:
            group.rebalances.add(group.id, Rebalance(now.wall, group.kept.epoch - 1, "; ".join(self.reasons)))
        if self.has_checked_topics:
            group.note_topics_seen()
        if self.has_refreshed_regexes:
            group.note_regexes_resolved(now)
        return group, written

    def _write(self, now: Moment) -> PendingWrite:
        """Write the records; the group adopts the draft's state, in which they are already applied."""
        if self.group is None:
            return self.shard.write(self.records, now)
        assert self.shard.groups.get(self.group.id) is self.group, "a group that is gone is not written"
        written = self.shard.write_only(self.records, now)
        self.group.keep(self.state, self._removed)
        return written
