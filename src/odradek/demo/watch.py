"""Looks after everything that runs: how far it has come, whether it still lives, and whether it still moves."""

from __future__ import annotations

import time
from collections.abc import Sequence

from odradek.demo.hours import Hours
from odradek.demo.processes import Process
from odradek.demo.row_counts import RowCount
from odradek.demo.screen import Counts, Screen

# They end a hang.  A start of Spark takes 10 to 30 s, and minutes where others want the same cores.
STALL_SECONDS_MAX = 600.0
ALL_SECONDS_MAX = 3_600.0


class NothingMoves(Exception):
    """Raised when nothing has moved for too long; one sentence."""


class Watch:
    def __init__(self, processes: Sequence[Process], lake: RowCount, hours: Hours, screen: Screen) -> None:
        self.counts = Counts()
        self._processes = processes
        self._lake = lake
        self._hours = hours
        self._screen = screen
        self._started = self._moved_at = time.monotonic()

    def look(self, produced: int) -> None:
        """Looks at everything; called often, by one thread.  Raises ProcessFailed, HoursUnreadable or NothingMoves."""
        for process in self._processes:
            process.check()
        self._hours.poll()
        counts = Counts(produced, self._lake.now(), self._hours.flights)
        now = time.monotonic()
        if counts != self.counts:
            self.counts, self._moved_at = counts, now
        self._screen.show(counts)
        if now - self._moved_at > STALL_SECONDS_MAX or now - self._started > ALL_SECONDS_MAX:
            raise NothingMoves(f"After {now - self._started:.0f} s it goes no further: {counts}.")
