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


class Slices:
    """`settle` is called after each slice: what it made possible is answered at once.

    A piece that fails is over; its failure is the loop's to tell.
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
        """Begins at once if nothing else is under way."""
        self._works.append(work)
        if not self._is_due:
            self._go_on()

    def finish(self) -> None:
        """Does all that is left, without a pause."""
        while self._works:
            for _ in self._works.popleft():
                pass

    def drop(self) -> None:
        """Leaves undone what is left."""
        self._works.clear()

    def _go_on(self) -> None:
        self._is_due = False
        if not self._works:
            return
        until = time.monotonic_ns() + SLICE_NS
        try:
            while self._works and time.monotonic_ns() < until:
                work = self._works.popleft()
                for _ in work:
                    if time.monotonic_ns() >= until:
                        self._works.appendleft(work)
                        break
        finally:  # What failed is over, and does not keep the others.
            if self._works:
                self._is_due = True
                self._loop.call_soon(self._go_on)
        self._settle()
