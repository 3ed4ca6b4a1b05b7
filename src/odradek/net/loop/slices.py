"""Long work of the core on the loop, in slices: other work has a turn between two slices.

The core yields at points where it may be interrupted, for example after each partition. The core has no clock; this
module checks the time. Works run one after the other, in the order in which they were added.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator

SLICE_NS = 2_000_000
# No single step of ours takes this long without waiting for a disk. Other work takes many turns of the loop (a
# controller's does), and must not wait for the disk in each turn.
STALL_NS = 200_000_000
REST_SECONDS_MAX = 0.5


class Slices:
    """Long works that run one after the other; `settle` is called after each slice to send responses.

    A work that fails is removed, and the loop reports its exception. After a stall, the loop is left to other work for
    as long as the stall took, within bounds.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, settle: Callable[[], None]) -> None:
        self._loop = loop
        self._settle = settle
        self._works: deque[Iterator[None]] = deque()
        self._is_due = False

    @property
    def is_under_way(self) -> bool:
        return bool(self._works)

    def add(self, work: Iterator[None]) -> None:
        """Add a work, which starts at once if no other is under way."""
        self._works.append(work)
        if not self._is_due:
            self._run_next()

    def finish(self) -> None:
        """Run all works to completion, without a pause."""
        while self._works:
            for _ in self._works.popleft():
                pass

    def drop(self) -> None:
        """Discard all works."""
        self._works.clear()

    def _run_next(self) -> None:
        self._is_due = False
        if not self._works:
            return
        began = time.monotonic_ns()
        until = began + SLICE_NS
        try:
            while self._works and time.monotonic_ns() < until:
                work = self._works.popleft()
                for _ in work:
                    if time.monotonic_ns() >= until:
                        self._works.appendleft(work)
                        break
        finally:  # A work that fails does not delay the others.
            duration_ns = time.monotonic_ns() - began
            if duration_ns >= STALL_NS:
                self._is_due = True
                self._loop.call_later(min(duration_ns / 1e9, REST_SECONDS_MAX), self._run_next)
            elif self._works:
                self._is_due = True
                self._loop.call_soon(self._run_next)
        self._settle()
