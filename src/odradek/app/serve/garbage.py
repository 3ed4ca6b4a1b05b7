"""Garbage collection in a process that is the broker's own: in portions, since a collection holds up everybody.

Nearly everything is freed when its last reference goes: a client that comes and goes leaves no cycle (test_door.py).  A
full collection looks at all objects to find next to nothing, 20 ms with no topic and 150 with 10,000 partitions.  So
young objects are collected often, and of those that have survived twice only the last tens of thousands are ever looked
at again, after every thousand connections, or when nobody asks anything and much more memory is in use than after the
last time.  Older objects are frozen, and a cycle among them stays.  The C library keeps free pages that lie below
something in use; when it is quiet it is asked for them.

What a turn of a long request leaves is frozen without a look.  A list of 100,000 elements takes 20 ms to look at, and
it is one young object among two thousand.  New connections that come by the hundred are frozen, too.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from threading import Thread

from odradek.net.loop.traffic import Traffic

YOUNG_OBJECTS = 2_000  # 0.4 ms to look at; 2 in a request of very many elements, whose objects are all over the memory.
YOUNG_COLLECTIONS = 1  # Between two collections of objects that survived one: 9,000 objects, 3 ms, or 6.
MIDDLE_COLLECTIONS = 3  # Before objects that survived those are frozen: 26,000 objects, 8 ms to look at.
NEVER = 1 << 30
MIDDLE = 1
LOOK_SECONDS = 10
CONNECTIONS = 1_000
GROWN_BYTES = 16 * 1024 * 1024
_STATM = Path("/proc/self/statm")


class Unseen(AbstractContextManager[None]):
    """A context in which nothing is collected; if it leaves more young objects than that, they are frozen."""

    def __init__(self, objects_max: int = 0) -> None:
        self._objects_max = objects_max

    def __enter__(self) -> None:
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if gc.get_count()[0] > self._objects_max:
            gc.freeze()
        gc.enable()


class Garbage:
    """The garbage collector of this process; `begin` is called when everything that stays has been made."""

    def __init__(self, loop: asyncio.AbstractEventLoop, traffic: Traffic) -> None:
        self._loop = loop
        self._traffic = traffic
        self._bytes_seen = 0
        self._connections_seen = 0
        self._resident = 0  # Resident bytes after the last look.

    def begin(self) -> None:
        gc.set_threshold(YOUNG_OBJECTS, YOUNG_COLLECTIONS, NEVER)
        gc.callbacks.append(_freeze_old)
        gc.collect()
        gc.freeze()
        self._resident = resident_bytes()
        self._loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        is_quiet = self._traffic.bytes_in == self._bytes_seen
        self._bytes_seen = self._traffic.bytes_in
        has_grown = is_quiet and resident_bytes() > self._resident + GROWN_BYTES
        if has_grown or self._traffic.connections_accepted >= self._connections_seen + CONNECTIONS:
            self._connections_seen = self._traffic.connections_accepted
            gc.collect()
        if has_grown:
            Thread(target=self._give_back, name="odradek-give-back", daemon=True).start()
        self._loop.call_later(LOOK_SECONDS, self._look)

    def _give_back(self) -> None:
        """Gives memory back, beside the loop: 0.1 ms for each megabyte."""
        give_back()
        self._resident = resident_bytes()


def resident_bytes() -> int:
    """Returns the process's resident bytes; 0 where the system does not say."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def give_back() -> None:
    """Gives free pages of the C library's heap back to the system, where the library is glibc."""
    import ctypes  # Few brokers ever need it.

    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _freeze_old(phase: str, info: Mapping[str, int]) -> None:
    if phase == "stop" and info["generation"] == MIDDLE and gc.get_count()[2] >= MIDDLE_COLLECTIONS:
        gc.freeze()
