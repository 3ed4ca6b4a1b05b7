"""Turns of connections with long requests: one per round of the loop, for the longest waiting one.

With a turn for each, ten clients with very large requests would delay all others by ten turns in every round.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext


class Turns:
    """Turns of long requests on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.around: AbstractContextManager[None] = nullcontext()  # Entered around each turn; reusable.
        self._waiting: deque[Callable[[], None]] = deque()

    def wait(self, turn: Callable[[], None]) -> None:
        """Call `turn` once, after the turns that were added before it."""
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        turn = self._waiting[0]
        try:
            with self.around:
                turn()
        finally:  # If it already waits for another turn, that turn is behind the others.
            self._waiting.popleft()
            if self._waiting:
                self._loop.call_soon(self._next)
