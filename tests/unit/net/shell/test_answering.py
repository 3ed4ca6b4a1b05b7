"""Responses to parked requests, in the order of their completion, in slices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext

from odradek.api.request.outcome import Encoded
from odradek.base.units import TimestampMs
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.parked import ParkedRequest, Purgatory
from odradek.net.shell.answering import ANSWERING_SECONDS, ANSWERS_PER_LOOK, CompletedRequests

NOW = Moment(TimestampMs(1), 1)


class Never:
    """A condition that nothing fulfils."""

    keys: Iterable[str] = ("key",)

    def fulfilled_by(self, key: object, news: object) -> bool:
        return False


class Owner:
    """A connection with parked requests."""

    def __init__(self, responder: Responder, number: int) -> None:
        self.responder = responder
        self.number = number

    def answer_parked(self, parked: ParkedRequest[Encoded], now: Moment) -> None:
        self.responder.answered.append(self.number)

    def send(self) -> None:
        self.responder.sent.append(self.number)


class Responder:
    """Answering with a simulated clock and simulated later turns."""

    def __init__(self, seconds_per_check: float) -> None:
        self.purgatory = Purgatory()
        self.answered: list[int] = []
        self.sent: list[int] = []
        self.turns: list[Callable[[], None]] = []
        self.settled = 0
        self._per_check = seconds_per_check
        self._seconds = 0.0
        self.answering = CompletedRequests(
            self.purgatory, lambda: NOW, self._settle, soon=self.turns.append, around=nullcontext(), seconds=self._clock
        )

    def _clock(self) -> float:
        self._seconds += self._per_check
        return self._seconds

    def _settle(self) -> None:
        self.settled += 1

    def park(self, count: int) -> None:
        for number in range(count):
            parked: ParkedRequest[object] = ParkedRequest(Never(), 10_000, lambda: None)
            parked.owner = Owner(self, number)
            self.purgatory.park(parked)

    def complete(self) -> None:
        self.purgatory.complete_all()
        self.answering.answer(self.purgatory.take_completed())


def test_all_requests_are_answered_in_one_turn_if_time_allows() -> None:
    responder = Responder(0.0)
    responder.park(100)
    responder.complete()
    assert responder.answered == responder.sent == list(range(100))
    assert not responder.turns and not responder.answering.is_under_way


def test_remaining_requests_are_answered_in_later_turns() -> None:
    responder = Responder(2 * ANSWERING_SECONDS)
    responder.park(2 * ANSWERS_PER_LOOK + 1)
    responder.complete()
    assert responder.sent == list(range(ANSWERS_PER_LOOK)) and len(responder.turns) == 1
    while responder.turns:
        assert responder.answering.is_under_way
        responder.turns.pop()()
    assert responder.answered == responder.sent == list(range(2 * ANSWERS_PER_LOOK + 1))
    assert responder.settled == 2 and not responder.answering.is_under_way


def test_finish_answers_all_requests_regardless_of_time() -> None:
    responder = Responder(2 * ANSWERING_SECONDS)
    responder.park(3 * ANSWERS_PER_LOOK)
    responder.complete()
    responder.answering.finish()
    assert responder.sent == list(range(3 * ANSWERS_PER_LOOK))
    responder.turns.pop()()
    assert responder.settled == 0


def test_stop_drops_unanswered_requests() -> None:
    responder = Responder(2 * ANSWERING_SECONDS)
    responder.park(2 * ANSWERS_PER_LOOK)
    responder.complete()
    responder.answering.stop()
    responder.turns.pop()()
    assert responder.sent == list(range(ANSWERS_PER_LOOK)) and responder.settled == 0
