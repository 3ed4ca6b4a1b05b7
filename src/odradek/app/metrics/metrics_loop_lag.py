"""Lag of the event loop: a tick measures its delay after its due time.

One loop does all work for clients, so anything that blocks the loop delays every client.
"""

from __future__ import annotations

import asyncio
import time

from odradek.net.loop.traffic import Latencies

TICK_SECONDS = 0.1
WINDOW_SECONDS = 30


class LoopLag:
    """Meter of the loop's lag; all methods except `overdue` belong to the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.lags = Latencies()
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._due = time.monotonic()
        self._window_end = 0.0
        self._max_before = self._max_now = 0.0  # The greatest lags of the previous and the current window.

    @property
    def max_seconds(self) -> float:
        """Return the greatest lag of the last 30 to 60 seconds."""
        return max(self._max_before, self._max_now)

    def overdue(self) -> float:
        """Return how long the next tick has been overdue. Callable from any thread."""
        return max(0.0, time.monotonic() - self._due)

    def start(self) -> None:
        self._due = time.monotonic() + TICK_SECONDS
        self._timer = self._loop.call_later(TICK_SECONDS, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        now = time.monotonic()
        lag = max(0.0, now - self._due)  # The loop's clock has millisecond resolution: a tick may be early.
        self.lags.add(lag)
        if now >= self._window_end:
            self._max_before, self._max_now = self._max_now, 0.0
            self._window_end = now + WINDOW_SECONDS
        self._max_now = max(self._max_now, lag)
        self.start()
