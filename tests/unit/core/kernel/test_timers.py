"""Timers: they run at their time, in order, unless they are cancelled."""

from __future__ import annotations

from odradek.base.units import TimestampMs
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.timers import Timers


def moment(steady: int) -> Moment:
    return Moment(TimestampMs(1_700_000_000_000 + steady), steady)


def test_timers_run_in_order_and_not_before_their_time() -> None:
    timers, happened = Timers(), []
    for due in (30, 10, 20, 10):
        timers.at(due, lambda now, due=due: happened.append((due, now.steady)))  # type: ignore[misc]
    assert timers.next_due() == 10
    timers.tick(moment(9))
    assert happened == []
    timers.tick(moment(25))
    assert happened == [(10, 25), (10, 25), (20, 25)]
    assert timers.next_due() == 30
    assert len(timers) == 1


def test_a_cancelled_timer_does_nothing() -> None:
    timers, happened = Timers(), []
    first = timers.at(10, lambda now: happened.append(1))
    timers.at(20, lambda now: happened.append(2))
    first.cancel()
    first.cancel()
    assert not first.is_set
    assert timers.next_due() == 20
    timers.tick(moment(30))
    assert happened == [2]
    assert timers.next_due() is None


def test_timer_set_for_now_by_another_timer_runs_now() -> None:
    timers, happened = Timers(), []

    def first(now: Moment) -> None:
        timers.at(now.steady, lambda later: happened.append("second"))
        happened.append("first")

    timers.at(10, first)
    timers.tick(moment(10))
    assert happened == ["first", "second"]


def test_cancelled_timers_are_removed_from_the_heap() -> None:
    timers = Timers()
    kept = timers.at(1_000_000, lambda now: None)
    for number in range(100_000):
        timers.at(500_000 + number, lambda now: None).cancel()
    assert len(timers._heap) < 1000
    assert timers.next_due() == kept.due


def test_a_timer_may_cancel_another_that_is_due() -> None:
    timers, happened = Timers(), []
    second = None

    def first(now: Moment) -> None:
        assert second is not None
        second.cancel()

    timers.at(10, first)
    second = timers.at(10, lambda now: happened.append("second"))
    timers.tick(moment(10))
    assert happened == []
