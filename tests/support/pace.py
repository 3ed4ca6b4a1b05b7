"""How fast this machine is now, for tests that bound the processor time a broker takes.

A processor that loops as fast as ever may wait long for memory: of a machine that shares its memory with others, a page
that nobody touched for a second may cost 30 µs at its next touch, charged to who touches it.
"""

from __future__ import annotations

import random
import resource
import statistics
import subprocess
import sys
import time

LOOPS = 200_000
USUAL_SECONDS = 0.012  # What the loop takes on a machine where the bounds in the tests are ample.

USUAL_START_SECONDS = 0.15  # What an interpreter takes there that imports these.
IMPORTS = "import asyncio, concurrent.futures, dataclasses, logging, multiprocessing, sqlite3, ssl, urllib.request"


MEMORY_SLOWNESS_MAX = 3.0  # Beyond it a bound says nothing any more.
OBJECTS = 50_000
SPREAD_BYTES = 200  # An object and its like: few of them share a page, none a cache line.
IDLE_SECONDS = 1.0  # As between two rounds of housekeeping.
USUAL_TOUCH_SECONDS = 150e-9  # Twice what the first touch of one took where only a tenth of a second had passed.


def memory_slowness() -> float:
    """By what a bound has to be multiplied here on who goes through much that was not touched for a while."""
    objects = [bytearray(SPREAD_BYTES) for _ in range(OBJECTS)]
    random.Random(0).shuffle(objects)
    found = statistics.median(_touch(objects) for _ in range(3)) / (USUAL_TOUCH_SECONDS * OBJECTS)
    return min(max(1.0, found), MEMORY_SLOWNESS_MAX)


def _touch(objects: list[bytearray]) -> float:
    time.sleep(IDLE_SECONDS)
    began = time.thread_time()
    list(objects)
    return time.thread_time() - began


def slowness() -> float:
    """By what a bound on processor time has to be multiplied here: 1 on a usual machine, or a faster one."""
    return max(1.0, min(_loop() for _ in range(5)) / USUAL_SECONDS)


def _loop() -> float:
    began = time.process_time()
    total = 0
    for number in range(LOOPS):
        total += number
    return time.process_time() - began


def start_slowness() -> float:
    """The same for processes that start, which a busy neighbour slows more than it does a loop that needs no memory."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", IMPORTS], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return max(1.0, (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) / USUAL_START_SECONDS)
