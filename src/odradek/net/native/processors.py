"""Which processors this process may use, and which of them a thread keeps to.

Waking a thread on another processor takes longer than a small request, and on virtual machines several times as long;
what one of them has just written the other has to fetch.  So whoever answers should run where the question came from.
"""

from __future__ import annotations

import os

CAN_KEEP = hasattr(os, "sched_setaffinity")


def usable() -> set[int]:
    return os.sched_getaffinity(0) if CAN_KEEP else set()


def groups(count: int) -> list[set[int]]:
    """Returns the usable processors in at most `count` groups of neighbours; none if there is nothing to choose."""
    numbers = sorted(usable())
    count = min(count, len(numbers))
    if count < 2:
        return []
    return [set(numbers[index * len(numbers) // count : (index + 1) * len(numbers) // count]) for index in range(count)]


def keep_to(processors: set[int]) -> bool:
    """Keeps the calling thread to these processors from now on; False if the system refuses."""
    if not processors or not CAN_KEEP:
        return False
    try:
        os.sched_setaffinity(0, processors)
    except OSError:
        return False
    return True
