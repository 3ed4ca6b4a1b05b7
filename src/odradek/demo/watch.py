"""Monitoring of all running parts: their progress, failures and stalls."""

from __future__ import annotations

import time
from collections.abc import Sequence

from odradek.demo.hours import Hours
from odradek.demo.processes import Process
from odradek.demo.row_counts import RowCount
from odradek.demo.screen import Counts, Screen

# These end a hang. Starting Spark takes 10 to 30 s, and minutes if other processes use the same cores.
STALL_SECONDS_MAX = 600.0
ALL_SECONDS_MAX = 3_600.0


class NoProgress(Exception):
    """Error for too long a time without progress; one sentence."""


class Watch:
    def __init__(self, processes: Sequence[Process], lake: RowCount, hours: Hours, screen: Screen) -> None:
        self.counts = Counts()
        self._processes = processes
        self._lake = lake
        self._hours = hours
        self._screen = screen
        self._started = self._progress_at = time.monotonic()

    def check_progress(self, produced: int) -> None:
        """Check all parts; called often, by one thread.

        Raise ProcessFailed, HoursUnreadable or NoProgress.
        """
        for process in self._processes:
            process.check()
        self._hours.poll()
        counts = Counts(produced, self._lake.now(), self._hours.flights)
        now = time.monotonic()
        if counts != self.counts:
            self.counts, self._progress_at = counts, now
        self._screen.show(counts)
        if now - self._progress_at > STALL_SECONDS_MAX or now - self._started > ALL_SECONDS_MAX:
            raise NoProgress(f"After {now - self._started:.0f} s it goes no further: {counts}.")
