"""Simulated threads of a broker: work starts, is executed at some moment, and reports its end.

As in net/loop/pools, each kind of work has its own threads, and excess work waits in order. The state that work sees,
and its state after a crash, depends on the moment of execution: at its start, at its end or in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TypeVar

from odradek.net.loop.pools import THREADS_MAX, Pool
from sim.simclock import MILLISECOND_US, SimNode

Result = TypeVar("Result")

CHANGES = "changes"  # The metadata tree's thread: one operation at a time, as in net/shell/shell.
DURATION_US = (200, 8 * MILLISECOND_US)
LONG_DURATION_US = (8 * MILLISECOND_US, 400 * MILLISECOND_US)
LONG_SHARE = 0.04


class SimThreads:
    """The threads of one process."""

    def __init__(self, node: SimNode, random: Random) -> None:
        self._node = node
        self._random = random
        self._free: dict[Pool | str, int] = {CHANGES: 1}
        self._free.update(THREADS_MAX.items())
        self._waiting: dict[Pool | str, deque[tuple[Callable[[], None], Callable[[], None]]]] = {}
        self._begun: dict[Callable[[], None], None] = {}  # And not done.

    def submit(self, pool: Pool | str, work: Callable[[], Result], then: Callable[[Result], None]) -> None:
        """Execute work some time later; `then` receives its result on the loop."""
        results: list[Result] = []
        self._waiting.setdefault(pool, deque()).append(
            (lambda: results.append(work()), lambda: then(results[0])),
        )
        self._begin(pool)

    def _begin(self, pool: Pool | str) -> None:
        waiting = self._waiting[pool]
        while waiting and self._free[pool]:
            self._free[pool] -= 1
            work, then = waiting.popleft()
            self._begun[work] = None
            duration_us = self._duration_us()
            done_us = self._random.choice((0, duration_us, self._random.randrange(duration_us)))
            self._node.after(done_us, partial(self._do, work))
            self._node.after(duration_us, partial(self._end, pool, then))

    def _do(self, work: Callable[[], None]) -> None:
        del self._begun[work]
        work()

    def _end(self, pool: Pool | str, then: Callable[[], None]) -> None:
        self._free[pool] += 1
        then()
        self._begin(pool)

    def _duration_us(self) -> int:
        is_long = self._random.random() < LONG_SHARE
        return self._random.randrange(*(LONG_DURATION_US if is_long else DURATION_US))

    def finish(self) -> None:
        """Execute all pending work without callbacks, since the process stops."""
        left = [*self._begun, *(work for waiting in self._waiting.values() for work, _ in waiting)]
        self._begun.clear()
        self._waiting.clear()
        for work in left:
            work()
