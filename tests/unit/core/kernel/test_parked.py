"""Requests that wait: woken by what they wait for, by their deadline, and never twice."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from odradek.core.kernel.parked import BUCKET_MS, Parked, ParkingLot


@dataclass(eq=False)
class When:
    """Fulfilled by these news on these keys."""

    keys: tuple[Hashable, ...]
    news: object = "now"

    def fulfilled_by(self, key: Hashable, news: object) -> bool:
        return news == self.news


def parked(*keys: Hashable, deadline: int = 1000, answer: str = "") -> Parked[object]:
    return Parked(When(keys), deadline, lambda: answer or keys[0])


def answers(lot: ParkingLot) -> list[object]:
    return [one.then() for one in lot.take_completed()]


def test_woken_by_any_of_its_keys_and_only_once() -> None:
    lot = ParkingLot()
    lot.park(parked("a", "b"))
    lot.happened("c", "now")
    lot.happened("b", "too early")
    assert answers(lot) == []
    lot.happened("b", "now")
    lot.happened("a", "now")
    lot.tick(10_000)
    assert answers(lot) == ["a"]
    assert len(lot) == 0


def test_many_on_one_key_are_answered_in_order_of_arrival() -> None:
    lot = ParkingLot()
    for number in range(5):
        lot.park(parked("a", answer=f"{number}"))
    lot.happened("a", "now")
    assert answers(lot) == ["0", "1", "2", "3", "4"]


def test_those_of_one_deadline_are_answered_in_order_of_arrival() -> None:
    """Not in that of their addresses: one seed is to be one history."""
    for end in (lambda lot: lot.tick(10_000), ParkingLot.complete_all):
        lot = ParkingLot()
        numbers = [str(number) for number in range(100)]
        for number in numbers:
            lot.park(parked(f"key {number}", answer=number))
        end(lot)
        assert answers(lot) == numbers


def test_deadline_answers_not_before_its_time_and_hardly_after() -> None:
    lot = ParkingLot()
    lot.park(parked("a", deadline=1001))
    due = lot.next_deadline()
    assert due is not None and 1001 <= due < 1001 + BUCKET_MS
    lot.tick(1000)
    assert answers(lot) == []
    lot.tick(due)
    assert answers(lot) == ["a"]
    assert lot.next_deadline() is None


def test_forgotten_is_not_answered_and_leaves_nothing_behind() -> None:
    lot = ParkingLot()
    one = parked("a", "b")
    lot.park(one)
    lot.forget(one)
    lot.happened("a", "now")
    lot.tick(10_000)
    assert answers(lot) == []
    lot.forget(one)


def test_deadlines_go_on_after_a_bucket_was_emptied() -> None:
    lot = ParkingLot()
    first, second = parked("a", deadline=100), parked("b", deadline=100)
    lot.park(first)
    lot.happened("a", "now")
    lot.park(second)
    lot.tick(100 + BUCKET_MS)
    assert answers(lot) == ["a", "b"]


def test_stopping_answers_everyone() -> None:
    lot = ParkingLot()
    lot.park(parked("a", deadline=5))
    lot.park(parked("b", deadline=50_000))
    lot.complete_all()
    assert sorted(map(str, answers(lot))) == ["a", "b"]
