"""Cycles between transactions: for each anomaly, a history with it and a similar one without."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis.strategies import dictionaries, integers, lists

from checker.anomaly import Anomaly, Found
from checker.cycles import components, cycles, shortest_path
from checker.handmade import Handmade
from checker.history import Outcome, Send
from checker.observed import Observed
from checker.verdict import check

pytestmark = pytest.mark.slow


def found(history: Handmade) -> dict[Anomaly, Found]:
    return {one.anomaly: one for one in cycles(Observed(history))}


def test_g0_is_found() -> None:
    for offsets, expected in (((1, 0), {Anomaly.G0}), ((0, 1), set())):
        history = Handmade().txn(1, Send("a", 10, 0), Send("b", 11, offsets[0]))
        history.txn(2, Send("a", 20, 1), Send("b", 21, offsets[1]))
        assert found(history).keys() == expected


def test_g0_is_reported_but_allowed() -> None:
    history = Handmade().txn(1, Send("a", 10, 0), Send("a", 11, 2), times=(0, 150, 160))
    history.txn(2, Send("a", 20, 1)).final("a", ("a", 0, 10), ("a", 1, 20), ("a", 2, 11))
    verdict = check(history)
    assert verdict.broken == ()
    (one,) = verdict.reported
    assert str(one) == (
        "G0: txn 0 (process 1, ok) -ww (a@0 before @1)-> txn 1 (process 2, ok) -ww (a@1 before @2)-> "
        "txn 0 (process 1, ok)"
    )


def test_aborted_transaction_is_in_no_cycle() -> None:
    history = Handmade().txn(1, Send("a", 10, 0), Send("a", 11, 2))
    history.txn(2, Send("a", 20, 1), outcome=Outcome.FAIL)
    assert found(history).keys() == set()


def test_g1c_is_found() -> None:
    history = Handmade()
    history.txn(1, Send("a", 10, 0), history.polled(("b", 0, 20)))
    history.txn(2, Send("b", 20, 0), history.polled(("a", 0, 10)))
    assert found(history).keys() == {Anomaly.G1C}
    one_way = Handmade()
    one_way.txn(1, Send("a", 10, 0))
    one_way.txn(2, Send("b", 20, 0), one_way.polled(("a", 0, 10)))
    assert found(one_way).keys() == set()


def test_g1c_with_a_write_dependency_is_allowed() -> None:
    """T2 writes after T1, and T1 reads T2's write: Kafka allows this while T1 is open."""
    history = Handmade()
    history.txn(1, Send("a", 10, 0), history.polled(("b", 0, 21), time_ns=200), times=(0, 205, 210))
    history.txn(2, Send("a", 20, 1), Send("b", 21, 0))
    assert found(history).keys() == {Anomaly.G1C_WW}
    assert check(history.final("a", ("a", 0, 10), ("a", 1, 20))).broken == ()


def test_g_single_is_found() -> None:
    history = Handmade().txn(1, Send("a", 10, 0), Send("b", 11, 0))
    history.txn(2, Send("a", 20, 1), Send("b", 21, 1))
    history.txn(3, history.polled(("a", 0, 10), ("b", 0, 11), ("b", 1, 21)))
    assert found(history).keys() == {Anomaly.G_SINGLE}
    whole = Handmade(history[:2])
    whole.txn(3, whole.polled(("a", 0, 10), ("a", 1, 20), ("b", 0, 11), ("b", 1, 21)))
    assert found(whole).keys() == set()


def test_g2_is_found() -> None:
    history = Handmade().send(0, Send("a", 1, 0), Send("b", 2, 0))
    history.txn(1, history.polled(("a", 0, 1)), Send("b", 20, 1))
    history.txn(2, history.polled(("b", 0, 2)), Send("a", 10, 1))
    assert found(history).keys() == {Anomaly.G2}
    history = Handmade(history[:2])
    history.txn(2, history.polled(("b", 0, 2), ("b", 1, 20)), Send("a", 10, 1))
    assert found(history).keys() == set()


NODES = integers(0, 12)


@given(dictionaries(NODES, lists(NODES, max_size=4)))
def test_components_are_nodes_that_reach_each_other(successors: dict[int, list[int]]) -> None:
    reach = {node: reached(successors, node) for node in range(13)}
    expected = {frozenset(b for b in reach[a] if a in reach[b]) | {a} for a in reach}
    found = components(successors)
    assert len(found) == len(set(found))
    assert set(found) == {one for one in expected if len(one) > 1}
    for component in found:
        circle = shortest_path(successors, min(component), min(component), component)
        assert circle is not None
        assert set(circle) <= component
        assert all(b in successors[a] for a, b in zip(circle, [*circle[1:], circle[0]], strict=True))


def reached(successors: dict[int, list[int]], start: int) -> set[int]:
    seen: set[int] = set()
    left = [start]
    while left:
        for node in successors.get(left.pop(), ()):
            if node not in seen:
                seen.add(node)
                left.append(node)
    return seen


def test_long_cycle_does_not_overflow_the_stack() -> None:
    length = 100_000
    successors = {node: [(node + 1) % length] for node in range(length)}
    (component,) = components(successors)
    assert len(component) == length
    del successors[Random(1).randrange(length)]
    assert components(successors) == []
