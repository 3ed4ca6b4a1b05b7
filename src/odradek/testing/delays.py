"""Data in transit on a slow connection of a test's broker: it arrives later, in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class DelayedDelivery:
    """One direction of a connection; `deliver` is called with each piece after its delay."""

    def __init__(self, loop: asyncio.AbstractEventLoop, deliver: Callable[[bytes], None]) -> None:
        self._loop = loop
        self._deliver = deliver
        self._pieces: deque[tuple[float, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def put(self, data: bytes, seconds: float) -> None:
        """Deliver data after a delay, but not before earlier pieces."""
        due = self._loop.time() + seconds
        if self._pieces:
            due = max(due, self._pieces[-1][0])
        self._pieces.append((due, data))
        self._schedule()

    def flush(self) -> None:
        """Deliver all data immediately."""
        self._deliver_until(float("inf"))

    def _schedule(self) -> None:
        if self._timer is None and self._pieces:
            self._timer = self._loop.call_at(self._pieces[0][0], self._deliver_due)

    def _deliver_due(self) -> None:
        self._timer = None
        self._deliver_until(self._loop.time())

    def _deliver_until(self, now: float) -> None:
        while self._pieces and self._pieces[0][0] <= now:
            self._deliver(self._pieces.popleft()[1])
        self._schedule()
