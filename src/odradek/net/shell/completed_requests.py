"""Responses to completed requests that were parked, first come, first served, in slices.

Without slices, one event that completes many requests (such as a record for a thousand consumers) would delay all
others.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from odradek.api.request.outcome import Encoded
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.purgatory import ParkedRequest, Purgatory

ANSWERING_SECONDS = 0.003  # Encoding a response takes 50 us, and sending it about as long.
ANSWERS_PER_CHECK = 16  # Responses between two checks of the clock.


class Answerable(Protocol):
    """Owner of parked requests: the part of a conversation that this module uses."""

    def answer_parked(self, parked: ParkedRequest[Encoded], now: Moment) -> None: ...

    def send(self) -> None: ...


class CompletedRequests:
    """Completed requests of one broker without a response so far."""

    def __init__(
        self,
        purgatory: Purgatory,
        now: Callable[[], Moment],
        settle: Callable[[], None],
        *,
        soon: Callable[[Callable[[], None]], object],
        around: AbstractContextManager[None],
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create an empty queue.

        `soon` calls a function in a later turn of the loop; `around` is entered repeatedly, each time while responses
        are sent.
        """
        self._purgatory = purgatory
        self._now = now
        self._soon = soon
        self._settle = settle
        self._around = around
        self._seconds = seconds
        self._completed: deque[ParkedRequest[object]] = deque()
        self._is_due = False  # A call of `_continue` is scheduled.
        self._is_stopped = False

    @property
    def is_under_way(self) -> bool:
        return bool(self._completed)

    def answer(self, completed: Sequence[ParkedRequest[object]]) -> None:
        """Answer completed requests, behind earlier ones, until none is left or the slice is over."""
        waiting, purgatory = self._completed, self._purgatory
        waiting.extend(completed)
        owners: dict[Answerable, None] = {}
        now, end = self._now(), self._seconds() + ANSWERING_SECONDS
        while waiting:
            for _ in range(min(len(waiting), ANSWERS_PER_CHECK)):
                parked = waiting.popleft()
                owner: Answerable = parked.owner  # type: ignore[assignment]  # Only conversations park requests.
                owner.answer_parked(parked, now)  # type: ignore[arg-type]  # Dispatch has encoded their requests.
                owners[owner] = None
            waiting.extend(purgatory.take_completed())
            if self._seconds() > end:
                break
        with self._around:
            for owner in owners:
                owner.send()
        if waiting and not self._is_due and not self._is_stopped:
            self._is_due = True
            self._soon(self._continue)

    def _continue(self) -> None:
        self._is_due = False
        if not self._is_stopped:
            self.answer(())
            self._settle()

    def finish(self) -> None:
        """Complete all parked requests with their current result and answer them; answer nothing later."""
        self._is_stopped = True
        self._purgatory.complete_all()
        self._completed.extend(self._purgatory.take_completed())
        while self._completed:
            self.answer(())

    def stop(self) -> None:
        """Leave the remaining requests without a response."""
        self._is_stopped = True
