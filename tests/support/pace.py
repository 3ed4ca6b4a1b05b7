"""The current speed of this machine, for the tests that bound the processor time of the event loop.

A processor that loops at full speed may wait long for memory: on a machine with shared memory, a page unused for a
second may cost 30 µs at its next access, which is charged to the accessing process.
"""

from __future__ import annotations

import random
import statistics
import time

LOOPS = 200_000
USUAL_SECONDS = 0.012  # Duration of the loop on a machine where the bounds of the tests are ample.

MEMORY_SLOWNESS_MAX = 3.0  # A larger factor would make a bound meaningless.
OBJECTS = 50_000
SPREAD_BYTES = 200  # Size of an object: few share a page, none a cache line.
IDLE_SECONDS = 1.0  # As between two rounds of housekeeping.
USUAL_TOUCH_SECONDS = 150e-9  # Twice the duration of the first access after only a tenth of a second.


def memory_slowness() -> float:
    """Return the factor for bounds on work that reads much memory unused for a while."""
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
    """Return the factor for bounds on processor time: 1 on a usual or faster machine."""
    return max(1.0, min(_loop() for _ in range(5)) / USUAL_SECONDS)


def _loop() -> float:
    began = time.process_time()
    total = 0
    for number in range(LOOPS):
        total += number
    return time.process_time() - began
