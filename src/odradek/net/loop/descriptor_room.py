"""Makes room when descriptors run short: logs that were not written to for longest let go of their files.

    a file gets one of the last, or none ──> after this turn of the loop some logs let go
    a connection would take one of those that are kept for logs ──> some that hold lower ones let go at once
    once a second ──> the same as for a file, whoever has taken them

A log with something unsynced is synced first, so it lets go the next time.  What finds no descriptor meanwhile is
refused with an error that clients try again after, and no log is given up for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek.net.loop import descriptors

PAUSE_SECONDS = 0.25  # After a look that found nothing for connections: it looks at all partitions.


class Room:
    """Has idle logs let go of their files.

    `release(count, below)` lets up to `count` logs go whose descriptor is less than `below`; it returns how many did.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, release: Callable[[int, int], int]) -> None:
        self._loop = loop
        self._release = release
        self._is_asked = False
        self._is_stopped = False
        self._next_for_connections = 0.0

    def opened(self, descriptor: int) -> None:
        """Notes that a file got this descriptor, a negative number if there was none.  Called in any thread."""
        if descriptor >= 0 and descriptors.leaves_spare(descriptor):
            return
        if not self._is_asked and not self._is_stopped:
            self._is_asked = True
            self._loop.call_soon_threadsafe(self._make)

    def look(self) -> None:
        if descriptors.are_short():
            self._make()

    def for_connection(self) -> bool:
        """True if there may be a descriptor by now that is not reserved for logs."""
        limit = descriptors.limit()
        if limit is None:
            return True
        if self._is_stopped or self._loop.time() < self._next_for_connections:
            return False
        reserved = descriptors.reserved_of(limit)
        if self._release(descriptors.spare_of(limit), limit - reserved):
            return True
        self._next_for_connections = self._loop.time() + PAUSE_SECONDS
        return False

    def stop(self) -> None:
        self._is_stopped = True

    def _make(self) -> None:
        self._is_asked = False
        limit = descriptors.limit()
        if limit is not None and not self._is_stopped:
            self._release(descriptors.spare_of(limit), limit)
