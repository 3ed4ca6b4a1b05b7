"""A member's session, which ends unless the member sends a heartbeat in time."""

from __future__ import annotations

from odradek.core.kernel.moment import Moment
from odradek.core.kernel.timers import Action, Timer, Timers


class MemberSession:
    """A timer that is extended repeatedly.

    A heartbeat only moves the deadline. When the timer fires before the deadline, it is set again.
    """

    __slots__ = ("_deadline", "_on_ended", "_timer", "_timers")

    def __init__(self, timers: Timers, on_ended: Action) -> None:
        self._timers = timers
        self._on_ended = on_ended
        self._deadline = 0
        self._timer: Timer | None = None

    def extend(self, now: Moment, ms: int) -> None:
        """Set the end of the session to `ms` from now, which may be earlier than before."""
        self._deadline = now.steady + ms
        if self._timer is None or not self._timer.is_set or self._timer.due > self._deadline:
            self.cancel()
            self._timer = self._timers.at(self._deadline, self._on_timer)
        assert self._timer.is_set and self._timer.due <= self._deadline, "the timer fires before the session ends"

    def is_long_over(self, now: Moment, ms: int) -> bool:
        """Return whether the session is overdue by `ms` or more, because the broker was stalled."""
        return self._timer is not None and self._timer.is_set and now.steady >= self._deadline + ms

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _on_timer(self, now: Moment) -> None:
        assert self._timer is not None and not self._timer.is_set, "a session has one timer"
        if now.steady < self._deadline:
            self._timer = self._timers.at(self._deadline, self._on_timer)
        else:
            self._on_ended(now)
