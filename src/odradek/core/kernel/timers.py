"""Timers of the core: session timeouts, rebalance timeouts, backoffs.

They share one heap.  A cancelled timer stays in it until its time, or until most of its timers are cancelled.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from odradek.core.kernel.moment import Moment

Action = Callable[[Moment], None]

_CANCELLED_MIN = 256  # Fewer are not worth a new heap.


class Timer:
    """One action at one time on the steady clock, in ms."""

    def __init__(self, timers: Timers, due: int, action: Action) -> None:
        self._timers = timers
        self.due = due
        self.action: Action | None = action

    @property
    def is_set(self) -> bool:
        return self.action is not None

    def cancel(self) -> None:
        """Cancel the timer.  Harmless once it is over."""
        if self.action is not None:
            self.action = None
            self._timers.on_cancelled()


class Timers:
    """Timers of one broker."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._numbers = count()  # Timers with equal times run in the order in which they were set.
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def at(self, due: int, action: Action) -> Timer:
        """Set a timer: the first tick at or after `due` calls `action`."""
        timer = Timer(self, due, action)
        heapq.heappush(self._heap, (due, next(self._numbers), timer))
        return timer

    def next_due(self) -> int | None:
        """Return the time of the next timer; None if there is none."""
        while self._heap and not self._heap[0][2].is_set:
            heapq.heappop(self._heap)
            self._cancelled -= 1
            assert self._cancelled >= 0, "only cancelled timers are unset in the heap"
        return self._heap[0][0] if self._heap else None

    def tick(self, now: Moment) -> None:
        """Call the due actions, including those that an action sets for now or earlier."""
        while (due := self.next_due()) is not None and due <= now.steady:
            timer = heapq.heappop(self._heap)[2]
            action, timer.action = timer.action, None
            assert action is not None, "the next timer is set"
            action(now)

    def on_cancelled(self) -> None:
        self._cancelled += 1
        assert self._cancelled <= len(self._heap), "a cancelled timer is in the heap until it is removed"
        if self._cancelled > max(_CANCELLED_MIN, len(self._heap) // 2):
            left = len(self)
            self._heap = [entry for entry in self._heap if entry[2].is_set]
            heapq.heapify(self._heap)
            self._cancelled = 0
            assert len(self) == left, "only cancelled timers are removed"
