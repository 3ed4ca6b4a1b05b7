"""Usable processors of this process, and binding of threads to them.

Waking a thread on another processor takes longer than a small request, on virtual machines several times as long. In
addition, that processor must fetch the data just written by this one. A response should therefore be produced on the
processor that received the request.
"""

from __future__ import annotations

import os

CAN_BIND = hasattr(os, "sched_setaffinity")


def usable() -> set[int]:
    return os.sched_getaffinity(0) if CAN_BIND else set()


def groups(count: int) -> list[set[int]]:
    """Return the usable processors in at most `count` groups of neighbours; none if only one is possible."""
    numbers = sorted(usable())
    count = min(count, len(numbers))
    if count < 2:
        return []
    return [set(numbers[index * len(numbers) // count : (index + 1) * len(numbers) // count]) for index in range(count)]


def bind_thread(processors: set[int]) -> bool:
    """Bind the calling thread to these processors; return False if the system refuses."""
    if not processors or not CAN_BIND:
        return False
    try:
        os.sched_setaffinity(0, processors)
    except OSError:
        return False
    return True
