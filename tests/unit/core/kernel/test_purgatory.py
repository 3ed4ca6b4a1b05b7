"""Parked requests: completed by an event or by their deadline, and never twice."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from odradek.core.kernel.purgatory import BUCKET_MS, ParkedRequest, Purgatory


@dataclass(eq=False)
class When:
    """A condition that the given news on its keys fulfils."""

    keys: tuple[Hashable, ...]
    news: object = "now"

    def fulfilled_by(self, key: Hashable, news: object) -> bool:
        return news == self.news


def parked(*keys: Hashable, deadline: int = 1000, answer: str = "") -> ParkedRequest[object]:
    return ParkedRequest(When(keys), deadline, lambda: answer or keys[0])


def answers(purgatory: Purgatory) -> list[object]:
    return [one.then() for one in purgatory.take_completed()]


def test_parked_request_is_completed_once_by_any_of_its_keys() -> None:
    purgatory = Purgatory()
    purgatory.park(parked("a", "b"))
    purgatory.happened("c", "now")
    purgatory.happened("b", "too early")
    assert answers(purgatory) == []
    purgatory.happened("b", "now")
    purgatory.happened("a", "now")
    purgatory.tick(10_000)
    assert answers(purgatory) == ["a"]
    assert len(purgatory) == 0


def test_requests_on_one_key_complete_in_arrival_order() -> None:
    purgatory = Purgatory()
    for number in range(5):
        purgatory.park(parked("a", answer=f"{number}"))
    purgatory.happened("a", "now")
    assert answers(purgatory) == ["0", "1", "2", "3", "4"]


def test_requests_with_one_deadline_complete_in_arrival_order() -> None:
    """Not in the order of their addresses: one seed must give one history."""
    for end in (lambda purgatory: purgatory.tick(10_000), Purgatory.complete_all):
        purgatory = Purgatory()
        numbers = [str(number) for number in range(100)]
        for number in numbers:
            purgatory.park(parked(f"key {number}", answer=number))
        end(purgatory)
        assert answers(purgatory) == numbers


def test_request_completes_shortly_after_its_deadline() -> None:
    purgatory = Purgatory()
    purgatory.park(parked("a", deadline=1001))
    due = purgatory.next_deadline()
    assert due is not None and 1001 <= due < 1001 + BUCKET_MS
    purgatory.tick(1000)
    assert answers(purgatory) == []
    purgatory.tick(due)
    assert answers(purgatory) == ["a"]
    assert purgatory.next_deadline() is None


def test_request_completes_once_if_its_condition_causes_the_event_again() -> None:
    purgatory = Purgatory()

    class Again(When):
        def fulfilled_by(self, key: Hashable, news: object) -> bool:
            if news != "again":
                purgatory.happened(key, "again")
            return True

    purgatory.park(ParkedRequest[object](Again(("a",)), 1000, lambda: "first"))
    purgatory.park(parked("a", answer="second"))
    purgatory.happened("a", "now")
    assert answers(purgatory) == ["first", "second"]
    assert len(purgatory) == 0
    assert not purgatory.is_awaited("a")


def test_forgotten_request_is_not_completed() -> None:
    purgatory = Purgatory()
    one = parked("a", "b")
    purgatory.park(one)
    purgatory.forget(one)
    purgatory.happened("a", "now")
    purgatory.tick(10_000)
    assert answers(purgatory) == []
    purgatory.forget(one)


def test_deadline_applies_after_its_bucket_was_emptied() -> None:
    purgatory = Purgatory()
    first, second = parked("a", deadline=100), parked("b", deadline=100)
    purgatory.park(first)
    purgatory.happened("a", "now")
    purgatory.park(second)
    purgatory.tick(100 + BUCKET_MS)
    assert answers(purgatory) == ["a", "b"]


def test_stop_completes_all_parked_requests() -> None:
    purgatory = Purgatory()
    purgatory.park(parked("a", deadline=5))
    purgatory.park(parked("b", deadline=50_000))
    purgatory.complete_all()
    assert sorted(map(str, answers(purgatory))) == ["a", "b"]
