"""Answers requests that were parked and are completed now, first come, first served, in slices.

What one event has completed, a record that a thousand wait for, would keep all others waiting.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from odradek.api.request.outcome import Encoded
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.parked import Parked, ParkingLot

ANSWERING_SECONDS = 0.003  # An answer takes 50 us, and sending them as long again.
ANSWERS_PER_LOOK = 16  # Before the clock is looked at.


class Answerable(Protocol):
    """A conversation as it is seen here: the owner of parked requests."""

    def answer_parked(self, parked: Parked[Encoded], now: Moment) -> None: ...

    def send(self) -> None: ...


class Answering:
    """The completed requests of one broker that are not answered yet."""

    def __init__(
        self,
        lot: ParkingLot,
        now: Callable[[], Moment],
        settle: Callable[[], None],
        *,
        soon: Callable[[Callable[[], None]], object],
        around: AbstractContextManager[None],
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """`soon` calls in a later turn of the loop; `around` is entered while answers are sent, again and again."""
        self._lot = lot
        self._now = now
        self._soon = soon
        self._settle = settle
        self._around = around
        self._seconds = seconds
        self._completed: deque[Parked[object]] = deque()
        self._is_due = False  # `_go_on` is to be called.
        self._is_stopped = False

    @property
    def is_under_way(self) -> bool:
        return bool(self._completed)

    def answer(self, completed: Sequence[Parked[object]]) -> None:
        """Answers what is completed, behind what was before, until none is left or the slice is over."""
        waiting, lot = self._completed, self._lot
        waiting.extend(completed)
        owners: dict[Answerable, None] = {}
        now, end = self._now(), self._seconds() + ANSWERING_SECONDS
        while waiting:
            for _ in range(min(len(waiting), ANSWERS_PER_LOOK)):
                parked = waiting.popleft()
                owner: Answerable = parked.owner  # type: ignore[assignment]  # Only conversations park requests.
                owner.answer_parked(parked, now)  # type: ignore[arg-type]  # Dispatch encoded what they park.
                owners[owner] = None
            waiting.extend(lot.take_completed())
            if self._seconds() > end:
                break
        with self._around:
            for owner in owners:
                owner.send()
        if waiting and not self._is_due and not self._is_stopped:
            self._is_due = True
            self._soon(self._go_on)

    def _go_on(self) -> None:
        self._is_due = False
        if not self._is_stopped:
            self.answer(())
            self._settle()

    def finish(self) -> None:
        """Completes all parked requests with what is known now, and answers them; nothing is answered later."""
        self._is_stopped = True
        self._lot.complete_all()
        self._completed.extend(self._lot.take_completed())
        while self._completed:
            self.answer(())

    def stop(self) -> None:
        """Leaves who still waits without an answer."""
        self._is_stopped = True
