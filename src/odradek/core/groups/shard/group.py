"""The interface of every group to the rest of the broker, independent of the protocol of its members."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from odradek.base.units import TopicName
from odradek.core.coordinators.state_log import StateRecord
from odradek.core.kernel.moment import Moment

CLASSIC, CONSUMER = "classic", "consumer"  # Group types, as in ListGroups.
CONSUMERS = "consumer"  # The protocol type of consumers, the only subscriptions that the broker can parse.

CommitCheck: TypeAlias = Callable[[TopicName, int], None]  # Raises Refused for a partition that can't be committed.


class Group(Protocol):
    """One group; all `check_` methods raise Refused."""

    id: str

    @property
    def type(self) -> str:
        """Return the type: CLASSIC or CONSUMER."""

    @property
    def state(self) -> str:
        """Return the state as ListGroups and DescribeGroups name it.

        Examples: Empty, Stable, PreparingRebalance, Assigning, Dead.
        """

    @property
    def protocol_type(self) -> str:
        """Return the protocol type: "consumer" for consumers, "" if no member has declared one."""

    @property
    def is_empty(self) -> bool:
        """Return whether the group has no members."""

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, is_transactional: bool, version: int, now: Moment
    ) -> CommitCheck | None:
        """Raise Refused if this member, with this generation or epoch, may not commit offsets.

        Returns None if the member may commit any partition. Otherwise the caller checks each partition, and one
        refused partition refuses the whole request. (KIP-1251: an older epoch may commit partitions assigned at that
        epoch or earlier.) `version` is the version of OffsetCommit or TxnOffsetCommit. If Kafka counts the commit as
        a heartbeat, the check also restarts the member's session.
        """

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise Refused for a member of an earlier epoch; used by OffsetFetch v9 and later."""

    def check_delete(self) -> None:
        """Raise Refused(NON_EMPTY_GROUP) if the group has members."""

    def is_subscribed_to(self, topic: TopicName) -> bool:
        """Return whether members are, or may be, subscribed to the topic, so that its offsets are kept."""

    def offsets_expire_after(self, now: Moment) -> int | None:
        """Return the time in ms (wall clock) at which offsets.retention.minutes begins; None: none expire.

        0 means the time of each commit. It applies to groups that never had members (simple consumers).
        """

    def tombstones(self) -> list[StateRecord]:
        """Return the records that delete the group from the log."""

    def on_loaded(self, now: Moment) -> None:
        """Start a group loaded from the log; the sessions of its members begin now."""

    def on_unloaded(self) -> None:
        """End a group whose shard moves to another broker.

        Cancels timers and answers waiting requests with NOT_COORDINATOR.
        """
