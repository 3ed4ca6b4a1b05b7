"""Stays awake for a moment after an answer, as a client that waits for it may ask again at once.

To fall asleep and be woken takes longer than a small request, above all on virtual machines, and costs as much
processor time as staying awake for as long.  So this is done while it is worth it: after answers that were followed by
another request in time.  After some that were not, only some in a growing number are tried.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

AWAKE_NS = 80_000  # About what it takes to wake a client, and to be woken by it.
MISSES_MAX = 2
REST_ANSWERS_MIN = 16
REST_ANSWERS_MAX = 1024


class Loop(Protocol):
    def call_soon(self, callback: Callable[[], None], /) -> object:
        """Calls back in the loop's next turn, before which it does not sleep."""


class BusyPoll:
    """Keeps the loop awake for a moment; told of each answer after which its client has nothing left to be done."""

    def __init__(self, loop: Loop, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._loop = loop
        self._clock = clock
        self._until = 0
        self._is_awake = False
        self._misses = 0
        self._rest = REST_ANSWERS_MIN
        self._resting = 0  # Answers after which it still does not stay awake.

    def answered(self) -> None:
        if self._resting:
            self._resting -= 1
            return
        self._until = self._clock() + AWAKE_NS
        if self._is_awake:
            self._misses = 0
            self._rest = REST_ANSWERS_MIN
        else:
            self._is_awake = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        if self._clock() < self._until:
            self._loop.call_soon(self._look)
            return
        self._is_awake = False
        self._misses += 1
        if self._misses >= MISSES_MAX:
            self._resting = self._rest
            self._rest = min(2 * self._rest, REST_ANSWERS_MAX)
