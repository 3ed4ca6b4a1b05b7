"""How fast this machine is now, for tests that bound the processor time a broker takes."""

from __future__ import annotations

import time

LOOPS = 200_000
USUAL_SECONDS = 0.012  # What the loop takes on a machine where the bounds in the tests are ample.


def slowness() -> float:
    """By what a bound on processor time has to be multiplied here: 1 on a usual machine, or a faster one."""
    return max(1.0, min(_loop() for _ in range(5)) / USUAL_SECONDS)


def _loop() -> float:
    began = time.process_time()
    total = 0
    for number in range(LOOPS):
        total += number
    return time.process_time() - began
