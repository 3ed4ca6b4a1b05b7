"""The in-sync replicas of one partition, as its leader knows them: Kafka's PartitionState and ISR rules of 3.9.

    fetched ──> expand ─┐                     ┌─> altered    the controller answers (AlterPartition, KIP-497)
    a timer ──> shrink ─┴─> pending proposal ─┴─> told       the controller says who leads (LeaderAndIsr)

The high watermark may advance after each of them, and after an append.

The committed ISR is what the controller is known to have written.  A proposal may be in force long before its answer
comes, or never be: until it is answered the maximal ISR, the larger of the two, holds the high watermark.  So each
record below it is on every replica that the controller may elect, whatever request or answer is lost on the way.

How a proposal travels is the caller's matter: as AlterPartition, or before Kafka 2.7 as a write to the tree.  Whoever
sends it repeats `pending` until it is answered, one attempt after the other, so that an answer that says "not applied"
speaks of all attempts.  Times are of a steady clock, in milliseconds.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_EPOCH, BrokerId, Offset
from odradek.core.kernel.cluster_view import RECOVERED, LeaderAndIsr
from odradek.core.partition.follower_states import NO_BROKER_EPOCH, Eligible, Follower

# The controller has the partition epoch of the proposal and did not apply it, so the committed ISR stands.
NOT_APPLIED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
# The controller has another state than the leader, which hears of it by a LeaderAndIsr.
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


def stranger_code(leader_epoch: int) -> ErrorCode:
    """Returns the code for a fetch by a broker that is no replica.

    Who names the right leader epoch may have heard of a reassignment first.
    """
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if leader_epoch == NO_EPOCH else ErrorCode.UNKNOWN_LEADER_EPOCH


class InSync:
    """Who is in sync with the leader of one partition, for as long as this broker leads it.

    `committed` is the last state known of the controller, `pending` the proposal that it has not answered yet, and
    `maximal_isr` all that are or may be in the ISR.  `pending_epochs` goes with the proposal: the broker epochs of its
    ISR, one for each, -1 if unknown.
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
        """Begins a leadership.  `epoch_start` is where the log ended then, `lag_ms_max` replica.lag.time.max.ms."""
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
        """Takes in a follower's fetch; returns True if its log end offset has changed.

        The caller has checked the request's leader epoch and offset, and that the logs do not diverge (KIP-595).
        Raises Refused for a broker that is no replica, and for one that has restarted since.
        """
        assert offset <= leader_end, "nothing is replicated that is not written"
        known = self.replica(follower, leader_epoch)
        known.check_broker_epoch(broker_epoch, eligible, now, self._lag_ms_max)
        before = known.log_end_offset
        known.fetched(offset, log_start, leader_end, now, broker_epoch)
        return offset != before

    def replica(self, follower: BrokerId, leader_epoch: int = NO_EPOCH) -> Follower:
        """Returns a follower; `leader_epoch` is the one that it names.  Raises Refused if it is no replica."""
        known = self._followers.get(follower)
        if known is None:
            raise Refused(stranger_code(leader_epoch), f"broker {follower} is none of the replicas {self._replicas}")
        return known

    def stayed(self, follower: BrokerId, at: int) -> None:
        """Takes in that a follower went on fetching what it had fetched before; see Follower.stayed."""
        known = self._followers.get(follower)
        if known is not None:
            known.stayed(at)

    def is_in(self, follower: BrokerId) -> bool:
        """True if a follower is in the ISR, and nobody has proposed another one: its fetches can't change that."""
        return self.pending is None and follower in self.committed.isr

    @property
    def epoch_start(self) -> Offset:
        """Where the log ended when the leader epoch began; a high watermark below it is older than its leader."""
        return self._epoch_start

    def high_watermark(self, own_end: Offset, current: Offset, now: int, eligible: Eligible, min_isr: int) -> Offset:
        """Returns the high watermark, which is `current` or above; `own_end` is the leader's written or durable end.

        It waits for all of the maximal ISR, and for followers that are about to join: else a leader that is alone would
        run away from one that is always a little behind.  As since Kafka 3.7 (KIP-966) it stands while the ISR is
        smaller than min.insync.replicas; a caller that does not want that passes 1 as `min_isr`.
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
        has_less = [one for one, known in self._followers.items() if known.log_end_offset < end]
        assert end <= own_end and not {*has_less} & {*self.committed.isr}, "any of the ISR may be elected without loss"
        return end

    def low_watermark(self, own_start: Offset, alive: Container[BrokerId]) -> Offset:
        """Returns the least log start offset of the live replicas, for DeleteRecords; -1 if one is not known yet."""
        low = own_start
        for broker, follower in self._followers.items():
            if follower.log_start_offset < low and broker in alive:
                low = follower.log_start_offset
        return low

    def expand(self, follower: BrokerId, high_watermark: Offset, eligible: Eligible) -> LeaderAndIsr | None:
        """Proposes that a follower joins the ISR; returns None if it may not yet, or if a proposal is pending.

        Called right after its fetch: what it had some time ago it may have lost in a restart.  It must have reached the
        start of the leader epoch too, since a new leader's high watermark may be behind that of the leader before it.
        """
        if self.pending is not None or follower in self.committed.isr:
            return None
        known = self._followers.get(follower)
        if known is None or not known.is_eligible(eligible):
            return None
        if known.log_end_offset < max(high_watermark, self._epoch_start):
            return None
        # It counts at once: if the proposal fails, the high watermark has waited for one too many, and no harm is done.
        self.maximal_isr = (*self.committed.isr, follower)
        return self._propose(self.maximal_isr)

    def shrink(self, leader_end: Offset, now: int) -> LeaderAndIsr | None:
        """Proposes an ISR without those that are not caught up; returns None if all are, or if a proposal is pending.

        Called from time to time, at least twice in replica.lag.time.max.ms.  Who goes counts until it is gone.
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
        """Takes in the answer to a proposal, the object itself; returns True if it is to be proposed again.

        `state` is the partition's state where there is no error.  An answer to a proposal that is not pending any more
        changes nothing.  An error that leaves it pending for good is followed by a LeaderAndIsr.
        """
        if proposal is not self.pending:  # An equal one may have been for a follower's process before its restart.
            return False
        if error is ErrorCode.NONE:
            assert state is not None, "an answer without an error has the state"
            if self._is_answer(state, proposal):
                self._commit(state)
            return False
        if error in NOT_APPLIED:
            self._commit(self.committed)
            return False
        return error not in STATE_IS_OLD

    def told(self, state: LeaderAndIsr, replicas: Sequence[BrokerId], leader_end: Offset, now: int) -> bool:
        """Takes in a LeaderAndIsr that has this broker lead on; returns False if it is older than what is known.

        If `pending` is still there afterwards, it is to be proposed again.
        """
        ours = self.committed
        if state.leader_epoch < ours.leader_epoch or state.partition_epoch < ours.partition_epoch:
            return False
        # Kafka also lets the state that it was proposed for end what is pending.  That may have been sent before the
        # proposal came, which is then in force, and the high watermark would pass the end of who has joined.
        if (state.leader_epoch, state.partition_epoch) > (ours.leader_epoch, ours.partition_epoch):
            self._commit(state)
        # Somebody else may have led in an epoch that was missed, and followers may have cut off what they had from us.
        if state.leader_epoch > ours.leader_epoch + 1:
            self._followers.clear()
        self._replicas = tuple(replicas)
        self._set_followers(now)
        if state.leader_epoch > ours.leader_epoch:
            self._epoch_start = leader_end
            for broker, follower in self._followers.items():
                follower.leader_epoch_began(leader_end, now, is_in_sync=broker in state.isr)
        return True

    @property
    def is_alone(self) -> bool:
        """True if nobody else is in the ISR, or may not be: a record that this broker loses may be lost for good.

        Who is about to join has the record, and is not elected before it has joined.
        """
        pending = self.pending
        return len(self.committed.isr) == 1 or (pending is not None and len(pending.isr) == 1)

    @property
    def has_outsiders(self) -> bool:
        """True if a follower is not in the maximal ISR: as time goes on the high watermark may stop to wait for it."""
        return len(self.maximal_isr) <= len(self._followers)

    def is_under_min_isr(self, min_isr: int) -> bool:
        """True if the committed ISR is too small for acks=all, which is refused with NOT_ENOUGH_REPLICAS.

        No more are asked for than there are replicas.
        """
        return len(self.committed.isr) < min(min_isr, len(self._replicas))

    def is_under_min_isr_after_append(self, min_isr: int) -> bool:
        """True if the maximal ISR (as in Kafka) is too small at the answer: NOT_ENOUGH_REPLICAS_AFTER_APPEND."""
        return len(self.maximal_isr) < min(min_isr, len(self._replicas))

    def _propose(self, isr: tuple[BrokerId, ...]) -> LeaderAndIsr:
        assert self.pending is None, "one proposal at a time, each for the state that the one before has led to"
        # Who leads has recovered (KIP-704): nobody could join its ISR otherwise.
        self.pending = self.committed._replace(isr=isr, recovery=RECOVERED)
        # Also when it is repeated: a follower that has restarted since may lack what it was proposed for (KIP-903).
        self.pending_epochs = tuple(
            self._followers[one].broker_epoch if one != self.broker else NO_BROKER_EPOCH for one in isr
        )
        self._check()
        return self.pending

    def _commit(self, state: LeaderAndIsr) -> None:
        self.committed, self.pending, self.pending_epochs, self.maximal_isr = state, None, (), state.isr
        self._check()

    def _check(self) -> None:
        assert self.committed.leader == self.broker, "who keeps an ISR leads"
        assert self.broker in self.committed.isr, "the leader is in its ISR"
        assert {*self.committed.isr} <= {*self.maximal_isr}, "the maximal ISR has all that may be elected now"
        assert self.pending is None or {self.broker} <= {*self.pending.isr} <= {*self.maximal_isr}, "or by a proposal"

    def _set_followers(self, now: int) -> None:
        """Has a Follower for each of the replicas, and of the ISR, which is waited for in any case."""
        isr, before = self.committed.isr, self._followers
        wanted = dict.fromkeys(one for one in (*self._replicas, *self.maximal_isr) if one != self.broker)
        self._followers = {
            broker: before.get(broker) or Follower(broker, now, is_in_sync=broker in isr) for broker in wanted
        }

    def _is_answer(self, state: LeaderAndIsr, proposal: LeaderAndIsr) -> bool:
        """True if the state is what has become of the state that the proposal was for, or still is that state."""
        isr = {*state.isr}
        is_ours = state.leader == self.broker and state.leader_epoch == proposal.leader_epoch
        if not is_ours or not {self.broker} <= isr <= {self.broker, *self._followers}:
            return False
        is_same = state.partition_epoch == proposal.partition_epoch and isr in ({*proposal.isr}, {*self.committed.isr})
        return is_same or state.partition_epoch > proposal.partition_epoch

    def _is_in_sync(self, broker: BrokerId, leader_end: Offset, now: int) -> bool:
        return broker == self.broker or self._followers[broker].is_caught_up(leader_end, now, self._lag_ms_max)
