"""Anomalies of single values: for each one, a history with it and a similar one without."""

from __future__ import annotations

from checker.anomaly import Anomaly
from checker.handmade import Handmade
from checker.history import Kind, Outcome, Send
from checker.verdict import check


def broken(history: Handmade) -> set[Anomaly]:
    return {found.anomaly for found in check(history).broken}


def reported(history: Handmade) -> set[Anomaly]:
    return {found.anomaly for found in check(history).reported}


def test_lost_write_is_found() -> None:
    history = Handmade().send(1, Send("a", 10, 0), Send("a", 11, 1), Send("a", 12, 2))
    history.poll(2, ("a", 0, 10), ("a", 2, 12))
    (found,) = [one for one in check(history).broken if one.anomaly is Anomaly.LOST_WRITE]
    assert found.text == (
        "send 0 (process 1, ok) sent 11 to a@1; nobody read it, though poll 1 (process 2, ok) read 12 at a@2"
    )
    history.poll(3, ("a", 1, 11))  # Another process read it.
    assert Anomaly.LOST_WRITE not in broken(history)


def test_record_above_all_reads_is_unseen_not_lost() -> None:
    history = Handmade().send(1, Send("a", 10, 0), Send("a", 11, 1)).poll(2, ("a", 0, 10))
    assert (broken(history), reported(history)) == (set(), {Anomaly.UNSEEN})
    history.final("b")
    assert (broken(history), reported(history)) == (set(), {Anomaly.UNSEEN})
    history.final("a", ("a", 0, 10))
    assert broken(history) == {Anomaly.LOST_WRITE}


def test_send_without_a_response_may_be_lost() -> None:
    history = Handmade().send(1, Send("a", 10, 0)).send(1, Send("a", 11), outcome=Outcome.INFO)
    history.send(1, Send("a", 12, 1)).final("a", ("a", 0, 10), ("a", 1, 12))
    assert broken(history) == set()


def test_committed_transaction_must_not_be_lost() -> None:
    for outcome, is_lost in ((Outcome.OK, True), (Outcome.INFO, False), (Outcome.FAIL, False)):
        history = Handmade().txn(1, Send("a", 10, 0), outcome=outcome).send(1, Send("a", 11, 2))
        assert (Anomaly.LOST_WRITE in broken(history.poll(2, ("a", 2, 11)))) == is_lost


def test_partially_visible_transaction_is_a_lost_write() -> None:
    """A reader that saw one value of a transaction proves its commit, even if the sender does not know the outcome."""
    history = Handmade().txn(1, Send("a", 10, 0), Send("b", 11, 0), outcome=Outcome.INFO)
    history.final("b")
    assert broken(history) == set()
    history.final("a", ("a", 0, 10))
    assert broken(history) == {Anomaly.LOST_WRITE}


def test_duplicate_is_found() -> None:
    history = Handmade().send(1, Send("a", 10, 0)).poll(2, ("a", 0, 10)).poll(3, ("a", 0, 10))
    assert broken(history) == set()
    assert broken(history.poll(3, ("a", 1, 10))) == {Anomaly.DUPLICATE}


def test_duplicate_in_another_partition_is_found() -> None:
    history = Handmade().send(1, Send("a", 10, 0)).poll(2, ("b", 0, 10))
    assert Anomaly.DUPLICATE in broken(history)


def test_inconsistent_offsets_are_found() -> None:
    history = Handmade().send(1, Send("a", 10, 0)).send(2, Send("a", 11, 1))
    assert broken(history) == set()
    history.poll(3, ("a", 0, 11))
    assert {Anomaly.INCONSISTENT_OFFSETS, Anomaly.DUPLICATE} <= broken(history)
    two = Handmade().send(1, Send("a", 10, 0)).send(2, Send("a", 11, 0))  # Without any read.
    assert broken(two) == {Anomaly.INCONSISTENT_OFFSETS}
    assert broken(Handmade().send(1, Send("a", 10, 0)).send(2, Send("b", 11, 0))) == set()


def test_read_of_an_unsent_value_is_found() -> None:
    assert broken(Handmade().poll(1, ("a", 0, 10))) == {Anomaly.UNSENT_READ}
    assert broken(Handmade().send(2, Send("a", 10), outcome=Outcome.INFO).poll(1, ("a", 0, 10))) == set()


def test_aborted_read_is_found() -> None:
    for outcome, expected in ((Outcome.FAIL, {Anomaly.ABORTED_READ}), (Outcome.INFO, set()), (Outcome.OK, set())):
        history = Handmade().txn(1, Send("a", 10, 0), outcome=outcome).poll(2, ("a", 0, 10))
        assert broken(history) == expected


def test_transaction_without_a_commit_request_counts_as_aborted() -> None:
    history = Handmade().txn(1, Send("a", 10, 0), outcome=Outcome.INFO, times=(0, None, 90))
    assert broken(history) == set()
    assert broken(history.poll(2, ("a", 0, 10))) == {Anomaly.ABORTED_READ}


def test_read_before_the_commit_is_found() -> None:
    for time_ns, expected in ((40, {Anomaly.PRECOMMITTED_READ}), (60, set())):
        history = Handmade().txn(1, Send("a", 10, 0), times=(0, 50, 90))
        history.operation(2, Kind.POLL, history.polled(("a", 0, 10), time_ns=time_ns), times=(10, None, 70))
        assert broken(history) == expected


def test_transaction_must_not_read_its_own_writes() -> None:
    history = Handmade()
    history.txn(1, Send("a", 10, 0), history.polled(("a", 0, 10)))
    assert broken(history) == {Anomaly.PRECOMMITTED_READ}
