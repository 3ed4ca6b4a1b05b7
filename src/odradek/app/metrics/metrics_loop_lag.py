"""How late the event loop is: a tick that measures how long after its time it comes.

Everything a broker does for its clients is done on one loop, so that what holds the loop holds everybody.
"""

from __future__ import annotations

import asyncio
import time

from odradek.net.loop.traffic import Latencies

TICK_SECONDS = 0.1
WINDOW_SECONDS = 30


class LoopLag:
    """Measures how late the loop is; all but `overdue` is for the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.lags = Latencies()
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._due = time.monotonic()
        self._window_end = 0.0
        self._max_before = self._max_now = 0.0  # The greatest lag of the last whole window, and of this one.

    @property
    def max_seconds(self) -> float:
        """The greatest lag of the last half minute to minute."""
        return max(self._max_before, self._max_now)

    def overdue(self) -> float:
        """Returns how long the loop has been failing to come to the next tick; from any thread."""
        return max(0.0, time.monotonic() - self._due)

    def start(self) -> None:
        self._due = time.monotonic() + TICK_SECONDS
        self._timer = self._loop.call_later(TICK_SECONDS, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        now = time.monotonic()
        lag = max(0.0, now - self._due)  # The loop's clock is in milliseconds: a tick may come a little early.
        self.lags.add(lag)
        if now >= self._window_end:
            self._max_before, self._max_now = self._max_now, 0.0
            self._window_end = now + WINDOW_SECONDS
        self._max_now = max(self._max_now, lag)
        self.start()
