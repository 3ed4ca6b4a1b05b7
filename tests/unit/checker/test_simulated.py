"""Simulated histories: none has an anomaly with a perfect broker, and each injected fault is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis.strategies import DataObject, SearchStrategy, data, integers, lists, sampled_from, tuples

from checker.anomaly import Anomaly
from checker.history import Kind, Operation, Outcome, Poll, Step
from checker.simulated import Action, Simulated
from checker.verdict import check

pytestmark = pytest.mark.slow

KEYS = "a-0", "a-1", "b-0"
Record = tuple[str, int, int]
# More successful operations than failures.
ACTIONS = sampled_from([*Action, *[Action.SEND, Action.POLL] * 3, *[Action.BEGIN, Action.COMMIT] * 2])


def _simulate(steps: list[tuple[int, Action, str, int]]) -> list[Operation]:
    simulated = Simulated(KEYS)
    for process, action, key, number in steps:
        simulated.act(process, action, key, number)
    return simulated.finished()


STEPS = lists(tuples(integers(0, 3), ACTIONS, sampled_from(KEYS), integers(0, 50)), max_size=80)
HISTORIES: SearchStrategy[list[Operation]] = STEPS.map(_simulate)
# Operations to break in every history, besides random ones.
BREAKABLE = [
    (9, action, "a-0", 0)
    for action in (
        *(Action.SEND, Action.BEGIN, Action.SEND, Action.ABORT),
        *(Action.SEND, Action.BEGIN, Action.SEND, Action.SEND, Action.COMMIT),
    )
]
RICH: SearchStrategy[list[Operation]] = tuples(STEPS, STEPS).map(
    lambda steps: _simulate([*steps[0], *BREAKABLE, *steps[1]])
)


def broken(history: list[Operation]) -> set[Anomaly]:
    return {found.anomaly for found in check(history).broken}


@given(HISTORIES)
def test_perfect_broker_has_no_anomaly(history: list[Operation]) -> None:
    assert broken(history) == set()


@given(HISTORIES)
def test_complete_reader_sees_all_acknowledged_records(history: list[Operation]) -> None:
    assert Anomaly.UNSEEN not in {found.anomaly for found in check(history).reported}


@given(RICH, data())
def test_dropped_value_is_found(history: list[Operation], data: DataObject) -> None:
    _, _, value = data.draw(acknowledged(history))
    assert Anomaly.LOST_WRITE in broken(reread(history, lambda records: [one for one in records if one[2] != value]))


@given(RICH, data())
def test_duplicated_value_is_found(history: list[Operation], data: DataObject) -> None:
    key, _, value = data.draw(acknowledged(history))

    def again(records: list[Record]) -> list[Record]:
        return [*records, (key, records[-1][1] + 2, value)] if records and records[0][0] == key else records

    assert Anomaly.DUPLICATE in broken(reread(history, again, Kind.FINAL))


@given(RICH, data())
def test_swapped_values_are_found(history: list[Operation], data: DataObject) -> None:
    one, other = data.draw(acknowledged(history)), data.draw(acknowledged(history))
    assume(one != other)
    swapped = {one[2]: other[2], other[2]: one[2]}

    def swap(records: list[Record]) -> list[Record]:
        return [(key, offset, swapped.get(value, value)) for key, offset, value in records]

    assert {Anomaly.DUPLICATE, Anomaly.INCONSISTENT_OFFSETS} <= broken(reread(history, swap))


@given(RICH)
def test_poll_out_of_order_is_found(history: list[Operation]) -> None:
    found = broken(reread(history, lambda records: records[::-1], Kind.FINAL))
    assert Anomaly.INT_NONMONOTONIC_POLL in found


@given(RICH, data())
def test_value_missing_in_one_poll_is_found(history: list[Operation], data: DataObject) -> None:
    left_out = data.draw(acknowledged(history))
    found = broken(reread(history, lambda records: [one for one in records if one != left_out], Kind.FINAL))
    (poll,) = (poll for poll in finals(history) if left_out in poll.records)
    if left_out == poll.records[-1]:
        assert found <= {Anomaly.LOST_WRITE}  # Another process may have read it.
    else:
        assert found & {Anomaly.INT_POLL_SKIP, Anomaly.POLL_SKIP}


@given(RICH, data())
def test_value_of_an_aborted_transaction_is_found(history: list[Operation], data: DataObject) -> None:
    aborted = [operation for operation in history if operation.outcome is Outcome.FAIL]
    records = [(send.key, send.offset, send.value) for operation in aborted for send in operation.sends]
    assert Anomaly.ABORTED_READ in broken(with_poll(history, data.draw(sampled_from(records)), history[-1].invoked_ns))


@given(RICH, data())
def test_value_read_before_its_commit_is_found(history: list[Operation], data: DataObject) -> None:
    transactions = [one for one in history if one.kind is Kind.TXN and one.outcome is Outcome.OK and any(one.sends)]
    transaction = data.draw(sampled_from(transactions))
    send = data.draw(sampled_from(list(transaction.sends)))
    early = with_poll(history, (send.key, send.offset, send.value), transaction.commit_ns - 1)  # type: ignore[operator]
    assert Anomaly.PRECOMMITTED_READ in broken(early)


def finals(history: list[Operation]) -> Iterator[Poll]:
    return (poll for operation in history if operation.kind is Kind.FINAL for poll in operation.polls)


def acknowledged(history: list[Operation]) -> SearchStrategy[Record]:
    """Return a strategy for committed records that were acknowledged with an offset."""
    done = [operation for operation in history if operation.outcome is Outcome.OK]
    sends = {send.value for operation in done for send in operation.sends if send.offset is not None}
    found = [record for poll in finals(history) for record in poll.records if record[2] in sends]
    found = [record for record in found if is_known(history, record[2])]
    return sampled_from(found)


def is_known(history: list[Operation], value: int) -> bool:
    return any(
        operation.outcome is Outcome.OK and value in {send.value for send in operation.sends} for operation in history
    )


def reread(
    history: list[Operation], change: Callable[[list[Record]], list[Record]], only: Kind | None = None
) -> list[Operation]:
    def step(operation: Operation, step: Step) -> Step:
        if isinstance(step, Poll) and only in (None, operation.kind):
            return replace(step, records=tuple(change(list(step.records))))
        return step

    return [replace(one, steps=tuple(step(one, each) for each in one.steps)) for one in history]


def with_poll(history: list[Operation], record: tuple[str, int | None, int], time_ns: int) -> list[Operation]:
    """Return the history with one more poll by a new process."""
    key, offset, value = record
    assert offset is not None
    poll = Poll(((key, offset, value),), time_ns)
    number = len(history)
    return [*history, Operation(number, -2, Kind.POLL, Outcome.OK, history[-1].invoked_ns, 1 << 40, (poll,))]
