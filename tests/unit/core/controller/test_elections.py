"""Elections: what must hold of each, and the cases that people ask about."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.units import BrokerId, LeaderEpoch
from odradek.core.cluster import PartitionInfo
from odradek.core.controller.elections import (
    Brokers,
    Elected,
    for_controlled_shutdown,
    for_offline,
    for_preferred,
    for_reassignment,
)

BROKERS = st.integers(1, 5).map(BrokerId)
LISTS = st.lists(BROKERS, unique=True, max_size=5).map(tuple)
SETS = st.frozensets(BROKERS)


def info(*replicas: int, isr: tuple[int, ...], leader: int = 1, epoch: int = 7) -> PartitionInfo:
    return PartitionInfo(
        BrokerId(leader), LeaderEpoch(epoch), tuple(map(BrokerId, replicas)), tuple(map(BrokerId, isr))
    )


def brokers(*ids: int) -> Brokers:
    return frozenset(map(BrokerId, ids))


def leader_and_isr(elected: Elected | None) -> tuple[int, tuple[int, ...]] | None:
    return None if elected is None else (elected.info.leader, elected.info.isr)


def test_the_leader_is_gone() -> None:
    found = for_offline(info(1, 2, 3, isr=(3, 1, 2)), brokers(2, 3), may_be_unclean=False)
    assert leader_and_isr(found) == (2, (3, 2)), "the first of the replicas, not of the ISR"
    assert found is not None and found.info.leader_epoch == 8 and not found.is_unclean


def test_none_of_the_isr_lives() -> None:
    """Availability or the records: what is configured decides."""
    waiting = info(1, 2, 3, isr=(1,))
    assert for_offline(waiting, brokers(2, 3), may_be_unclean=False) is None
    found = for_offline(waiting, brokers(2, 3), may_be_unclean=True)
    assert leader_and_isr(found) == (2, (2,))
    assert found is not None and found.is_unclean
    assert for_offline(waiting, brokers(), may_be_unclean=True) is None


def test_clean_comes_before_unclean() -> None:
    found = for_offline(info(1, 2, 3, isr=(3,)), brokers(1, 2, 3), may_be_unclean=True)
    assert leader_and_isr(found) == (3, (3,))
    assert found is not None and not found.is_unclean


def test_the_preferred_one_has_to_be_in_sync() -> None:
    assert leader_and_isr(for_preferred(info(1, 2, isr=(2, 1), leader=2), brokers(1, 2))) == (1, (2, 1))
    assert for_preferred(info(1, 2, isr=(2,), leader=2), brokers(1, 2)) is None
    assert for_preferred(info(1, 2, isr=(2, 1), leader=2), brokers(2)) is None


def test_a_reassignment_is_led_by_one_of_its_targets() -> None:
    found = for_reassignment(info(1, 2, 3, isr=(1, 3)), tuple(map(BrokerId, (2, 3))), brokers(1, 2, 3))
    assert leader_and_isr(found) == (3, (1, 3))


def test_who_stops_hands_over() -> None:
    """The others that stop too do not get it."""
    found = for_controlled_shutdown(info(1, 2, 3, isr=(1, 2, 3)), brokers(1, 2, 3), brokers(1, 2))
    assert leader_and_isr(found) == (3, (3,))
    assert for_controlled_shutdown(info(1, 2, isr=(1, 2)), brokers(1, 2), brokers(1, 2)) is None


@given(LISTS, LISTS, SETS, SETS, LISTS, st.booleans())
def test_any(  # noqa: PLR0917
    replicas: tuple[BrokerId, ...],
    isr: tuple[BrokerId, ...],
    alive: Brokers,
    stopping: Brokers,
    targets: tuple[BrokerId, ...],
    may_be_unclean: bool,
) -> None:
    before = info(*replicas, isr=isr)
    for elected in (
        for_offline(before, alive, may_be_unclean=may_be_unclean),
        for_preferred(before, alive),
        for_reassignment(before, targets, alive),
        for_controlled_shutdown(before, alive, stopping),
    ):
        if elected is None:
            continue
        after = elected.info
        assert after.leader in alive and after.leader in after.isr
        assert after.leader_epoch == before.leader_epoch + 1 and after.replicas == before.replicas
        assert elected.is_unclean or (after.leader in isr and set(after.isr) <= set(isr))
        assert may_be_unclean or not elected.is_unclean
