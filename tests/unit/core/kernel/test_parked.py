"""Parked requests: completed by an event or by their deadline, and never twice."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from odradek.core.kernel.parked import BUCKET_MS, Parked, ParkingLot


@dataclass(eq=False)
class When:
    """A condition that the given news on its keys fulfils."""

    keys: tuple[Hashable, ...]
    news: object = "now"

    def fulfilled_by(self, key: Hashable, news: object) -> bool:
        return news == self.news


def parked(*keys: Hashable, deadline: int = 1000, answer: str = "") -> Parked[object]:
    return Parked(When(keys), deadline, lambda: answer or keys[0])


def answers(lot: ParkingLot) -> list[object]:
    return [one.then() for one in lot.take_completed()]


def test_parked_request_is_completed_once_by_any_of_its_keys() -> None:
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


def test_requests_on_one_key_complete_in_arrival_order() -> None:
    lot = ParkingLot()
    for number in range(5):
        lot.park(parked("a", answer=f"{number}"))
    lot.happened("a", "now")
    assert answers(lot) == ["0", "1", "2", "3", "4"]


def test_requests_with_one_deadline_complete_in_arrival_order() -> None:
    """Not in the order of their addresses: one seed must give one history."""
    for end in (lambda lot: lot.tick(10_000), ParkingLot.complete_all):
        lot = ParkingLot()
        numbers = [str(number) for number in range(100)]
        for number in numbers:
            lot.park(parked(f"key {number}", answer=number))
        end(lot)
        assert answers(lot) == numbers


def test_request_completes_shortly_after_its_deadline() -> None:
    lot = ParkingLot()
    lot.park(parked("a", deadline=1001))
    due = lot.next_deadline()
    assert due is not None and 1001 <= due < 1001 + BUCKET_MS
    lot.tick(1000)
    assert answers(lot) == []
    lot.tick(due)
    assert answers(lot) == ["a"]
    assert lot.next_deadline() is None


def test_request_completes_once_if_its_condition_causes_the_event_again() -> None:
    lot = ParkingLot()

    class Again(When):
        def fulfilled_by(self, key: Hashable, news: object) -> bool:
            if news != "again":
                lot.happened(key, "again")
            return True

    lot.park(Parked[object](Again(("a",)), 1000, lambda: "first"))
    lot.park(parked("a", answer="second"))
    lot.happened("a", "now")
    assert answers(lot) == ["first", "second"]
    assert len(lot) == 0
    assert not lot.is_awaited("a")


def test_forgotten_request_is_not_completed() -> None:
    lot = ParkingLot()
    one = parked("a", "b")
    lot.park(one)
    lot.forget(one)
    lot.happened("a", "now")
    lot.tick(10_000)
    assert answers(lot) == []
    lot.forget(one)


def test_deadline_applies_after_its_bucket_was_emptied() -> None:
    lot = ParkingLot()
    first, second = parked("a", deadline=100), parked("b", deadline=100)
    lot.park(first)
    lot.happened("a", "now")
    lot.park(second)
    lot.tick(100 + BUCKET_MS)
    assert answers(lot) == ["a", "b"]


def test_stop_completes_all_parked_requests() -> None:
    lot = ParkingLot()
    lot.park(parked("a", deadline=5))
    lot.park(parked("b", deadline=50_000))
    lot.complete_all()
    assert sorted(map(str, answers(lot))) == ["a", "b"]
