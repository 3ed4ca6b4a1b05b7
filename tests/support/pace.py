"""How fast this machine is now, for tests that bound the processor time a broker takes."""

from __future__ import annotations

import resource
import subprocess
import sys
import time

LOOPS = 200_000
USUAL_SECONDS = 0.012  # What the loop takes on a machine where the bounds in the tests are ample.

USUAL_START_SECONDS = 0.15  # What an interpreter takes there that imports these.
IMPORTS = "import asyncio, concurrent.futures, dataclasses, logging, multiprocessing, sqlite3, ssl, urllib.request"


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
