"""Incremental garbage collection for a broker's own process, since each collection delays all clients.

Nearly all objects are freed with their last reference: a client that connects and disconnects leaves no cycle
(tests/interop/test_acceptor_connections.py). A full collection examines all objects and finds next to nothing; it
takes 20 ms with no topic and 150 ms with 10,000 partitions. Young objects are therefore collected often. Of the
objects that survive two collections, only the last tens of thousands are examined again: after every thousand
connections, or when no requests arrive and memory has grown much since the last time. Older objects are frozen, and a
cycle among them stays. The C library retains free pages below used memory; they are released when the broker is
quiet.

Objects that survive a turn of a long request are frozen unexamined. A list of 100,000 elements takes 20 ms to examine,
and it is one young object among two thousand. New connections that arrive by the hundred are frozen, too.
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

YOUNG_OBJECTS = 2_000  # 0.4 ms to examine; 2 after a request with very many elements, scattered in memory.
YOUNG_COLLECTIONS = 1  # Between two middle collections: 9,000 objects, 3 ms, or 6.
MIDDLE_COLLECTIONS = 3  # Before middle survivors are frozen: 26,000 objects, 8 ms to examine.
NEVER = 1 << 30
MIDDLE = 1
CHECK_SECONDS = 10
CONNECTIONS = 1_000
GROWN_BYTES = 16 * 1024 * 1024
_STATM = Path("/proc/self/statm")


class CollectionPause(AbstractContextManager[None]):
    """Context without collections; if it leaves more than `objects_max` young objects, they are frozen."""

    def __init__(self, objects_max: int = 0) -> None:
        self._objects_max = objects_max

    def __enter__(self) -> None:
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if gc.get_count()[0] > self._objects_max:
            gc.freeze()
        gc.enable()


class GarbageCollector:
    """Garbage collector of this process; call `start_collecting` after all long-lived objects exist."""

    def __init__(self, loop: asyncio.AbstractEventLoop, traffic: Traffic) -> None:
        self._loop = loop
        self._traffic = traffic
        self._bytes_seen = 0
        self._connections_seen = 0
        self._resident = 0  # Resident bytes after the last check.

    def start_collecting(self) -> None:
        gc.set_threshold(YOUNG_OBJECTS, YOUNG_COLLECTIONS, NEVER)
        gc.callbacks.append(_freeze_old)
        gc.collect()
        gc.freeze()
        self._resident = resident_bytes()
        self._loop.call_later(CHECK_SECONDS, self._check)

    def _check(self) -> None:
        is_quiet = self._traffic.bytes_in == self._bytes_seen
        self._bytes_seen = self._traffic.bytes_in
        has_grown = is_quiet and resident_bytes() > self._resident + GROWN_BYTES
        if has_grown or self._traffic.connections_accepted >= self._connections_seen + CONNECTIONS:
            self._connections_seen = self._traffic.connections_accepted
            gc.collect()
        if has_grown:
            Thread(target=self._trim_heap, name="odradek-give-back", daemon=True).start()
        self._loop.call_later(CHECK_SECONDS, self._check)

    def _trim_heap(self) -> None:
        """Release memory outside the loop's thread: 0.1 ms for each megabyte."""
        trim_heap()
        self._resident = resident_bytes()


def resident_bytes() -> int:
    """Return the process's resident bytes, or 0 if the system does not report them."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def trim_heap() -> None:
    """Return free heap pages of the C library to the system, if the library is glibc."""
    import ctypes  # Few brokers ever need it.

    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _freeze_old(phase: str, info: Mapping[str, int]) -> None:
    if phase == "stop" and info["generation"] == MIDDLE and gc.get_count()[2] >= MIDDLE_COLLECTIONS:
        gc.freeze()
