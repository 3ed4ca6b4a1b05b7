"""Whose turn it is to be read and answered: requests of very many elements, which weigh ten times in memory what they
do on the wire.  Ten that came at once would be there all at once, though a thread and the loop get no more done by it.

    turn = large_requests.ask(size, now) ──> has_come? ──> read, handled, encoded ──> turn.end()
                                      └── no: parked; the oldest of its kind comes when one ends

The smaller ones have turns of their own, and do not wait behind the largest.  Who does not go on (its peer does not
read, it is muted, it waits for an event) loses its turn, and goes on without.
"""

from __future__ import annotations

from collections import deque

from odradek.base.limits import (
    LARGE_REQUEST_BYTES,
    LARGE_REQUESTS_AT_ONCE,
    MIDDLING_REQUESTS_AT_ONCE,
    TURN_STUCK_MS,
)
from odradek.core.effects import Work
from odradek.core.moment import Moment
from odradek.core.parked import Parked, ParkingLot
from odradek.core.promise import Promise


class Turn:
    """Of one request.  `end` may be called more than once."""

    __slots__ = ("_lane", "_promise", "has_come", "is_at_work", "last_step")

    def __init__(self, lane: _Lane, now: Moment) -> None:
        self._lane = lane
        self._promise = Promise[bool]()
        self.has_come = False
        self.is_at_work = False  # A thread is, for it.
        self.last_step = now.steady

    def parked(self, now: Moment) -> Parked[object]:
        """Until it comes, or until it is time to look who holds it up."""
        return Parked(self._promise, now.steady + TURN_STUCK_MS, lambda: None)

    def waits(self, wait: object) -> None:
        """What the request waits for next.  An event may take long: it goes on without a turn."""
        self.is_at_work = isinstance(wait, Work)
        if isinstance(wait, Parked):
            self.end()

    def steps(self, now: Moment) -> None:
        """The request goes on; if it waits for its turn, it looks whether somebody else does not."""
        self.is_at_work = False
        self.last_step = now.steady
        if not self.has_come:
            self._lane.pass_over_stuck(now)

    def end(self) -> None:
        self._lane.leave(self)

    def comes(self, lot: ParkingLot) -> None:
        self.has_come = True
        self._promise.keep(lot, True)


class _Lane:
    """So many at once; the others in the order in which they came."""

    def __init__(self, lot: ParkingLot, at_once: int) -> None:
        self._lot = lot
        self._at_once = at_once
        self._under_way: dict[Turn, None] = {}
        self._waiting: deque[Turn] = deque()

    def ask(self, now: Moment) -> Turn:
        turn = Turn(self, now)
        self._waiting.append(turn)
        self._next(now.steady)
        return turn

    def leave(self, turn: Turn) -> None:
        if turn in self._under_way:
            del self._under_way[turn]
            self._next(turn.last_step)
        elif not turn.has_come and turn in self._waiting:
            self._waiting.remove(turn)

    def pass_over_stuck(self, now: Moment) -> None:
        for turn in list(self._under_way):
            if not turn.is_at_work and now.steady - turn.last_step >= TURN_STUCK_MS:
                del self._under_way[turn]
        self._next(now.steady)

    def _next(self, steady: int) -> None:
        while self._waiting and len(self._under_way) < self._at_once:
            turn = self._waiting.popleft()
            turn.last_step = max(turn.last_step, steady)  # It is woken now.
            self._under_way[turn] = None
            turn.comes(self._lot)


class LargeRequests:
    """Of one broker."""

    def __init__(self, lot: ParkingLot) -> None:
        self._middling = _Lane(lot, MIDDLING_REQUESTS_AT_ONCE)
        self._large = _Lane(lot, LARGE_REQUESTS_AT_ONCE)

    def ask(self, size: int, now: Moment) -> Turn:
        """For a request of `size` bytes."""
        return (self._large if size > LARGE_REQUEST_BYTES else self._middling).ask(now)
