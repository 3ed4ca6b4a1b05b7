"""Rules of the ISR, one case each."""

from __future__ import annotations

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId, LeaderEpoch, Offset
from odradek.core.kernel.cluster_view import RECOVERED, RECOVERING, LeaderAndIsr
from odradek.core.partition.in_sync_replicas import STATE_IS_OLD, InSyncReplicas

LEADER, SECOND, THIRD, STRANGER = (BrokerId(one) for one in (1, 2, 3, 9))
REPLICAS = (LEADER, SECOND, THIRD)
LAG_MS = 30_000
ELIGIBLE = {LEADER: 10, SECOND: 20, THIRD: 30}
EPOCH_START = 100


def state(*isr: BrokerId, version: int = 5, epoch: int = 7, recovery: int = RECOVERED) -> LeaderAndIsr:
    return LeaderAndIsr(LEADER, LeaderEpoch(epoch), isr, recovery, partition_epoch=version)


class Leader:
    """A leader's ISR with short calls: `end` is its log end offset, and `now` is the time."""

    def __init__(self, *isr: BrokerId, replicas: tuple[BrokerId, ...] = REPLICAS, recovery: int = RECOVERED) -> None:
        self.now = 0
        self.end = EPOCH_START
        self.eligible = dict(ELIGIBLE)
        self.high_watermark = Offset(0)
        start = Offset(EPOCH_START)
        self.in_sync = InSyncReplicas(
            LEADER, state(*isr, recovery=recovery), replicas, start, self.now, lag_ms_max=LAG_MS
        )

    def fetch(self, follower: BrokerId, offset: int, broker_epoch: int = -1, start: int = 0, epoch: int = -1) -> bool:
        return self.in_sync.fetched(
            follower,
            Offset(offset),
            Offset(start),
            Offset(self.end),
            self.now,
            eligible=self.eligible,
            broker_epoch=broker_epoch,
            leader_epoch=epoch,
        )

    def advanced(self, min_isr: int = 1) -> int:
        end, current = Offset(self.end), self.high_watermark
        self.high_watermark = self.in_sync.high_watermark(end, current, self.now, self.eligible, min_isr)
        return self.high_watermark

    def expand(self, follower: BrokerId) -> LeaderAndIsr | None:
        return self.in_sync.expand(follower, self.high_watermark, self.eligible)

    def shrink(self) -> LeaderAndIsr | None:
        return self.in_sync.shrink(Offset(self.end), self.now)

    def apply_state(self, new: LeaderAndIsr, replicas: tuple[BrokerId, ...] = REPLICAS) -> bool:
        return self.in_sync.apply_leader_and_isr(new, replicas, Offset(self.end), self.now)


def joining() -> tuple[Leader, LeaderAndIsr]:
    """Return a leader alone in its ISR, and its pending proposal to add the second replica."""
    leader = Leader(LEADER)
    leader.advanced()
    leader.fetch(SECOND, leader.end)
    proposal = leader.expand(SECOND)
    assert proposal is not None
    return leader, proposal


# The high watermark.


def test_high_watermark_of_a_lone_leader_is_its_own_end() -> None:
    assert Leader(LEADER, replicas=(LEADER,)).advanced() == EPOCH_START


def test_high_watermark_is_the_lowest_end_of_the_isr() -> None:
    leader = Leader(LEADER, SECOND, THIRD)
    leader.fetch(SECOND, 90)
    assert leader.advanced() == 0, "the third has not fetched yet, and may have less"
    leader.fetch(THIRD, 80)
    assert leader.advanced() == 80
    leader.fetch(THIRD, 100)
    assert leader.advanced() == 90


def test_high_watermark_does_not_follow_a_follower_backwards() -> None:
    leader = Leader(LEADER, SECOND, replicas=(LEADER, SECOND))
    leader.fetch(SECOND, 90)
    assert leader.advanced() == 90
    leader.fetch(SECOND, 50)
    assert leader.advanced() == 90


def test_the_high_watermark_stays_below_the_leaders_durable_end() -> None:
    leader = Leader(LEADER, SECOND, replicas=(LEADER, SECOND))
    leader.fetch(SECOND, 100)
    durable = Offset(60)
    assert leader.in_sync.high_watermark(durable, Offset(0), 0, leader.eligible, 1) == durable


def test_high_watermark_waits_for_a_follower_about_to_join() -> None:
    leader = Leader(LEADER)
    leader.fetch(SECOND, 100)
    leader.end = 110
    assert leader.advanced() == 100
    leader.now = LAG_MS + 1
    assert leader.advanced() == 110, "but not for ever"


def test_high_watermark_does_not_wait_for_ineligible_followers() -> None:
    leader = Leader(LEADER)
    leader.fetch(SECOND, 100)
    leader.end = 110
    del leader.eligible[SECOND]
    assert leader.advanced() == 110


def test_high_watermark_does_not_advance_with_too_small_an_isr() -> None:
    leader = Leader(LEADER)
    assert leader.advanced(min_isr=2) == 0
    assert leader.advanced(min_isr=1) == EPOCH_START


def test_min_isr_is_limited_to_the_number_of_replicas() -> None:
    leader = Leader(LEADER, replicas=(LEADER,))
    assert leader.advanced(min_isr=2) == EPOCH_START
    assert not leader.in_sync.is_under_min_isr(2)


# Fetches.


def test_fetch_returns_whether_the_follower_end_changed() -> None:
    leader = Leader(LEADER, SECOND)
    assert [leader.fetch(SECOND, offset) for offset in (90, 90, 95, 90)] == [True, False, True, True]


@pytest.mark.parametrize(
    ("epoch", "code"), [(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER), (7, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_fetch_of_a_broker_without_a_replica_is_refused(epoch: int, code: ErrorCode) -> None:
    with pytest.raises(Refused) as refused:
        Leader(LEADER).fetch(STRANGER, 0, epoch=epoch)
    assert refused.value.code is code


def test_fetch_with_an_old_broker_epoch_is_refused() -> None:
    leader = Leader(LEADER, SECOND)
    for known_by in (lambda: leader.eligible.update({SECOND: 21}), lambda: leader.fetch(SECOND, 5, broker_epoch=22)):
        known_by()
        with pytest.raises(Refused) as refused:
            leader.fetch(SECOND, 100, broker_epoch=20)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.advanced() == 5


def test_absurd_broker_epoch_excludes_a_follower_only_for_a_time() -> None:
    """No fetch repeats it, and the follower's own fetches are accepted after replica.lag.time.max.ms."""
    leader = Leader(LEADER, SECOND)
    leader.fetch(SECOND, 5, broker_epoch=20)
    leader.fetch(SECOND, 5, broker_epoch=2**63 - 1)
    for leader.now in (0, LAG_MS):
        with pytest.raises(Refused):
            leader.fetch(SECOND, 6, broker_epoch=20)
    leader.now = LAG_MS + 1
    assert leader.fetch(SECOND, 6, broker_epoch=20)
    leader.eligible[SECOND] = 21  # An epoch from the cluster metadata does not expire.
    leader.now *= 10
    with pytest.raises(Refused):
        leader.fetch(SECOND, 7, broker_epoch=20)


def test_low_watermark_is_the_lowest_start_of_live_replicas() -> None:
    leader = Leader(LEADER, SECOND, THIRD)
    own = Offset(50)
    assert leader.in_sync.low_watermark(own, REPLICAS) == -1, "nobody has fetched yet"
    leader.fetch(SECOND, 100, start=40)
    leader.fetch(THIRD, 100, start=60)
    assert leader.in_sync.low_watermark(own, REPLICAS) == 40
    assert leader.in_sync.low_watermark(own, (LEADER, THIRD)) == 50


# Expansion of the ISR.


def test_follower_joins_the_isr_at_the_high_watermark() -> None:
    leader = Leader(LEADER, THIRD)
    leader.end = 120
    leader.fetch(THIRD, 110)
    leader.advanced()
    leader.fetch(SECOND, 109)
    assert leader.expand(SECOND) is None
    leader.fetch(SECOND, 110, broker_epoch=20)
    assert leader.expand(SECOND) == state(LEADER, THIRD, SECOND)
    assert leader.in_sync.maximal_isr == (LEADER, THIRD, SECOND)
    assert leader.in_sync.committed.isr == (LEADER, THIRD)
    assert leader.in_sync.pending_epochs == (-1, -1, 20)


def test_follower_joins_only_after_the_start_of_the_leader_epoch() -> None:
    """A new leader's high watermark may be below the one that its predecessor has exposed."""
    leader = Leader(LEADER)
    leader.fetch(SECOND, EPOCH_START - 1)
    assert leader.expand(SECOND) is None
    leader.fetch(SECOND, EPOCH_START)
    assert leader.expand(SECOND) is not None


@pytest.mark.parametrize("eligible", [{}, {SECOND: 21}], ids=["dead or shutting down", "restarted"])
def test_ineligible_follower_does_not_join(eligible: dict[BrokerId, int]) -> None:
    leader = Leader(LEADER)
    leader.fetch(SECOND, 100, broker_epoch=20)
    leader.eligible = eligible
    assert leader.expand(SECOND) is None


def test_proposal_of_a_recovering_leader_marks_it_recovered() -> None:
    leader = Leader(LEADER, recovery=RECOVERING)
    leader.fetch(SECOND, 100)
    proposal = leader.expand(SECOND)
    assert proposal is not None and proposal.recovery == RECOVERED


def test_one_change_is_proposed_at_a_time() -> None:
    leader, _ = joining()
    leader.fetch(THIRD, 100)
    leader.now = 2 * LAG_MS
    assert leader.expand(THIRD) is None and leader.shrink() is None
    assert leader.in_sync.pending == state(LEADER, SECOND)


# Removal from the ISR.


def test_follower_that_never_fetches_is_removed_after_the_lag_time() -> None:
    leader = Leader(LEADER, SECOND, THIRD)
    leader.fetch(SECOND, 100)
    leader.now = LAG_MS
    assert leader.shrink() is None
    leader.now += 1
    assert leader.shrink() == state(LEADER, SECOND), "the second has all there is, however long ago it fetched"


def test_removed_follower_delays_the_high_watermark_until_the_commit() -> None:
    leader = Leader(LEADER, SECOND)
    leader.now = LAG_MS + 1
    proposal = leader.shrink()
    assert proposal == state(LEADER)
    assert leader.advanced() == 0
    assert not leader.in_sync.altered(proposal, ErrorCode.NONE, state(LEADER, version=6))
    assert leader.advanced() == EPOCH_START


def test_follower_slightly_behind_stays_in_the_isr() -> None:
    leader = Leader(LEADER, SECOND)
    for _ in range(10):
        leader.now += LAG_MS // 2
        leader.fetch(SECOND, leader.end)
        leader.end += 10
    leader.now += LAG_MS // 2
    assert leader.shrink() is None
    for _ in range(4):  # Each fetch starts at the end of the one before the last.
        leader.now += LAG_MS // 2
        offset, leader.end = leader.end, leader.end + 10
        leader.fetch(SECOND, offset)
        assert leader.shrink() is None


def test_fetching_follower_that_falls_behind_is_removed() -> None:
    leader = Leader(LEADER, SECOND)
    for offset in range(10):
        leader.now += LAG_MS // 4
        leader.end += 100
        leader.fetch(SECOND, offset)
    assert leader.shrink() == state(LEADER)


# Responses of the controller.


def test_response_with_a_newer_state_is_committed() -> None:
    leader, proposal = joining()
    committed = state(LEADER, SECOND, version=6)
    assert not leader.in_sync.altered(proposal, ErrorCode.NONE, committed)
    assert leader.in_sync.committed == committed and leader.in_sync.pending is None


@pytest.mark.parametrize("isr", [(LEADER, SECOND), (LEADER,)], ids=["proposed", "as it was"])
def test_response_with_the_same_version_ends_the_proposal(isr: tuple[BrokerId, ...]) -> None:
    leader, proposal = joining()
    leader.in_sync.altered(proposal, ErrorCode.NONE, state(*isr))
    assert leader.in_sync.committed.isr == leader.in_sync.maximal_isr == isr
    assert leader.in_sync.pending is None


@pytest.mark.parametrize(
    "answer",
    [
        state(LEADER, SECOND, version=4),
        state(LEADER, THIRD, version=5),
        state(LEADER, SECOND, version=6, epoch=8),
        state(SECOND, version=6),
        state(LEADER, SECOND, STRANGER, version=6),
    ],
    ids=["older", "another ISR", "another leader epoch", "without the leader", "with a stranger"],
)
def test_mismatched_response_leaves_the_proposal_pending(answer: LeaderAndIsr) -> None:
    leader, proposal = joining()
    assert not leader.in_sync.altered(proposal, ErrorCode.NONE, answer)
    assert leader.in_sync.pending == proposal and leader.in_sync.committed == state(LEADER)


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_proposal_that_was_surely_not_applied_ends(error: ErrorCode) -> None:
    leader, proposal = joining()
    assert not leader.in_sync.altered(proposal, error)
    assert leader.in_sync.pending is None and leader.in_sync.maximal_isr == (LEADER,)


@pytest.mark.parametrize("error", sorted(STATE_IS_OLD))
def test_outdated_proposal_is_pending_until_the_new_state_arrives(error: ErrorCode) -> None:
    leader, proposal = joining()
    assert not leader.in_sync.altered(proposal, error)
    assert leader.in_sync.pending == proposal
    assert leader.apply_state(state(LEADER, version=6))
    assert leader.in_sync.pending is None and leader.in_sync.maximal_isr == (LEADER,)


@pytest.mark.parametrize(
    "error", [ErrorCode.NOT_CONTROLLER, ErrorCode.NETWORK_EXCEPTION, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_proposal_is_retried_after_any_other_error(error: ErrorCode) -> None:
    leader, proposal = joining()
    assert leader.in_sync.altered(proposal, error)
    assert leader.in_sync.pending == proposal and leader.in_sync.maximal_isr == (LEADER, SECOND)


def test_retried_proposal_keeps_its_broker_epochs() -> None:
    """Otherwise the controller would accept a restarted follower that has lost records."""
    leader = Leader(LEADER)
    leader.fetch(SECOND, 100, broker_epoch=20)
    proposal = leader.expand(SECOND)
    assert proposal is not None
    leader.fetch(SECOND, 3, broker_epoch=21)
    assert leader.in_sync.altered(proposal, ErrorCode.NETWORK_EXCEPTION)
    assert leader.in_sync.pending_epochs == (-1, 20)


def test_late_response_to_another_proposal_changes_nothing() -> None:
    leader, proposal = joining()
    leader.apply_state(state(LEADER, version=6))
    leader.fetch(THIRD, 100)
    other = leader.expand(THIRD)
    for error in ErrorCode:
        assert not leader.in_sync.altered(proposal, error, state(LEADER, SECOND, version=6))
    assert leader.in_sync.pending == other is not None


# Controller updates.


def test_repeated_state_leaves_a_proposal_pending() -> None:
    """It may precede the proposal, and the second replica may be elected already."""
    leader, proposal = joining()
    leader.end = 200
    assert leader.apply_state(state(LEADER))
    assert leader.in_sync.pending == proposal
    assert leader.advanced() == 100


@pytest.mark.parametrize("old", [state(LEADER, THIRD, version=4), state(LEADER, THIRD, version=9, epoch=6)])
def test_older_state_is_ignored(old: LeaderAndIsr) -> None:
    leader, proposal = joining()
    assert not leader.apply_state(old)
    assert leader.in_sync.pending == proposal and leader.in_sync.committed == state(LEADER)


def test_high_watermark_ignores_replicas_removed_by_the_controller() -> None:
    leader = Leader(LEADER, SECOND, THIRD)
    leader.fetch(SECOND, 100)
    del leader.eligible[THIRD]
    leader.apply_state(state(LEADER, SECOND, version=6))
    assert leader.advanced() == 100


def test_leader_keeps_follower_state_in_the_next_epoch() -> None:
    leader = Leader(LEADER, SECOND, THIRD)
    leader.fetch(SECOND, 100)
    leader.fetch(THIRD, 100)
    leader.end, leader.now = 150, LAG_MS
    assert leader.apply_state(state(LEADER, SECOND, version=6, epoch=8))
    assert leader.advanced() == 100, "what followers have stays known"
    leader.now += LAG_MS
    assert leader.shrink() is None, "who is in the ISR was caught up when the epoch began"
    leader.fetch(THIRD, 149)
    assert leader.expand(THIRD) is None
    leader.fetch(THIRD, 150)
    assert leader.expand(THIRD) == state(LEADER, SECOND, THIRD, version=6, epoch=8)


def test_leader_that_missed_an_epoch_resets_follower_state() -> None:
    """Another broker may have led in between, and the followers may have truncated to its log."""
    leader = Leader(LEADER, SECOND)
    leader.fetch(SECOND, 50)
    leader.apply_state(state(LEADER, SECOND, version=7, epoch=9))
    assert leader.advanced() == 0
    leader.fetch(SECOND, 50)
    assert leader.advanced() == 50


def test_replicas_are_added_and_removed() -> None:
    leader = Leader(LEADER, SECOND)
    leader.fetch(SECOND, 90)
    assert leader.apply_state(state(LEADER, SECOND, version=6), (LEADER, SECOND, STRANGER))
    assert leader.fetch(STRANGER, 80)
    with pytest.raises(Refused):
        leader.fetch(THIRD, 80)
    assert leader.advanced() == 90


# min.insync.replicas.


def test_produce_checks_the_committed_isr_and_then_the_maximal_one() -> None:
    leader, _ = joining()
    assert leader.in_sync.is_under_min_isr(2)
    assert not leader.in_sync.is_under_min_isr_after_append(2)
    assert leader.in_sync.is_under_min_isr_after_append(3)


def test_a_leader_that_is_not_in_its_isr_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        Leader(SECOND)


def test_leader_with_replicas_outside_the_isr_has_outsiders() -> None:
    assert not Leader(*REPLICAS).in_sync.has_outsiders
    leader = Leader(LEADER, SECOND)
    assert leader.in_sync.has_outsiders
    leader.fetch(THIRD, EPOCH_START)
    assert leader.expand(THIRD) is not None
    assert not leader.in_sync.has_outsiders, "it is waited for until it is known not to join"
