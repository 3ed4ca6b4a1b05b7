"""Long work of the core on the loop, in slices: between two of them everybody else has a turn.

The core yields where it may be interrupted, after each partition for example, and has no clock; this looks at one.
Pieces of work are done one after the other, in the order in which they came.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator

SLICE_NS = 2_000_000
# No single step of ours takes so long: it waited for a disk.  What others do in many turns of the loop, as a controller
# does, must not wait for it in each of them.
STALL_NS = 200_000_000
REST_SECONDS_MAX = 0.5


class Slices:
    """Long works, done one after the other; `settle` is called after each slice, to answer what it made possible.

    A work that fails is over; the loop tells of its failure.  After a stall the loop is left to others for as long as
    that took, within bounds.
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
        """Adds a work, which begins at once if no other is under way."""
        self._works.append(work)
        if not self._is_due:
            self._go_on()

    def finish(self) -> None:
        """Does all works to their end, without a pause."""
        while self._works:
            for _ in self._works.popleft():
                pass

    def drop(self) -> None:
        """Leaves all works undone."""
        self._works.clear()

    def _go_on(self) -> None:
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
        finally:  # A work that failed does not keep back the others.
            took = time.monotonic_ns() - began
            if took >= STALL_NS:
                self._is_due = True
                self._loop.call_later(min(took / 1e9, REST_SECONDS_MAX), self._go_on)
            elif self._works:
                self._is_due = True
                self._loop.call_soon(self._go_on)
        self._settle()
