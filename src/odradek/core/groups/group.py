"""What every group is to the rest of the broker, whichever protocol its members speak."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from odradek.base.units import TopicName
from odradek.core.coordinators.state_log import StateRecord
from odradek.core.moment import Moment

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
        """ "consumer" for consumers; "" if nobody has said."""

    @property
    def is_empty(self) -> bool:
        """It has no members."""

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, is_transactional: bool, version: int, now: Moment
    ) -> CommitCheck | None:
        """May this member, of this generation or epoch, commit offsets?  A heartbeat too, where Kafka takes it as one.

        None: for any partition.  Else each partition is to be asked for, and one that is refused refuses the whole
        request (KIP-1251: an older epoch may commit for what was assigned no later).  `version` is that of OffsetCommit
        or TxnOffsetCommit.
        """

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """OffsetFetch v9 and later: a member of an earlier epoch is told so."""

    def check_delete(self) -> None:
        """NON_EMPTY_GROUP."""

    def is_subscribed_to(self, topic: TopicName) -> bool:
        """Or may be: then its offsets are not deleted."""

    def offsets_expire_after(self, now: Moment) -> int | None:
        """None: none do now.  Else offsets expire offsets.retention.minutes after this time in ms (wall); 0 stands for
        the time of each commit itself, for groups without members that ever joined (simple consumers)."""

    def records(self) -> Iterable[StateRecord]:
        """All that is to be kept of it."""

    def tombstones(self) -> list[StateRecord]:
        """What makes the log forget it."""

    def begin(self, now: Moment) -> None:
        """It was loaded from the log: its members' sessions start now."""

    def end(self) -> None:
        """Its shard goes to another broker: cancel timers, answer who waits with NOT_COORDINATOR."""
