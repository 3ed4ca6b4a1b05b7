"""Events and operations: conversion between the two, and to and from JSON."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis.strategies import builds, dictionaries, integers, just, lists, none, one_of, sampled_from, text, tuples

from checker.history import NEVER_NS, Committed, Event, Kind, Malformed, Outcome, Poll, Reset, Send, Step, operations
from checker.observed import Observed

KEYS = sampled_from(["a-0", "a-1", "b-0"])
NUMBERS = integers(0, 1 << 40)
STEPS = one_of(
    builds(Send, KEYS, NUMBERS, one_of(none(), NUMBERS)),
    builds(Poll, lists(tuples(KEYS, NUMBERS, NUMBERS), max_size=3).map(tuple), NUMBERS),
    builds(Reset, dictionaries(KEYS, one_of(none(), NUMBERS))),
    builds(Committed, dictionaries(KEYS, NUMBERS)),
)
EVENTS = builds(
    Event,
    type=sampled_from(["invoke", "commit", "ok", "fail", "info"]),
    process=NUMBERS,
    time_ns=NUMBERS,
    kind=sampled_from(["", "txn"]),
    group=one_of(none(), just("g")),
    steps=lists(STEPS, max_size=3).map(tuple),
    error=text(max_size=5),
)


@given(EVENTS)
def test_event_round_trips_through_json(event: Event) -> None:
    assert Event.from_json(event.to_json()) == event


def test_events_are_combined_into_operations() -> None:
    done: tuple[Step, ...] = (Send("a", 1, 7), Reset({"a": None}))
    events = [
        Event("invoke", 1, 10, "txn", group="g", steps=(Send("a", 1), Send("a", 2))),
        Event("invoke", 2, 11, "poll"),
        Event("commit", 1, 12),
        Event("ok", 2, 13, steps=(Poll((("a", 7, 1),), 13),)),
        Event("invoke", 2, 14, "poll"),
        Event("fail", 1, 15, steps=done, error="why"),
    ]
    transaction, poll, unfinished = operations(reversed(events))
    assert (transaction.kind, transaction.outcome, transaction.commit_ns) == (Kind.TXN, Outcome.FAIL, 12)
    assert (transaction.steps, transaction.group, transaction.error) == ((*done, Send("a", 2)), "g", "why")
    assert (poll.outcome, poll.steps) == (Outcome.OK, (Poll((("a", 7, 1),), 13),))
    assert (unfinished.outcome, unfinished.completed_ns, unfinished.steps) == (Outcome.INFO, NEVER_NS, ())
    assert [one.number for one in (transaction, poll, unfinished)] == [0, 1, 2]


def test_planned_send_that_never_completed_may_be_read() -> None:
    (operation,) = operations([Event("invoke", 1, 10, "send", steps=(Send("a", 1),))])
    assert 1 in Observed([operation]).writes


@pytest.mark.parametrize(
    "events",
    [
        [Event("invoke", 1, 1, "send"), Event("invoke", 1, 2, "send")],
        [Event("ok", 1, 1)],
        [Event("invoke", 1, 1, "send"), Event("ok", 1, 2), Event("commit", 1, 3)],
    ],
)
def test_invalid_history_is_refused(events: list[Event]) -> None:
    with pytest.raises(Malformed):
        operations(events)


def test_value_sent_twice_is_refused() -> None:
    both = [Event("invoke", process, 1, "send", steps=(Send("a", 1),)) for process in (1, 2)]
    with pytest.raises(Malformed):
        Observed(operations(both))
