"""The ISRs that leaders here propose to the controller (AlterPartition, KIP-497): Kafka's AlterPartitionManager.

    Leading.fetched, a timer ──> submit ──> take: the controller is asked ──> ended ──> the high watermark may advance
                                   ^────────── a pause, if the answer says nothing ────┘

How it is asked, or before Kafka 2.7 the tree is written to, is in net/cluster/isr_changes.py.

Each proposal has one attempt under way at a time: an answer that says "not applied" then speaks of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import TYPE_CHECKING

from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, Offset, TopicPartition
from odradek.core.kernel.cluster_view import ClusterView, LeaderAndIsr, PartitionInfo
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.timers import Timers
from odradek.core.partition.follower_states import NO_BROKER_EPOCH, Eligible
from odradek.core.partition.in_sync_replicas import InSync
from odradek.core.partition.stuck_followers import check_stuck

if TYPE_CHECKING:
    from odradek.core.partition.leadership_state import Leadership

RETRY_MS = 50
SYNCED_MS = 10  # After this it is looked whether a sync has ended.
ASKED_AT_ONCE = 256  # Their answers are taken in at once, too, and each wakes who waits.
LOOKED_AT_PER_SLICE = 256
# Kafka looks twice in replica.lag.time.max.ms, and who falls behind stays for half of it too long.
LOOKS_PER_LAG = 10


class ProposedIsr:
    """One attempt; `broker_epochs` are those of the proposal's ISR, in its order, -1 if unknown."""

    def __init__(self, leading: Leadership, proposal: LeaderAndIsr, broker_epochs: tuple[int, ...]) -> None:
        self.leading = leading
        self.proposal = proposal
        self.broker_epochs = broker_epochs


class IsrCounts:
    """How often ISRs of partitions that this broker leads have shrunk and grown, and proposals were not taken."""

    def __init__(self) -> None:
        self.shrinks = self.expands = self.failures = 0

    def ended(self, before: LeaderAndIsr, after: LeaderAndIsr, error: ErrorCode) -> None:
        """Counts an answer to a proposal; `before` and `after` are the committed states before and after it."""
        if error is not ErrorCode.NONE:
            self.failures += 1
        self.expands += len(after.isr) > len(before.isr)
        self.shrinks += len(after.isr) < len(before.isr)


class AlterPartitionManager:
    """What leaders with followers have in common on one broker."""

    def __init__(
        self,
        broker: BrokerId,
        view: ClusterView,
        lag_ms_max: int,
        timers: Timers,
        advanced: Callable[[TopicPartition, Moment], None],
        *,
        sync: Callable[[TopicPartition], None],
    ) -> None:
        """`advanced` hears of partitions whose high watermark has advanced by an answer, `sync` flushes a log."""
        self._broker = broker
        self._view = view
        self._lag_ms_max = lag_ms_max
        self._timers = timers
        self._advanced = advanced
        self._sync = sync
        self._leading: dict[Leadership, None] = {}
        self._asked: list[ProposedIsr] = []
        self._under_way: dict[Leadership, ProposedIsr] = {}
        self._next_look = 0  # On the steady clock.
        self.unable: dict[TopicPartition, None] = {}  # Leaders whose disk has failed or is full, for UnableLeaders.
        self.counts = IsrCounts()

    @property
    def eligible(self) -> Eligible:
        """Who may join an ISR, by what this broker knows: under ZooKeeper nobody tells it others' broker epochs."""
        return dict.fromkeys(self._view.brokers, NO_BROKER_EPOCH)

    @property
    def alive(self) -> Container[BrokerId]:
        """The brokers that live."""
        return self._view.brokers

    def metadata_of(self, name: TopicPartition) -> PartitionInfo | None:
        """Return the partition's state as this broker's metadata has it; None if it is not in it."""
        topic = self._view.topics.get(name.topic)
        if topic is None or name.partition >= len(topic.partitions):
            return None
        return topic.partitions[name.partition]

    def begin(self, leading: Leadership, info: PartitionInfo, end: Offset, now: Moment) -> InSync:
        """Returns what a leader knows of its followers as it begins; `end` is that of its log."""
        self._leading[leading] = None
        return InSync(self._broker, state_of(info), info.replicas, end, now.steady, lag_ms_max=self._lag_ms_max)

    def forget(self, leading: Leadership) -> None:
        """Watches a leader no more, whose leadership has ended or which has no followers."""
        self._leading.pop(leading, None)
        self._under_way.pop(leading, None)

    def submit(self, leading: Leadership, now: Moment) -> None:
        """Has the controller asked for what is pending, unless it is being asked, or the leadership has ended.

        Who would be the only one in sync asks once all that counts is durable here: from then on nobody else is elected
        who has it.
        """
        in_sync = leading.in_sync
        if leading.ended is not None or in_sync is None or in_sync.pending is None:
            return
        self.sync_if_alone(leading)
        if leading.waits_for_disk and leading.positions.durable_end < leading.positions.high_watermark:
            self._timers.at(now.steady + SYNCED_MS, lambda later: self.submit(leading, later))
            return
        under_way = self._under_way.get(leading)
        if under_way is None or under_way.proposal is not in_sync.pending:
            attempt = ProposedIsr(leading, in_sync.pending, in_sync.pending_epochs)
            self._under_way[leading] = attempt
            self._asked.append(attempt)

    @property
    def has_asked(self) -> bool:
        """True if `take` may have something to return."""
        return bool(self._asked)

    def take(self) -> list[ProposedIsr]:
        """Returns what the controller is to be asked now, as much as goes into one request; each ends in `ended`."""
        asked, self._asked = self._asked[:ASKED_AT_ONCE], self._asked[ASKED_AT_ONCE:]
        return [one for one in asked if self._under_way.get(one.leading) is one]

    def ended(self, asked: ProposedIsr, error: ErrorCode, state: LeaderAndIsr | None, now: Moment) -> None:
        """Takes in the answer; `state` is the partition's without an error.  An error that may pass is tried again."""
        leading, in_sync = asked.leading, asked.leading.in_sync
        if self._under_way.get(leading) is asked:
            del self._under_way[leading]
        if leading.ended is not None or in_sync is None:
            return
        is_awaited, before = asked.proposal is in_sync.pending, in_sync.committed
        if in_sync.altered(asked.proposal, error, state):
            self._timers.at(now.steady + RETRY_MS, lambda later: self.submit(leading, later))
        if is_awaited:
            self.counts.ended(before, in_sync.committed, error)
        self.sync_if_alone(leading)
        self._look_at(leading, now)

    def shrink(self, now: Moment) -> Iterator[None]:
        """Proposes ISRs without followers that have fallen behind, in slices; called once a second, does it if due."""
        if now.steady < self._next_look:
            return
        self._next_look = now.steady + self._lag_ms_max // LOOKS_PER_LAG
        for number, leading in enumerate(list(self._leading), 1):
            in_sync = leading.in_sync
            if leading.ended is None and in_sync is not None:
                if in_sync.shrink(leading.log.end_offset, now.steady) is not None:
                    leading.partition.end_moved()  # Who is left out joins by a fetch: none of a session rests.
                    self.submit(leading, now)
                if in_sync.has_outsiders:  # Who was about to join may have fallen behind, too.
                    self._look_at(leading, now)
                    if leading.partition.is_online and check_stuck(leading, in_sync):
                        yield
            if number % LOOKED_AT_PER_SLICE == 0:
                yield

    def sync_if_alone(self, leading: Leadership) -> None:
        """Has a log flushed whose leader has become the only one in sync: what was written counts on its disk now."""
        if leading.in_sync is None or not leading.partition.is_online or not leading.waits_for_disk:
            return
        if leading.positions.durable_end < leading.log.end_offset:
            self._sync(leading.name)

    def _look_at(self, leading: Leadership, now: Moment) -> None:
        if leading.advance(now):
            self._advanced(leading.name, now)


def state_of(info: PartitionInfo) -> LeaderAndIsr:
    return LeaderAndIsr(
        info.leader,
        info.leader_epoch,
        info.isr,
        controller_epoch=info.controller_epoch,
        partition_epoch=info.partition_epoch,
    )
