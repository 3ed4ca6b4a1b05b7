"""A broker's threads without threads: work that begins, is done at some moment, and is told of at its end.

As in net/loop/pools each kind of work has threads of its own, and what they can't take waits in the order it came.
What work finds, and what of it a crash leaves, depends on when it is done: at its beginning, at its end or in between.
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

CHANGES = "changes"  # Of the metadata tree: one at a time, as net/shell/shell has it.
DURATION_US = (200, 8 * MILLISECOND_US)
LONG_DURATION_US = (8 * MILLISECOND_US, 400 * MILLISECOND_US)
LONG_SHARE = 0.04


class SimThreads:
    """Those of one process."""

    def __init__(self, node: SimNode, random: Random) -> None:
        self._node = node
        self._random = random
        self._free: dict[Pool | str, int] = {CHANGES: 1}
        self._free.update(THREADS_MAX.items())
        self._waiting: dict[Pool | str, deque[tuple[Callable[[], None], Callable[[], None]]]] = {}
        self._begun: dict[Callable[[], None], None] = {}  # And not done.

    def submit(self, pool: Pool | str, work: Callable[[], Result], then: Callable[[Result], None]) -> None:
        """`then` gets what `work` returns, on the loop, some time later."""
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
        """The process stops: what was asked for is done, and nobody is told."""
        left = [*self._begun, *(work for waiting in self._waiting.values() for work, _ in waiting)]
        self._begun.clear()
        self._waiting.clear()
        for work in left:
            work()
