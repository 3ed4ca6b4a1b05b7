"""A member's session: it ends unless the member sends a heartbeat in time."""

from __future__ import annotations

from odradek.core.kernel.moment import Moment
from odradek.core.kernel.timers import Action, Timer, Timers


class Session:
    """A timer that is put off again and again.

    A heartbeat only moves the deadline: the timer looks at it when it fires, and is set again if it was early.
    """

    __slots__ = ("_deadline", "_ended", "_timer", "_timers")

    def __init__(self, timers: Timers, ended: Action) -> None:
        self._timers = timers
        self._ended = ended
        self._deadline = 0
        self._timer: Timer | None = None

    def extend(self, now: Moment, ms: int) -> None:
        """Sets the end of the session to `ms` from now, which may be sooner than it was."""
        self._deadline = now.steady + ms
        if self._timer is None or not self._timer.is_set or self._timer.due > self._deadline:
            self.cancel()
            self._timer = self._timers.at(self._deadline, self._look)

    def is_long_over(self, now: Moment, ms: int) -> bool:
        """True if the session should have ended `ms` ago or earlier, and did not, as the broker stood still."""
        return self._timer is not None and self._timer.is_set and now.steady >= self._deadline + ms

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, now: Moment) -> None:
        if now.steady < self._deadline:
            self._timer = self._timers.at(self._deadline, self._look)
        else:
            self._ended(now)
