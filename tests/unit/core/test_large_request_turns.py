"""Turns of large requests: a few are in memory at a time, and a stalled request does not block the next."""

from __future__ import annotations

from odradek.base.limits import LARGE_REQUEST_BYTES, MIDDLING_REQUESTS_AT_ONCE, TURN_STUCK_MS
from odradek.base.units import TimestampMs
from odradek.core.broker.large_requests import LargeRequests, Turn
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.promise import Promise
from odradek.core.kernel.purgatory import ParkedRequest, Purgatory
from odradek.core.kernel.work import Work

LARGE = LARGE_REQUEST_BYTES + 1


def at(steady: int) -> Moment:
    return Moment(TimestampMs(0), steady)


def have_come(turns: list[Turn]) -> list[bool]:
    return [turn.is_granted for turn in turns]


def test_large_requests_take_turns_in_arrival_order() -> None:
    purgatory = Purgatory()
    requests = LargeRequests(purgatory)
    turns = [requests.request_turn(LARGE, at(0)) for _ in range(3)]
    assert have_come(turns) == [True, False, False]
    waiting = turns[1].parked(at(0))
    purgatory.park(waiting)
    turns[0].end_turn()
    assert have_come(turns) == [True, True, False]
    assert purgatory.take_completed() == [waiting]
    turns[0].end_turn()
    assert have_come(turns) == [True, True, False], "it ends once"


def test_smaller_requests_do_not_wait_behind_a_large_request() -> None:
    requests = LargeRequests(Purgatory())
    requests.request_turn(LARGE, at(0))
    smaller = [requests.request_turn(LARGE_REQUEST_BYTES, at(0)) for _ in range(MIDDLING_REQUESTS_AT_ONCE + 1)]
    assert have_come(smaller) == [True] * MIDDLING_REQUESTS_AT_ONCE + [False]


def test_abandoned_request_is_skipped_in_the_queue() -> None:
    requests = LargeRequests(Purgatory())
    turns = [requests.request_turn(LARGE, at(0)) for _ in range(3)]
    turns[1].end_turn()
    turns[0].end_turn()
    assert have_come(turns) == [True, False, True]


def test_stalled_request_gives_up_its_turn() -> None:
    requests = LargeRequests(Purgatory())
    turns = [requests.request_turn(LARGE, at(0)) for _ in range(3)]
    turns[0].steps(at(TURN_STUCK_MS // 2))
    turns[1].steps(at(TURN_STUCK_MS))
    assert have_come(turns) == [True, False, False], "it went on not long ago"
    turns[1].steps(at(2 * TURN_STUCK_MS))
    assert have_come(turns) == [True, True, False]
    turns[0].end_turn()
    assert have_come(turns) == [True, True, False], "its turn is over already"
    turns[2].steps(at(2 * TURN_STUCK_MS + 1))
    assert have_come(turns) == [True, True, False], "the next one has just been woken"


def test_request_with_work_on_a_thread_keeps_its_turn() -> None:
    requests = LargeRequests(Purgatory())
    turns = [requests.request_turn(LARGE, at(0)) for _ in range(2)]
    turns[0].waits(Work(lambda: None))
    turns[1].steps(at(10 * TURN_STUCK_MS))
    assert have_come(turns) == [True, False]
    turns[0].steps(at(11 * TURN_STUCK_MS))
    turns[1].steps(at(11 * TURN_STUCK_MS))
    assert have_come(turns) == [True, False]


def test_parked_request_gives_up_its_turn() -> None:
    requests = LargeRequests(Purgatory())
    turns = [requests.request_turn(LARGE, at(0)) for _ in range(2)]
    turns[0].waits(None)
    assert have_come(turns) == [True, False]
    turns[0].waits(ParkedRequest(Promise[bool](), 0, lambda: None))
    assert have_come(turns) == [True, True]
