"""Turns for requests with very many elements, which need ten times their wire size in memory.

Ten such requests at once would all be in memory, although a thread and the loop finish them no sooner.

    turn = large_requests.request_turn(size, now) ──> is_granted? ──> read, handled, encoded ──> turn.end_turn()
                                                      └── no: parked; the oldest of its kind is granted when one ends

Smaller requests have turns of their own, and do not wait behind the largest.  A request that does not progress (its
peer does not read, it is muted, it waits for an event) loses its turn, and continues without one.
"""

from __future__ import annotations

from collections import deque

from odradek.base.limits import (
    LARGE_REQUEST_BYTES,
    LARGE_REQUESTS_AT_ONCE,
    MIDDLING_REQUESTS_AT_ONCE,
    TURN_STUCK_MS,
)
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.promise import Promise
from odradek.core.kernel.purgatory import ParkedRequest, Purgatory
from odradek.core.kernel.work import Work


class Turn:
    """Turn of one request.  `end_turn` may be called more than once."""

    __slots__ = ("_lane", "_promise", "is_at_work", "is_granted", "last_step")

    def __init__(self, lane: _TurnQueue, now: Moment) -> None:
        self._lane = lane
        self._promise = Promise[bool]()
        self.is_granted = False
        self.is_at_work = False  # A thread works for the request.
        self.last_step = now.steady

    def parked(self, now: Moment) -> ParkedRequest[object]:
        """Return a wait for the turn, or for the time to check which request blocks it."""
        return ParkedRequest(self._promise, now.steady + TURN_STUCK_MS, lambda: None)

    def waits(self, wait: object) -> None:
        """Record the request's next wait; an event may take long, and ends the turn."""
        self.is_at_work = isinstance(wait, Work)
        if isinstance(wait, ParkedRequest):
            self.end_turn()

    def steps(self, now: Moment) -> None:
        """Record progress of the request; if it still waits for its turn, it passes over stuck requests."""
        self.is_at_work = False
        self.last_step = now.steady
        if not self.is_granted:
            self._lane.release_stuck(now)

    def end_turn(self) -> None:
        self._lane.leave(self)

    def grant(self, purgatory: Purgatory) -> None:
        self.is_granted = True
        self._promise.keep(purgatory, True)


class _TurnQueue:
    """Turns of one kind: `at_once` requests hold one, the others wait in order of arrival."""

    def __init__(self, purgatory: Purgatory, at_once: int) -> None:
        self._purgatory = purgatory
        self._at_once = at_once
        self._under_way: dict[Turn, None] = {}
        self._waiting: deque[Turn] = deque()

    def request_turn(self, now: Moment) -> Turn:
        turn = Turn(self, now)
        self._waiting.append(turn)
        self._next(now.steady)
        assert turn.is_granted == (turn in self._under_way)
        return turn

    def leave(self, turn: Turn) -> None:
        if turn in self._under_way:
            del self._under_way[turn]
            self._next(turn.last_step)
        elif not turn.is_granted and turn in self._waiting:
            self._waiting.remove(turn)

    def release_stuck(self, now: Moment) -> None:
        for turn in list(self._under_way):
            if not turn.is_at_work and now.steady - turn.last_step >= TURN_STUCK_MS:
                del self._under_way[turn]
        self._next(now.steady)

    def _next(self, steady: int) -> None:
        while self._waiting and len(self._under_way) < self._at_once:
            turn = self._waiting.popleft()
            turn.last_step = max(turn.last_step, steady)  # The request is woken now.
            assert not turn.is_granted, "a turn is granted once"
            self._under_way[turn] = None
            turn.grant(self._purgatory)
        assert len(self._under_way) <= self._at_once
        assert not self._waiting or len(self._under_way) == self._at_once, "no request waits for a free turn"


class LargeRequests:
    """All turns of one broker."""

    def __init__(self, purgatory: Purgatory) -> None:
        self._middling = _TurnQueue(purgatory, MIDDLING_REQUESTS_AT_ONCE)
        self._large = _TurnQueue(purgatory, LARGE_REQUESTS_AT_ONCE)

    def request_turn(self, size: int, now: Moment) -> Turn:
        """Return a turn for a request of `size` bytes."""
        return (self._large if size > LARGE_REQUEST_BYTES else self._middling).request_turn(now)
