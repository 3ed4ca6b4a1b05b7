"""ISR proposals of the leaders on this broker (KIP-497): Kafka's AlterPartitionManager.

    Leading.fetched, a timer ──> submit ──> take: a request to the controller ──> ended ──> high watermark may advance
                                   ^────────── a pause after an inconclusive answer ────┘

net/cluster/isr_changes.py sends AlterPartition requests, or writes to the tree before Kafka 2.7.

Each proposal has one attempt in flight at a time, so an answer of "not applied" covers all attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, Offset, TopicPartition
from odradek.core.kernel.cluster_view import ClusterView, LeaderAndIsr, PartitionInfo
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.timers import Timers
from odradek.core.partition.in_sync_replicas import InSyncReplicas
from odradek.core.partition.leadership_state import Leadership
from odradek.core.partition.stuck_followers import check_stuck

RETRY_MS = 50
SYNCED_MS = 10  # Delay before the next check whether a sync has ended.
PROPOSALS_PER_REQUEST_MAX = 256  # Limits the answers handled at once, too; each wakes parked requests.
CHECKED_PER_SLICE = 256
# Kafka checks twice per replica.lag.time.max.ms, which keeps a lagging follower in the ISR for half of it too long.
CHECKS_PER_LAG = 10


class ProposedIsr:
    """One attempt; `broker_epochs` belong to the ISR of the proposal, in its order, -1 if unknown."""

    def __init__(self, leading: Leadership, proposal: LeaderAndIsr, broker_epochs: tuple[int, ...]) -> None:
        self.leading = leading
        self.proposal = proposal
        self.broker_epochs = broker_epochs


class IsrCounts:
    """Counters of ISR shrinks, expansions and failed proposals for the partitions that this broker leads."""

    def __init__(self) -> None:
        self.shrinks = self.expands = self.failures = 0

    def count_answer(self, before: LeaderAndIsr, after: LeaderAndIsr, error: ErrorCode) -> None:
        """Count an answer to a proposal; `before` and `after` are the committed states around it."""
        if error is not ErrorCode.NONE:
            self.failures += 1
        self.expands += len(after.isr) > len(before.isr)
        self.shrinks += len(after.isr) < len(before.isr)


class AlterPartitionManager:
    """ISR proposals of all leaders with followers on one broker."""

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
        """Create a manager without leaders.

        `advanced` receives each partition whose high watermark an answer advances.  `sync` flushes a log.
        """
        self._broker = broker
        self.view = view
        self._lag_ms_max = lag_ms_max
        self._timers = timers
        self._advanced = advanced
        self._sync = sync
        self._leading: dict[Leadership, None] = {}
        self._queued: list[ProposedIsr] = []
        self._under_way: dict[Leadership, ProposedIsr] = {}
        self._next_check = 0  # On the steady clock.
        self.unable: dict[TopicPartition, None] = {}  # Leaders whose disk has failed or is full, for UnableLeaders.
        self.counts = IsrCounts()

    @property
    def alive(self) -> Container[BrokerId]:
        """The live brokers."""
        return self.view.brokers

    def metadata_of(self, name: TopicPartition) -> PartitionInfo | None:
        """Return the partition's state as this broker's metadata has it; None if it is not in it."""
        topic = self.view.topics.get(name.topic)
        if topic is None or name.partition >= len(topic.partitions):
            return None
        return topic.partitions[name.partition]

    def add_leader(self, leading: Leadership, info: PartitionInfo, end: Offset, now: Moment) -> InSyncReplicas:
        """Return a new leader's state of its followers; `end` is the leader's log end offset."""
        assert leading.ended is None, "a leadership that has ended proposes nothing"
        assert leading not in self._leading, "a leadership is added once"
        self._leading[leading] = None
        return InSyncReplicas(self._broker, state_of(info), info.replicas, end, now.steady, lag_ms_max=self._lag_ms_max)

    def forget(self, leading: Leadership) -> None:
        """Stop tracking a leader whose leadership has ended or which has no followers."""
        assert leading in self._leading, "only leaders with followers are tracked"
        del self._leading[leading]
        self._under_way.pop(leading, None)

    def submit(self, leading: Leadership, now: Moment) -> None:
        """Queue the pending proposal, unless one is in flight or the leadership has ended.

        A leader that would be the only in-sync replica waits until everything below its high watermark is durable.
        After the proposal only this broker can be elected with these records.
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
            self._queued.append(attempt)
        assert self._under_way[leading].proposal is in_sync.pending, "the pending proposal is under way"

    @property
    def has_proposals(self) -> bool:
        """Return whether `take_proposals` may have proposals to return."""
        return bool(self._queued)

    def take_proposals(self) -> list[ProposedIsr]:
        """Return the proposals to send now, at most one request's worth; each one ends in `on_proposal_answered`."""
        taken, self._queued = self._queued[:PROPOSALS_PER_REQUEST_MAX], self._queued[PROPOSALS_PER_REQUEST_MAX:]
        return [attempt for attempt in taken if self._under_way.get(attempt.leading) is attempt]

    def on_proposal_answered(
        self, attempt: ProposedIsr, error: ErrorCode, state: LeaderAndIsr | None, now: Moment
    ) -> None:
        """Apply the answer to a proposal; retry it after a transient error.

        `state` is the state of the partition if there is no error.
        """
        leading, in_sync = attempt.leading, attempt.leading.in_sync
        if self._under_way.get(leading) is attempt:
            del self._under_way[leading]
        if leading.ended is not None or in_sync is None:
            return
        is_awaited, before = attempt.proposal is in_sync.pending, in_sync.committed
        if in_sync.altered(attempt.proposal, error, state):
            self._timers.at(now.steady + RETRY_MS, lambda later: self.submit(leading, later))
        if is_awaited:
            self.counts.count_answer(before, in_sync.committed, error)
        self.sync_if_alone(leading)
        self._maybe_advance_high_watermark(leading, now)

    def shrink(self, now: Moment) -> Iterator[None]:
        """Propose ISRs without lagging followers, in slices; does nothing until the check is due.

        Call it once a second.
        """
        if now.steady < self._next_check:
            return
        self._next_check = now.steady + self._lag_ms_max // CHECKS_PER_LAG
        for number, leading in enumerate(list(self._leading), 1):
            in_sync = leading.in_sync
            if leading.ended is None and in_sync is not None:
                if in_sync.shrink(leading.log.end_offset, now.steady) is not None:
                    leading.partition.on_log_end_moved()  # A removed follower rejoins by a fetch.
                    self.submit(leading, now)
                if in_sync.has_outsiders:  # A follower that was about to join may have fallen behind, too.
                    self._maybe_advance_high_watermark(leading, now)
                    if leading.partition.is_online and check_stuck(leading, in_sync):
                        yield
            if number % CHECKED_PER_SLICE == 0:
                yield

    def sync_if_alone(self, leading: Leadership) -> None:
        """Flush the log of a leader that has become the only in-sync replica.

        From now on its records are committed once they are durable on its own disk.
        """
        if leading.in_sync is None or not leading.partition.is_online or not leading.waits_for_disk:
            return
        if leading.positions.durable_end < leading.log.end_offset:
            self._sync(leading.name)

    def _maybe_advance_high_watermark(self, leading: Leadership, now: Moment) -> None:
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
