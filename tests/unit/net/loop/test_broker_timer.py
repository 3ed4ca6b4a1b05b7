"""One timer for all deadlines of a broker, on a simulated clock."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from odradek.core.kernel.moment import Moment
from odradek.net.loop.broker_timer import LATE_MS, Ticking
from sim.simclock import MILLISECOND_US, SECOND_US, SimClock, SimNode
from sim.simloop import SimLoop
from support.in_memory import Harness

HOUSEKEEPING_MS = 1_000


class Ticked:
    """A broker with a simulated loop, and its recorded events."""

    def __init__(self, directory: Path) -> None:
        self.broker = Harness(directory).broker
        self.clock = SimClock()
        self.node = SimNode(self.clock, "one", Random(0))
        self.rounds: list[int] = []
        self.happened: list[int] = []
        self.ticking = Ticking(
            SimLoop(self.node),
            self.broker,
            self.node.now,
            self._settle,
            start_housekeeping=lambda now: self.rounds.append(now.steady),
            housekeeping_ms=HOUSEKEEPING_MS,
        )

    def _settle(self) -> None:
        self.ticking.set()

    def at(self, ms: int) -> int:
        """Schedule an event after so many milliseconds; return its time."""
        due = self.node.now().steady + ms
        self.broker.timers.at(due, self._happens)
        self.ticking.set()
        return due

    def _happens(self, now: Moment) -> None:
        self.happened.append(now.steady)


@pytest.fixture
def ticked(tmp_path: Path) -> Ticked:
    return Ticked(tmp_path)


def test_events_happen_in_time_in_any_order_of_scheduling(ticked: Ticked) -> None:
    late, early = ticked.at(700), ticked.at(20)
    ticked.clock.run_until(SECOND_US // 2)
    assert ticked.happened == [early]
    ticked.clock.run_until(SECOND_US)
    assert ticked.happened == [early, late]


def test_periodic_tasks_start_immediately_and_repeat_at_their_interval(ticked: Ticked) -> None:
    ticked.ticking.set()
    ticked.clock.run_until(10 * MILLISECOND_US)
    (first,) = ticked.rounds
    ticked.clock.run_until(2 * SECOND_US + SECOND_US // 2)
    assert ticked.rounds == [first, first + HOUSEKEEPING_MS, first + 2 * HOUSEKEEPING_MS]


def test_late_timer_runs_after_other_work(ticked: Ticked) -> None:
    """Data that arrived during the stall is read before a session ends for silence."""
    ticked.at(20)
    ticked.node.pause()
    ticked.clock.run_until((20 + 2 * LATE_MS) * MILLISECOND_US)
    ticked.node.resume()
    seen: list[int] = []
    ticked.node.soon(lambda: seen.extend(ticked.happened))
    ticked.clock.run_until((20 + 3 * LATE_MS) * MILLISECOND_US)
    assert seen == [] and len(ticked.happened) == 1


def test_stopped_timer_runs_nothing(ticked: Ticked) -> None:
    ticked.at(20)
    ticked.ticking.stop()
    ticked.clock.run_until(SECOND_US)
    assert not ticked.happened and not ticked.rounds
