"""Partition leader elections: invariants, and the cases that users ask about."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.units import NO_BROKER, BrokerId, LeaderEpoch
from odradek.core.controller.partition_leader_election import (
    Brokers,
    ElectionResult,
    first,
    for_controlled_shutdown,
    for_offline,
    for_preferred,
    for_reassignment,
    without,
)
from odradek.core.kernel.cluster_view import RECOVERING, LeaderAndIsr

BROKERS = st.integers(1, 5).map(BrokerId)
LISTS = st.lists(BROKERS, unique=True, max_size=5).map(tuple)
SETS = st.frozensets(BROKERS)


def state(*isr: int, leader: int = 1, epoch: int = 7) -> LeaderAndIsr:
    return LeaderAndIsr(BrokerId(leader), LeaderEpoch(epoch), ids(*isr))


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def brokers(*ids: int) -> Brokers:
    return frozenset(map(BrokerId, ids))


def leader_and_isr(elected: ElectionResult | None) -> tuple[int, tuple[int, ...]] | None:
    return None if elected is None else (elected.state.leader, elected.state.isr)


def test_first_live_replica_in_the_isr_replaces_a_dead_leader() -> None:
    found = for_offline(state(3, 1, 2), ids(1, 2, 3), brokers(2, 3), may_be_unclean=False)
    assert leader_and_isr(found) == (2, (3, 2)), "the first of the replicas, not of the ISR"
    assert found is not None and found.state.leader_epoch == 8 and not found.is_unclean


def test_partition_without_live_isr_needs_an_unclean_election() -> None:
    """The configuration decides between availability and keeping all records."""
    waiting = state(1)
    assert for_offline(waiting, ids(1, 2, 3), brokers(2, 3), may_be_unclean=False) is None
    found = for_offline(waiting, ids(1, 2, 3), brokers(2, 3), may_be_unclean=True)
    assert leader_and_isr(found) == (2, (2,))
    assert found is not None and found.is_unclean and found.state.recovery == RECOVERING
    assert for_offline(waiting, ids(1, 2, 3), brokers(), may_be_unclean=True) is None


def test_unclean_leader_before_kafka_3_2_has_no_recovery_state() -> None:
    found = for_offline(state(1), ids(1, 2, 3), brokers(2, 3), may_be_unclean=True, has_recovery=False)
    assert leader_and_isr(found) == (2, (2,))
    assert found is not None and found.is_unclean and found.state.recovery != RECOVERING


def test_clean_election_precedes_unclean_election() -> None:
    found = for_offline(state(3), ids(1, 2, 3), brokers(1, 2, 3), may_be_unclean=True)
    assert leader_and_isr(found) == (3, (3,))
    assert found is not None and not found.is_unclean


def test_preferred_leader_must_be_in_sync() -> None:
    assert leader_and_isr(for_preferred(state(2, 1, leader=2), ids(1, 2), brokers(1, 2))) == (1, (2, 1))
    assert for_preferred(state(2, leader=2), ids(1, 2), brokers(1, 2)) is None
    assert for_preferred(state(2, 1, leader=2), ids(1, 2), brokers(2)) is None


def test_reassigned_partition_is_led_by_a_target_replica() -> None:
    found = for_reassignment(state(1, 3), ids(2, 3), brokers(1, 2, 3))
    assert leader_and_isr(found) == (3, (1, 3))


def test_stopping_leader_hands_over_to_a_running_replica() -> None:
    """Other stopping brokers are not elected."""
    found = for_controlled_shutdown(state(1, 2, 3), ids(1, 2, 3), brokers(1, 2, 3), brokers(1, 2))
    assert leader_and_isr(found) == (3, (3,))
    assert for_controlled_shutdown(state(1, 2), ids(1, 2), brokers(1, 2), brokers(1, 2)) is None


def test_new_partition_is_led_by_its_first_live_replica() -> None:
    found = first(ids(3, 1, 2), brokers(1, 2))
    assert found is not None and (found.leader, found.leader_epoch, found.isr) == (1, 0, (1, 2))
    assert first(ids(3), brokers(1, 2)) is None


def test_dead_replica_leaves_the_isr_unless_it_is_the_last() -> None:
    after = without(state(1, 2, 3), brokers(3))
    assert (after.leader, after.leader_epoch, after.isr) == (1, 8, (1, 2))
    after = without(state(1, 2), brokers(1, 2))
    assert (after.leader, after.leader_epoch, after.isr) == (NO_BROKER, 8, (2,)), "one stays, who has all records"
    assert without(after, brokers(1, 2)) == after


@given(LISTS, LISTS, SETS, SETS, LISTS, st.booleans())
def test_every_election_keeps_its_invariants(  # noqa: PLR0917
    replicas: tuple[BrokerId, ...],
    isr: tuple[BrokerId, ...],
    alive: Brokers,
    stopping: Brokers,
    targets: tuple[BrokerId, ...],
    may_be_unclean: bool,
) -> None:
    before = state(*isr)
    for elected in (
        for_offline(before, replicas, alive, may_be_unclean=may_be_unclean),
        for_preferred(before, replicas, alive),
        for_reassignment(before, targets, alive),
        for_controlled_shutdown(before, replicas, alive, stopping),
    ):
        if elected is None:
            continue
        after = elected.state
        assert after.leader in alive and after.leader in after.isr
        assert after.leader_epoch == before.leader_epoch + 1
        assert elected.is_unclean or (after.leader in isr and set(after.isr) <= set(isr))
        assert may_be_unclean or not elected.is_unclean
