"""Garbage collection in a process that is the broker's own: in portions, since a collection holds up everybody.

Nearly everything is freed when its last reference goes.  A full collection looks at all there is to find little: 13 ms
with 1,000 partitions, 60 ms with 4,000.  So young objects are collected often, and what has survived twice is frozen:
it is not looked at again.  Cycles that come apart later stay, 4 KB for each connection that lived so long.  All is
looked at when nobody asks anything, after a thousand connections, or when much more memory is in use than after the
last time; if it is never quiet, after very many connections.  Then the C library gives its free pages back, too: by
itself it keeps what lies below something that is in use.

What a turn of a long request leaves is frozen unseen.  A list of 100,000 elements takes 20 ms to look at, and it is one
young object among two thousand.  Nor are those looked at who come in by the hundred: they stay.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from odradek.net.traffic import Traffic

YOUNG_OBJECTS = 2_000  # 0.4 ms to look at; 2 in a request of very many elements, whose objects are all over the memory.
YOUNG_COLLECTIONS = 2  # Between two collections of what has survived one: 2 ms, or 6.
NEVER = 1 << 30
MIDDLE = 1
QUIET_SECONDS = 10
CONNECTIONS_WHEN_QUIET = 1_000
CONNECTIONS_MAX = 20_000
GROWN_BYTES = 16 * 1024 * 1024
_STATM = Path("/proc/self/statm")


class Unseen(AbstractContextManager[None]):
    """While it lasts nothing is collected; if it leaves more young objects than that, they are frozen."""

    def __init__(self, objects_max: int = 0) -> None:
        self._objects_max = objects_max

    def __enter__(self) -> None:
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if gc.get_count()[0] > self._objects_max:
            gc.freeze()
        gc.enable()


class Garbage:
    """The collector of this process.  `begin` is called when everything that stays is there."""

    def __init__(self, loop: asyncio.AbstractEventLoop, traffic: Traffic) -> None:
        self._loop = loop
        self._traffic = traffic
        self._bytes_seen = 0
        self._connections_seen = 0
        self._resident = 0  # After all was looked at.

    def begin(self) -> None:
        gc.set_threshold(YOUNG_OBJECTS, YOUNG_COLLECTIONS, NEVER)
        gc.callbacks.append(_freeze_survivors)
        self.collect_all()
        self._loop.call_later(QUIET_SECONDS, self._look)

    def collect_all(self) -> None:
        self._connections_seen = self._traffic.connections_accepted
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._resident = resident_bytes()

    def _look(self) -> None:
        is_quiet = self._traffic.bytes_in == self._bytes_seen
        self._bytes_seen = self._traffic.bytes_in
        new = self._traffic.connections_accepted - self._connections_seen
        if is_quiet and resident_bytes() > self._resident + GROWN_BYTES:
            self.collect_all()
            give_back()
            self._resident = resident_bytes()
        elif new >= (CONNECTIONS_WHEN_QUIET if is_quiet else CONNECTIONS_MAX):
            self.collect_all()
        self._loop.call_later(QUIET_SECONDS, self._look)


def resident_bytes() -> int:
    """0 where the system does not say."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def give_back() -> None:
    """Free pages of the C library's heap go to the system, where it is glibc: some milliseconds."""
    import ctypes  # Few brokers ever need it.

    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _freeze_survivors(phase: str, info: Mapping[str, int]) -> None:
    if phase == "stop" and info["generation"] == MIDDLE:
        gc.freeze()
