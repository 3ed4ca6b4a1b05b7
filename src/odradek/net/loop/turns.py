"""Turns of connections with long requests: one in each round of the loop, for the one that has waited longest.

With a turn for each, ten clients that ask for very much would keep all others waiting ten turns, round after round.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext


class Turns:
    """The turns of long requests on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.around: AbstractContextManager[None] = nullcontext()  # Entered around each turn; used again and again.
        self._waiting: deque[Callable[[], None]] = deque()

    def wait(self, turn: Callable[[], None]) -> None:
        """Calls `turn` once, when those before it have had theirs."""
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        turn = self._waiting[0]
        try:
            with self.around:
                turn()
        finally:  # If it waits for another turn already, that is behind the others.
            self._waiting.popleft()
            if self._waiting:
                self._loop.call_soon(self._next)
