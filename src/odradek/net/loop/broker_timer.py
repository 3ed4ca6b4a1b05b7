"""Single timer for all deadlines of a broker: ticks at the next deadline, and runs periodic tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from odradek.base.units import SECOND_MS
from odradek.core.broker.broker import Broker
from odradek.core.kernel.moment import Moment

LATE_MS = 100  # A timer this late shows that the loop was delayed.


class Timer(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """Timers of the loop."""

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer: ...


class Ticking:
    """Timer of one broker."""

    def __init__(
        self,
        timers: Timers,
        broker: Broker,
        now: Callable[[], Moment],
        settle: Callable[[], None],
        *,
        start_housekeeping: Callable[[Moment], None],
        housekeeping_ms: int,
    ) -> None:
        """Create a timer that is not running yet.

        `start_housekeeping` starts a round of the periodic tasks; `settle` is called after each tick.
        """
        self._timers = timers
        self._broker = broker
        self._now = now
        self._settle = settle
        self._start_housekeeping = start_housekeeping
        self._housekeeping_ms = housekeeping_ms
        self._timer: Timer | None = None
        self._due = 0
        self._is_late = False
        self._next_housekeeping = 0

    def set(self) -> None:
        """Set the timer for the next deadline; called after every change of state."""
        deadline = self._broker.next_due()
        if self._timer is not None:
            # A timer that fires too early finds nothing to do and sets the next: cheaper than moving it each time.
            if deadline is None or self._due <= deadline:
                return
            self._timer.cancel()
        due = self._next_housekeeping if deadline is None else min(deadline, self._next_housekeeping)
        self._due = due
        self._timer = self._timers.call_later(max(due - self._now().steady, 0) / SECOND_MS, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        now = self._now()
        if now.steady - self._due > LATE_MS and not self._is_late:
            # Requests that arrived during the delay are read first, so that no session expires because of our own
            # pause.
            self._is_late = True
            self._timer = self._timers.call_later(1 / SECOND_MS, self._tick)
            return
        self._timer, self._is_late = None, False
        self._broker.tick(now)
        if now.steady >= self._next_housekeeping:
            self._next_housekeeping = now.steady + self._housekeeping_ms
            self._start_housekeeping(now)
        self._settle()
