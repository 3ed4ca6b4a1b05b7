"""In-sync replicas of one partition, maintained by its leader with the ISR rules of Kafka 3.9.

    fetched ──> expand ─┐                     ┌─> altered                 the answer to it (AlterPartition, KIP-497)
    a timer ──> shrink ─┴─> pending proposal ─┴─> apply_leader_and_isr    the controller's new state (LeaderAndIsr)

Kafka keeps this state in PartitionState.  The high watermark may advance after each of these events, and after an
append.

The committed ISR is the last one known to be written by the controller.  A proposal may be applied long before its
answer arrives, or never.  Until then the maximal ISR, the larger of the two, bounds the high watermark.  So each record
below the high watermark is on every replica that the controller may elect, whichever request or answer is lost.

The caller sends a proposal: as AlterPartition, or before Kafka 2.7 as a write to the tree.  The sender repeats
`pending` until it is answered, one attempt after the other, so an answer of "not applied" covers all attempts.  Times
are in milliseconds on a steady clock.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_EPOCH, BrokerId, Offset
from odradek.core.kernel.cluster_view import RECOVERED, LeaderAndIsr
from odradek.core.partition.follower_states import NO_BROKER_EPOCH, Eligible, Follower

# The controller saw the partition epoch of the proposal and did not apply it, so the committed ISR remains.
NOT_APPLIED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
# The controller's state differs from the leader's; the leader learns of it from a LeaderAndIsr request.
STATE_IS_OLD = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


def not_a_replica_code(leader_epoch: int) -> ErrorCode:
    """Return the error code for a fetch by a broker that is not a replica.

    A broker that names the right leader epoch may have learned of a reassignment first.
    """
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if leader_epoch == NO_EPOCH else ErrorCode.UNKNOWN_LEADER_EPOCH


class InSyncReplicas:
    """In-sync replicas of one partition, maintained by its leader for as long as it leads.

    `committed` is the last known state of the controller, `pending` the proposal without an answer.  `maximal_isr`
    contains all replicas that are or may be in the ISR.  `pending_epochs` holds the broker epochs of the pending ISR in
    its order, -1 if unknown.
    """

    def __init__(
        self,
        broker: BrokerId,
        state: LeaderAndIsr,
        replicas: Sequence[BrokerId],
        epoch_start: Offset,
        now: int,
        *,
        lag_ms_max: int,
    ) -> None:
        """Start a leadership.

        `epoch_start` is the log end offset at that time, `lag_ms_max` is replica.lag.time.max.ms.
        """
        self.broker = broker
        self.committed = state
        self.pending: LeaderAndIsr | None = None
        self.pending_epochs: tuple[int, ...] = ()
        self.maximal_isr = state.isr
        self._epoch_start = epoch_start
        self._lag_ms_max = lag_ms_max
        self._replicas = tuple(replicas)
        self._followers: dict[BrokerId, Follower] = {}
        self._set_followers(now)
        self._check()

    def fetched(
        self,
        follower: BrokerId,
        offset: Offset,
        log_start: Offset,
        leader_end: Offset,
        now: int,
        *,
        eligible: Eligible,
        broker_epoch: int = NO_BROKER_EPOCH,
        leader_epoch: int = NO_EPOCH,
    ) -> bool:
        """Record a follower's fetch; return whether its log end offset has changed.

        The caller has checked the leader epoch and the offset of the request, and that the logs do not diverge
        (KIP-595).  Raises Refused if the broker is not a replica, or if it has restarted since.
        """
        assert offset <= leader_end, "a follower never fetches beyond the log end offset of the leader"
        known = self.replica(follower, leader_epoch)
        known.check_broker_epoch(broker_epoch, eligible, now, self._lag_ms_max)
        before = known.log_end_offset
        known.fetched(offset, log_start, leader_end, now, broker_epoch)
        return offset != before

    def replica(self, follower: BrokerId, leader_epoch: int = NO_EPOCH) -> Follower:
        """Return the state of a follower; raise Refused if it is not a replica.

        `leader_epoch` is the epoch in the follower's request.
        """
        known = self._followers.get(follower)
        if known is None:
            raise Refused(
                not_a_replica_code(leader_epoch), f"broker {follower} is not one of the replicas {self._replicas}"
            )
        return known

    def stayed(self, follower: BrokerId, at: int) -> None:
        """Record that a follower repeated its last fetch; see Follower.stayed."""
        known = self._followers.get(follower)
        if known is not None:
            known.stayed(at)

    def is_in(self, follower: BrokerId) -> bool:
        """Return whether a follower is in the ISR and no proposal is pending.

        The follower's fetches cannot change the ISR then.
        """
        return self.pending is None and follower in self.committed.isr

    @property
    def epoch_start(self) -> Offset:
        """The log end offset at the start of the leader epoch.

        A high watermark below it dates from an earlier leader.
        """
        return self._epoch_start

    def high_watermark(self, own_end: Offset, current: Offset, now: int, eligible: Eligible, min_isr: int) -> Offset:
        """Return the high watermark, at least `current`; `own_end` is the leader's written or durable end.

        It waits for the maximal ISR, and for followers that are about to join.  Otherwise a leader that is alone would
        run away from a follower that is always a little behind.  As since Kafka 3.7 (KIP-966), it does not advance
        while the ISR is smaller than min.insync.replicas.  Pass 1 as `min_isr` to turn this rule off.
        """
        if self.is_under_min_isr(min_isr):
            return current
        end = own_end
        for broker, follower in self._followers.items():
            if follower.log_end_offset < end and (
                broker in self.maximal_isr
                or (follower.is_caught_up(own_end, now, self._lag_ms_max) and follower.is_eligible(eligible))
            ):
                end = follower.log_end_offset
        if end <= current:
            return current
        has_less = [broker for broker, known in self._followers.items() if known.log_end_offset < end]
        assert end <= own_end and not {*has_less} & {*self.committed.isr}, (
            "every ISR member has all records below the high watermark"
        )
        return end

    def low_watermark(self, own_start: Offset, alive: Container[BrokerId]) -> Offset:
        """Return the lowest log start offset of the live replicas, for DeleteRecords; -1 if one is unknown."""
        low = own_start
        for broker, follower in self._followers.items():
            if follower.log_start_offset < low and broker in alive:
                low = follower.log_start_offset
        return low

    def expand(self, follower: BrokerId, high_watermark: Offset, eligible: Eligible) -> LeaderAndIsr | None:
        """Propose that a follower joins the ISR; return None if it may not yet, or if a proposal is pending.

        Call it right after a fetch: a follower may lose its earlier records in a restart.  The follower must also have
        reached the start of the leader epoch, because a new leader's high watermark may be below its predecessor's.
        """
        if self.pending is not None or follower in self.committed.isr:
            return None
        known = self._followers.get(follower)
        if known is None or not known.is_eligible(eligible):
            return None
        if known.log_end_offset < max(high_watermark, self._epoch_start):
            return None
        # The follower counts at once.  If the proposal fails, the high watermark has waited for one replica too many,
        # which is harmless.
        self.maximal_isr = (*self.committed.isr, follower)
        return self._propose(self.maximal_isr)

    def shrink(self, leader_end: Offset, now: int) -> LeaderAndIsr | None:
        """Propose an ISR without lagging followers; return None if there are none or a proposal is pending.

        Call it at least twice per replica.lag.time.max.ms.  A removed follower counts until its removal is committed.
        """
        if self.pending is not None:
            return None
        isr = tuple(broker for broker in self.committed.isr if self._is_in_sync(broker, leader_end, now))
        return None if len(isr) == len(self.committed.isr) else self._propose(isr)

    def stuck(self, leader_end: Offset) -> list[Offset]:
        """Return the offsets below `leader_end` at which followers outside the ISR have been since the last call.

        Each is returned once: as a rule the follower is only slow.
        """
        outside = [known for broker, known in self._followers.items() if broker not in self.maximal_isr]
        return [known.log_end_offset for known in outside if known.is_stuck(leader_end)]

    def altered(self, proposal: LeaderAndIsr, error: ErrorCode, state: LeaderAndIsr | None = None) -> bool:
        """Apply the answer to a proposal, identified by the object; return whether to propose it again.

        `state` is the state of the partition if there is no error.  An answer to a proposal that is no longer pending
        changes nothing.  If an error leaves the proposal pending for good, a LeaderAndIsr follows.
        """
        if proposal is not self.pending:  # An equal proposal may date from before a follower's restart.
            return False
        if error is ErrorCode.NONE:
            assert state is not None, "a response without an error has the state"
            if self._is_answer(state, proposal):
                self._commit(state)
            return False
        if error in NOT_APPLIED:
            self._commit(self.committed)
            return False
        return error not in STATE_IS_OLD

    def apply_leader_and_isr(
        self, state: LeaderAndIsr, replicas: Sequence[BrokerId], leader_end: Offset, now: int
    ) -> bool:
        """Apply a LeaderAndIsr that keeps this broker as leader; return False if it is stale.

        If `pending` is still set afterwards, propose it again.
        """
        before = self.committed
        if state.leader_epoch < before.leader_epoch or state.partition_epoch < before.partition_epoch:
            return False
        # In Kafka, a LeaderAndIsr with the state that the proposal started from also ends the proposal.  The controller
        # may have sent that state before it received the proposal and applied it.  The high watermark would then pass
        # the end of the follower that has joined.
        if (state.leader_epoch, state.partition_epoch) > (before.leader_epoch, before.partition_epoch):
            self._commit(state)
        # Another broker may have led in a missed epoch, and followers may have truncated the records that they fetched
        # from here.
        if state.leader_epoch > before.leader_epoch + 1:
            self._followers.clear()
        self._replicas = tuple(replicas)
        self._set_followers(now)
        if state.leader_epoch > before.leader_epoch:
            self._epoch_start = leader_end
            for broker, follower in self._followers.items():
                follower.leader_epoch_began(leader_end, now, is_in_sync=broker in state.isr)
        return True

    @property
    def is_alone(self) -> bool:
        """Return whether this leader is, or may be, the only ISR member.

        A record that it loses then may be lost for good.  A follower that is about to join has the record, but cannot
        be elected before it has joined.
        """
        pending = self.pending
        return len(self.committed.isr) == 1 or (pending is not None and len(pending.isr) == 1)

    @property
    def has_outsiders(self) -> bool:
        """Return whether a follower is outside the maximal ISR: the high watermark may stop waiting for it."""
        return len(self.maximal_isr) <= len(self._followers)

    def is_under_min_isr(self, min_isr: int) -> bool:
        """Return whether the committed ISR is too small for acks=all, which fails with NOT_ENOUGH_REPLICAS.

        The minimum is capped at the number of replicas.
        """
        return len(self.committed.isr) < min(min_isr, len(self._replicas))

    def is_under_min_isr_after_append(self, min_isr: int) -> bool:
        """Return whether the maximal ISR (as in Kafka) is too small to acknowledge an append.

        The error is NOT_ENOUGH_REPLICAS_AFTER_APPEND.
        """
        return len(self.maximal_isr) < min(min_isr, len(self._replicas))

    def _propose(self, isr: tuple[BrokerId, ...]) -> LeaderAndIsr:
        assert self.pending is None, "at most one AlterPartition request is in flight"
        # A leader has recovered (KIP-704): no follower could join its ISR otherwise.
        self.pending = self.committed._replace(isr=isr, recovery=RECOVERED)
        # A repeat needs new epochs: a follower that has restarted may lack records that the proposal assumed (KIP-903).
        self.pending_epochs = tuple(
            self._followers[broker].broker_epoch if broker != self.broker else NO_BROKER_EPOCH for broker in isr
        )
        self._check()
        return self.pending

    def _commit(self, state: LeaderAndIsr) -> None:
        before = self.committed
        assert state.leader_epoch >= before.leader_epoch, "leader epochs never decrease"
        assert state.partition_epoch >= before.partition_epoch, "partition epochs never decrease"
        self.committed, self.pending, self.pending_epochs, self.maximal_isr = state, None, (), state.isr
        self._check()

    def _check(self) -> None:
        assert self.committed.leader == self.broker, "only the leader maintains the ISR"
        assert self.broker in self.committed.isr, "the leader is a member of its ISR"
        assert {*self.committed.isr} <= {*self.maximal_isr}, "the maximal ISR contains the committed ISR"
        assert self.pending is None or {self.broker} <= {*self.pending.isr} <= {*self.maximal_isr}, (
            "the maximal ISR contains the proposed ISR"
        )

    def _set_followers(self, now: int) -> None:
        """Keep one Follower for each replica and each ISR member.

        ISR members that are not replicas also bound the high watermark.
        """
        isr, before = self.committed.isr, self._followers
        tracked = dict.fromkeys(broker for broker in (*self._replicas, *self.maximal_isr) if broker != self.broker)
        self._followers = {
            broker: before.get(broker) or Follower(broker, now, is_in_sync=broker in isr) for broker in tracked
        }
        assert {*self.maximal_isr} <= {self.broker, *self._followers}, "each ISR member is the leader or a follower"

    def _is_answer(self, state: LeaderAndIsr, proposal: LeaderAndIsr) -> bool:
        """Return whether the state is the one that the proposal started from, or results from it."""
        isr = {*state.isr}
        is_own = state.leader == self.broker and state.leader_epoch == proposal.leader_epoch
        if not is_own or not {self.broker} <= isr <= {self.broker, *self._followers}:
            return False
        is_same = state.partition_epoch == proposal.partition_epoch and isr in ({*proposal.isr}, {*self.committed.isr})
        return is_same or state.partition_epoch > proposal.partition_epoch

    def _is_in_sync(self, broker: BrokerId, leader_end: Offset, now: int) -> bool:
        return broker == self.broker or self._followers[broker].is_caught_up(leader_end, now, self._lag_ms_max)
