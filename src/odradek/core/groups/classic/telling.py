"""Answers the members of a group in portions: a thousand answers in one turn would hold up everybody else."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from odradek.core.groups.classic.members import Member
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.timers import Timer, Timers

MEMBERS_PER_TURN = 100  # 1 ms, and their answers take 5.
PAUSE_MS = 1

Tell = Callable[[Member, Moment], None]


class Telling:
    """One round of answers at a time: a change of the group, or another round, first finishes this one at once."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self.left: deque[Member] = deque()  # Who has not been told yet.
        self._portion = 0  # How many are told next.
        self._tell: Tell | None = None
        self._timer: Timer | None = None

    def begin(self, members: Iterable[Member], tell: Tell, now: Moment) -> None:
        """Calls `tell` with each member, also with those that leave meanwhile."""
        self.finish(now)
        self.left.extend(members)
        self._tell = tell
        if len(self.left) > MEMBERS_PER_TURN:
            self._portion = 1  # A leader's answer may be as large as all others.
            self._pause(now)  # What led here took some time already.
        else:
            self.finish(now)

    def finish(self, now: Moment) -> None:
        self._tell_next(len(self.left), now)
        self.drop()

    def drop(self) -> None:
        """Ends the round without answering the rest."""
        self.left.clear()
        self._tell = None  # It may refer to what all members said.
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _pause(self, now: Moment) -> None:
        self._timer = self._timers.at(now.steady + PAUSE_MS, self._go_on)

    def _go_on(self, now: Moment) -> None:
        self._tell_next(min(len(self.left), self._portion), now)
        self._portion = MEMBERS_PER_TURN
        if self.left:
            self._pause(now)
        else:
            self.drop()

    def _tell_next(self, count: int, now: Moment) -> None:
        for _ in range(count):
            assert self._tell is not None
            self._tell(self.left.popleft(), now)
