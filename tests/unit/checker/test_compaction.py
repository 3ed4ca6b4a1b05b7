"""Compacted logs: a missing record is an anomaly only if compaction cannot have removed it before the read."""

from __future__ import annotations

from checker.anomaly import Anomaly
from checker.handmade import Handmade
from checker.history import Send
from checker.verdict import check

LATER_NS = 1_000_000


def broken(history: Handmade, may_go_ns: dict[int, int]) -> set[Anomaly]:
    return {found.anomaly for found in check(history, may_go_ns=may_go_ns).broken}


def two() -> Handmade:
    return Handmade().send(1, Send("a", 10, 0), Send("a", 11, 1))


def test_possibly_compacted_record_is_not_a_lost_write() -> None:
    history = two().final("a", ("a", 1, 11))
    assert Anomaly.LOST_WRITE in broken(history, {11: 0})
    assert broken(history, {10: 0}) == set()


def test_poll_may_skip_records_possibly_compacted_before_it() -> None:
    history = two().assign(2, a=0).poll(2, ("a", 1, 11)).poll(3, ("a", 0, 10))
    (read_ns,) = [poll.time_ns for poll in history[2].polls]
    assert broken(history, {10: read_ns}) == set()
    assert broken(history, {10: read_ns + 1}) == {Anomaly.POLL_SKIP}


def test_group_may_omit_records_possibly_compacted_before_it() -> None:
    history = two()
    history.txn(2, history.polled(("a", 1, 11)), group="g").poll(3, ("a", 0, 10))
    assert broken(history, {10: LATER_NS}) == {Anomaly.NEVER_CONSUMED}
    assert broken(history, {10: 0}) == set()
