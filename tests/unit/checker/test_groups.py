"""Anomalies of consumer groups: for each one, a history with it and a similar one without."""

from __future__ import annotations

import pytest

from checker.anomaly import Anomaly
from checker.handmade import Handmade
from checker.history import Committed, Kind, Outcome, Send
from checker.verdict import check


def broken(history: Handmade) -> set[Anomaly]:
    return {found.anomaly for found in check(history).broken}


def consumed(history: Handmade, offset: int, group: str | None, outcome: Outcome = Outcome.OK) -> None:
    """Record that a new process consumed the value at this offset, which is the offset plus ten."""
    polled = history.polled(("a", offset, offset + 10))
    history.txn(len(history), polled, group=group, outcome=outcome)


def test_record_consumed_twice_is_found() -> None:
    history = Handmade().send(0, Send("a", 10, 0))
    for group, outcome in (("g", Outcome.OK), ("h", Outcome.OK), ("g", Outcome.FAIL), ("g", Outcome.INFO)):
        consumed(history, 0, group, outcome)
    consumed(history, 0, None)
    assert broken(history) == set()
    consumed(history, 0, "g")
    assert broken(history) == {Anomaly.CONSUMED_TWICE}


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [(Outcome.OK, set()), (Outcome.INFO, set()), (Outcome.FAIL, {Anomaly.NEVER_CONSUMED})],
)
def test_record_never_consumed_is_found(outcome: Outcome, expected: set[Anomaly]) -> None:
    history = Handmade().send(0, Send("a", 10, 0), Send("a", 11, 1), Send("a", 12, 2))
    consumed(history, 0, "g", outcome)
    consumed(history, 1, "g")
    assert broken(history) == expected  # 12 may still be consumed.


def test_consumption_is_checked_for_each_group() -> None:
    history = Handmade().send(0, Send("a", 10, 0), Send("a", 11, 1))
    consumed(history, 1, "g")
    consumed(history, 0, "h")
    assert broken(history) == {Anomaly.NEVER_CONSUMED}


def test_aborted_record_need_not_be_consumed() -> None:
    history = Handmade().txn(0, Send("a", 10, 0), outcome=Outcome.FAIL).send(0, Send("a", 11, 1))
    consumed(history, 1, "g")
    assert broken(history) == set()


def fetch_committed(
    history: Handmade, offset: int, group: str = "g", times: tuple[int, None, int] | None = None
) -> None:
    history.operation(50, Kind.COMMITTED, Committed({"a": offset}), group=group, times=times)


def test_committed_offset_that_decreases_is_found() -> None:
    history = Handmade()
    for offset, group in ((1, "g"), (1, "g"), (2, "g"), (0, "h")):
        fetch_committed(history, offset, group)
    assert broken(history) == set()
    fetch_committed(history, 1)
    assert broken(history) == {Anomaly.COMMITTED_BACK}


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [(Outcome.OK, {Anomaly.COMMITTED_LATE}), (Outcome.INFO, set()), (Outcome.FAIL, set())],
)
def test_offset_committed_by_a_transaction_must_be_visible(outcome: Outcome, expected: set[Anomaly]) -> None:
    history = Handmade().send(0, Send("a", 10, 0))
    consumed(history, 0, "g", outcome)
    fetch_committed(history, 0)
    assert broken(history) == expected


def test_visible_commit_of_a_transaction_must_stay_visible() -> None:
    """The commit may become visible late, but once visible it stays, even if a later transaction commits."""
    history = Handmade().send(0, Send("a", 10, 0), Send("a", 11, 1))
    consumed(history, 0, "g")
    for offset in (0, 1):
        fetch_committed(history, offset)
    consumed(history, 1, "g")
    fetch_committed(history, 1)
    assert broken(history) == {Anomaly.COMMITTED_LATE}
    fetch_committed(history, 0)
    assert broken(history) == {Anomaly.COMMITTED_LATE, Anomaly.COMMITTED_BACK}


def test_later_transaction_may_commit_a_lower_offset() -> None:
    """The group then sees the lower offset; it has consumed a record twice."""
    history = Handmade().send(0, Send("a", 10, 0), Send("a", 11, 1))
    for offset in (0, 1, 0):
        consumed(history, offset, "g")
    fetch_committed(history, 1)
    assert broken(history) == {Anomaly.CONSUMED_TWICE, Anomaly.COMMITTED_AGAIN}
    fetch_committed(history, 0)
    assert Anomaly.COMMITTED_BACK in broken(history)


def test_offset_from_before_a_lower_commit_must_not_reappear() -> None:
    history = Handmade().send(0, *(Send("a", 10 + offset, offset) for offset in range(3)))
    for offset in (1, 0):
        consumed(history, offset, "g")
        fetch_committed(history, offset + 1)
    assert broken(history) == {Anomaly.COMMITTED_AGAIN}
    consumed(history, 2, "g")
    fetch_committed(history, 1)
    assert broken(history) == {Anomaly.COMMITTED_AGAIN, Anomaly.COMMITTED_LATE}
    fetch_committed(history, 0)
    assert Anomaly.COMMITTED_BACK in broken(history)


def test_fetch_begun_before_a_commit_may_return_the_earlier_offset() -> None:
    history = Handmade().send(0, Send("a", 10, 0))
    consumed(history, 0, "g")
    fetch_committed(history, 0, times=(150, None, 250))  # The transaction ends at 190.
    assert broken(history) == set()
