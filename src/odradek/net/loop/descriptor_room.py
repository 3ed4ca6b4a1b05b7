"""Release of log files when file descriptors run short, least recently written logs first.

    a file gets one of the last, or none ──> some logs release files after this turn of the loop
    a connection needs a descriptor reserved for logs ──> some logs with lower descriptors release files at once
    once a second ──> the same as for a file, whatever uses the descriptors

A log with unsynced data is synced first, so it releases its file the next time. Until then, an operation that finds no
descriptor is refused with a retriable error, and no log goes offline for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek.net.loop import descriptors

PAUSE_SECONDS = 0.25  # After a search that found nothing for connections, because a search visits all partitions.


class DescriptorRoom:
    """Release of idle logs' files when descriptors run short.

    `release(count, below)` releases the files of up to `count` logs whose descriptors are less than `below`, and
    returns the number of these logs.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, release: Callable[[int, int], int]) -> None:
        self._loop = loop
        self._release = release
        self._is_scheduled = False
        self._is_stopped = False
        self._next_for_connections = 0.0

    def on_opened(self, descriptor: int) -> None:
        """Record the descriptor that a file received, or a negative number if there was none.

        May be called in any thread.
        """
        if descriptor >= 0 and descriptors.leaves_spare(descriptor):
            return
        if not self._is_scheduled and not self._is_stopped:
            self._is_scheduled = True
            self._loop.call_soon_threadsafe(self._make_room)

    def make_room_if_short(self) -> None:
        if descriptors.are_short():
            self._make_room()

    def for_connection(self) -> bool:
        """Return whether a descriptor that is not reserved for logs may be available now."""
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

    def _make_room(self) -> None:
        self._is_scheduled = False
        limit = descriptors.limit()
        if limit is not None and not self._is_stopped:
            self._release(descriptors.spare_of(limit), limit)
