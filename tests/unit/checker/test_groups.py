"""Anomalies of groups, each with a history that has it and a twin that has not."""

from __future__ import annotations

import pytest

from checker.anomaly import Anomaly
from checker.handmade import Handmade
from checker.history import Committed, Kind, Outcome, Send
from checker.verdict import check


def broken(history: Handmade) -> set[Anomaly]:
    return {found.anomaly for found in check(history).broken}


def consumed(history: Handmade, offset: int, group: str | None, outcome: Outcome = Outcome.OK) -> None:
    """By a process of its own; the value at an offset is ten more."""
    polled = history.polled(("a", offset, offset + 10))
    history.txn(len(history), polled, group=group, outcome=outcome)


def test_consumed_twice() -> None:
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
def test_never_consumed(outcome: Outcome, expected: set[Anomaly]) -> None:
    history = Handmade().send(0, Send("a", 10, 0), Send("a", 11, 1), Send("a", 12, 2))
    consumed(history, 0, "g", outcome)
    consumed(history, 1, "g")
    assert broken(history) == expected  # 12 is for later.


def test_another_group_consumes_for_itself() -> None:
    history = Handmade().send(0, Send("a", 10, 0), Send("a", 11, 1))
    consumed(history, 1, "g")
    consumed(history, 0, "h")
    assert broken(history) == {Anomaly.NEVER_CONSUMED}


def test_what_was_aborted_is_for_no_group() -> None:
    history = Handmade().txn(0, Send("a", 10, 0), outcome=Outcome.FAIL).send(0, Send("a", 11, 1))
    consumed(history, 1, "g")
    assert broken(history) == set()


def told(history: Handmade, offset: int, group: str = "g", times: tuple[int, None, int] | None = None) -> None:
    history.operation(50, Kind.COMMITTED, Committed({"a": offset}), group=group, times=times)


def test_what_was_told_to_be_committed_does_not_go_back() -> None:
    history = Handmade()
    for offset, group in ((1, "g"), (1, "g"), (2, "g"), (0, "h")):
        told(history, offset, group)
    assert broken(history) == set()
    told(history, 1)
    assert broken(history) == {Anomaly.COMMITTED_BACK}


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [(Outcome.OK, {Anomaly.COMMITTED_LATE}), (Outcome.INFO, set()), (Outcome.FAIL, set())],
)
def test_what_a_transaction_has_committed_is_told(outcome: Outcome, expected: set[Anomaly]) -> None:
    history = Handmade().send(0, Send("a", 10, 0))
    consumed(history, 0, "g", outcome)
    told(history, 0)
    assert broken(history) == expected


def test_what_was_told_of_a_transaction_does_not_go_back() -> None:
    """It may be told late, but that is over then, also for what a later transaction commits."""
    history = Handmade().send(0, Send("a", 10, 0), Send("a", 11, 1))
    consumed(history, 0, "g")
    for offset in (0, 1):
        told(history, offset)
    consumed(history, 1, "g")
    told(history, 1)
    assert broken(history) == {Anomaly.COMMITTED_LATE}
    told(history, 0)
    assert broken(history) == {Anomaly.COMMITTED_LATE, Anomaly.COMMITTED_BACK}


def test_what_a_later_transaction_commits_may_be_less() -> None:
    """That is what its group is told then; it has consumed twice."""
    history = Handmade().send(0, Send("a", 10, 0), Send("a", 11, 1))
    for offset in (0, 1, 0):
        consumed(history, offset, "g")
    told(history, 1)
    assert broken(history) == {Anomaly.CONSUMED_TWICE, Anomaly.COMMITTED_AGAIN}
    told(history, 0)
    assert Anomaly.COMMITTED_BACK in broken(history)


def test_what_was_told_before_less_was_committed_is_over() -> None:
    history = Handmade().send(0, *(Send("a", 10 + offset, offset) for offset in range(3)))
    for offset in (1, 0):
        consumed(history, offset, "g")
        told(history, offset + 1)
    assert broken(history) == {Anomaly.COMMITTED_AGAIN}
    consumed(history, 2, "g")
    told(history, 1)
    assert broken(history) == {Anomaly.COMMITTED_AGAIN, Anomaly.COMMITTED_LATE}
    told(history, 0)
    assert Anomaly.COMMITTED_BACK in broken(history)


def test_who_asked_before_a_commit_may_be_told_what_was_before() -> None:
    history = Handmade().send(0, Send("a", 10, 0))
    consumed(history, 0, "g")
    told(history, 0, times=(150, None, 250))  # The transaction is over at 190.
    assert broken(history) == set()
