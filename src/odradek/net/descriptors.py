"""How many file descriptors are left: connections must not take those that the logs need.

A partition that is written to holds one, a reader of old records some more, and each index is opened for a moment.  So
some are kept for them, and a connection that would take one of those is turned away instead.
"""

from __future__ import annotations

import os
import resource

RESERVED_MIN = 32
RESERVED_MAX = 4096
STDERR = 2


def reserved_of(limit: int) -> int:
    """What is kept for the logs: a quarter, where that is not too few or needlessly many."""
    return min(max(limit // 4, RESERVED_MIN), RESERVED_MAX)


def are_left() -> bool:
    """True if one more connection leaves enough for the logs.

    The system gives out the lowest number that is free, so the next one tells how many are taken, and no count can go
    wrong.
    """
    try:
        lowest_free = os.dup(STDERR)
    except OSError:
        return False
    os.close(lowest_free)
    return leaves_enough(lowest_free)


def leaves_enough(descriptor: int) -> bool:
    """The same of a connection that was just given this one."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit == resource.RLIM_INFINITY or descriptor < limit - reserved_of(limit)
