"""Anomalies of order: for each one, a history with it and a similar one without."""

from __future__ import annotations

import pytest

from checker.anomaly import Anomaly
from checker.handmade import Handmade
from checker.history import Kind, Outcome, Send
from checker.verdict import check


def three() -> Handmade:
    return Handmade().send(1, Send("a", 10, 0), Send("a", 11, 1), Send("a", 12, 2))


def broken(history: Handmade) -> set[Anomaly]:
    return {found.anomaly for found in check(history.final("a", *ALL)).broken}


ALL = (("a", 0, 10), ("a", 1, 11), ("a", 2, 12))


def test_polls_in_order_are_no_anomaly() -> None:
    assert broken(three().poll(2, *ALL[:1]).poll(2, *ALL[1:])) == set()


def test_nonmonotonic_polls_are_found() -> None:
    assert broken(three().poll(2, *ALL[:2]).poll(2, *ALL[1:])) == {Anomaly.NONMONOTONIC_POLL}
    assert broken(three().poll(2, *ALL[:2]).poll(3, *ALL[1:])) == set()
    assert broken(three().poll(2, *ALL[:2]).assign(2, a=None).poll(2, *ALL[1:])) == set()
    assert broken(three().poll(2, *ALL[:2]).assign(2, b=None).poll(2, *ALL[1:])) == {Anomaly.NONMONOTONIC_POLL}


def test_nonmonotonic_records_within_a_poll_are_found() -> None:
    assert broken(three().poll(2, ALL[1], ALL[0])) == {Anomaly.INT_NONMONOTONIC_POLL}
    assert broken(three().poll(2, ALL[0], ALL[0])) == {Anomaly.INT_NONMONOTONIC_POLL}


def test_skipped_record_between_polls_is_found() -> None:
    history = three().poll(2, ALL[0]).poll(2, ALL[2])
    (found,) = check(history.final("a", *ALL)).broken
    assert found.anomaly is Anomaly.POLL_SKIP
    assert found.text == (
        "poll 2 (process 2, ok) read a@2 next after @0 of poll 1 (process 2, ok), and left out 11@1 (1 in all)"
    )
    assert broken(three().poll(2, ALL[0]).assign(2, a=2).poll(2, ALL[2])) == set()


def test_skipped_record_within_a_poll_is_found() -> None:
    assert broken(three().poll(2, ALL[0], ALL[2])) == {Anomaly.INT_POLL_SKIP}


def test_skipped_record_after_an_assignment_is_found() -> None:
    assert broken(three().assign(2, a=0).poll(2, *ALL[1:])) == {Anomaly.POLL_SKIP}
    assert broken(three().assign(2, a=1).poll(2, *ALL[1:])) == set()
    assert broken(three().assign(2, a=None).poll(2, *ALL[1:])) == set()
    assert broken(three().assign(2, a=2).poll(2, *ALL[1:])) == {Anomaly.NONMONOTONIC_POLL}


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.INFO])
def test_aborted_and_unknown_records_may_be_skipped(outcome: Outcome) -> None:
    history = Handmade().send(1, Send("a", 10, 0)).txn(2, Send("a", 11, 1), outcome=outcome)
    history.send(1, Send("a", 12, 3)).poll(3, ("a", 0, 10), ("a", 3, 12))
    assert check(history).broken == ()


def test_skipped_record_read_by_another_process_is_found() -> None:
    history = Handmade().send(1, Send("a", 10, 0)).txn(2, Send("a", 11), outcome=Outcome.INFO)
    history.send(1, Send("a", 12, 3)).poll(3, ("a", 0, 10), ("a", 3, 12)).poll(4, ("a", 1, 11))
    assert {found.anomaly for found in check(history).broken} == {Anomaly.INT_POLL_SKIP}


def sent(*sends: Send, within_one: bool) -> set[Anomaly]:
    history = Handmade()
    if within_one:
        history.send(1, *sends)
    else:
        for send in sends:
            history.send(1, send)
    records = sorted((send.key, send.offset or 0, send.value) for send in sends)
    return {found.anomaly for found in check(history.poll(2, *records)).broken}


def test_nonmonotonic_sends_are_found() -> None:
    inverted = Send("a", 10, 1), Send("a", 11, 0)
    assert sent(*inverted, within_one=True) == {Anomaly.INT_NONMONOTONIC_SEND}
    assert sent(*inverted, within_one=False) == {Anomaly.NONMONOTONIC_SEND, Anomaly.LATE_SEND}
    for within_one in (True, False):
        assert sent(Send("a", 10, 1), Send("b", 11, 0), within_one=within_one) == set()
        assert sent(Send("a", 10, 0), Send("a", 11, 1), within_one=within_one) == set()


@pytest.mark.parametrize(("second_ns", "expected"), [(100, {Anomaly.LATE_SEND}), (80, set())])
def test_late_send_of_another_process_is_found(second_ns: int, expected: set[Anomaly]) -> None:
    history = Handmade().operation(1, Kind.SEND, Send("a", 10, 1), times=(0, None, 90))
    history.operation(2, Kind.SEND, Send("a", 11, 0), times=(second_ns, None, 190))
    history.poll(3, ("a", 0, 11), ("a", 1, 10))
    assert {found.anomaly for found in check(history).broken} == expected
