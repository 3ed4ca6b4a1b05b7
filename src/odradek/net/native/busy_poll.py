"""Busy polling after a response, as its client may send the next request at once.

Falling asleep and waking takes longer than a small request, above all on virtual machines. It costs as much processor
time as staying awake for that long. The loop therefore stays awake while this pays off: after responses that were
followed by another request in time. After several misses it rests, and rests twice as long after each further miss.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

AWAKE_NS = 80_000  # About the time needed to wake a client and to be woken by it.
MISSES_MAX = 2
REST_ANSWERS_MIN = 16
REST_ANSWERS_MAX = 1024


class Loop(Protocol):
    def call_soon(self, callback: Callable[[], None], /) -> object:
        """Call back in the loop's next turn, before which it does not sleep."""


class BusyPoll:
    """Busy polling of the loop, started by each response that leaves its client with nothing pending."""

    def __init__(self, loop: Loop, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._loop = loop
        self._clock = clock
        self._until = 0
        self._is_awake = False
        self._misses = 0
        self._rest = REST_ANSWERS_MIN
        self._resting = 0  # Responses after which it does not stay awake yet.

    def on_answered(self) -> None:
        if self._resting:
            self._resting -= 1
            return
        self._until = self._clock() + AWAKE_NS
        if self._is_awake:
            self._misses = 0
            self._rest = REST_ANSWERS_MIN
        else:
            self._is_awake = True
            self._loop.call_soon(self._poll)

    def _poll(self) -> None:
        if self._clock() < self._until:
            self._loop.call_soon(self._poll)
            return
        self._is_awake = False
        self._misses += 1
        if self._misses >= MISSES_MAX:
            self._resting = self._rest
            self._rest = min(2 * self._rest, REST_ANSWERS_MAX)
