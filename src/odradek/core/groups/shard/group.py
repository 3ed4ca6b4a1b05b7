"""The interface of every group to the rest of the broker, whichever protocol its members speak."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from odradek.base.units import TopicName
from odradek.core.coordinators.state_log import StateRecord
from odradek.core.kernel.moment import Moment

CLASSIC, CONSUMER = "classic", "consumer"  # Group types, as ListGroups has them.
CONSUMERS = "consumer"  # The protocol type of consumers, whose subscriptions we understand.

CommitCheck: TypeAlias = Callable[[TopicName, int], None]  # Raises Refused for a partition that can't be committed.


class Group(Protocol):
    """One group.  All `check_` methods raise Refused."""

    id: str

    @property
    def type(self) -> str:
        """CLASSIC or CONSUMER."""

    @property
    def state(self) -> str:
        """As ListGroups and DescribeGroups name it: Empty, Stable, PreparingRebalance, Assigning, Dead, ..."""

    @property
    def protocol_type(self) -> str:
        """ "consumer" for consumers; "" if no member has said."""

    @property
    def is_empty(self) -> bool:
        """True if the group has no members."""

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, is_transactional: bool, version: int, now: Moment
    ) -> CommitCheck | None:
        """Raises Refused if this member, of this generation or epoch, may not commit offsets.

        Returns None if it may for any partition.  Else each partition is to be checked, and one that is refused refuses
        the whole request (KIP-1251: an older epoch may commit for what was assigned no later).  `version` is that of
        OffsetCommit or TxnOffsetCommit.  Where Kafka takes a commit for a heartbeat, the member's session is restarted.
        """

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Refuses a member of an earlier epoch; OffsetFetch v9 and later."""

    def check_delete(self) -> None:
        """Raises Refused(NON_EMPTY_GROUP) if the group has members."""

    def is_subscribed_to(self, topic: TopicName) -> bool:
        """True if members are, or may be, subscribed to the topic: then its offsets are not deleted."""

    def offsets_expire_after(self, now: Moment) -> int | None:
        """Returns the time in ms (wall) from which offsets expire after offsets.retention.minutes; None: none do now.

        0 stands for the time of each commit itself, for groups without members that ever joined (simple consumers).
        """

    def tombstones(self) -> list[StateRecord]:
        """Returns the records that make the log forget the group."""

    def begin(self, now: Moment) -> None:
        """Starts a group that was loaded from the log: its members' sessions begin now."""

    def end(self) -> None:
        """Ends a group whose shard goes to another broker: cancels timers, answers who waits with NOT_COORDINATOR."""
