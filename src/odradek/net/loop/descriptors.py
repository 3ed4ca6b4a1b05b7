"""How many file descriptors are left: connections must not take those that the logs need, nor logs the last ones.

A partition that is written to holds one, a reader of old records some more, and each index is opened for a moment.  So
some are reserved for logs, and a connection that would take one of those is turned away instead, unless a log that is
idle lets go of one.  When half of the reserved ones are taken, too, logs begin to let go of theirs for each other; the
last few are for files that are open for a moment.

The system gives out the lowest number that is free, so the next one tells how many are taken, and no count can go
wrong.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import sys
from contextlib import suppress

from odradek.base.limits import SHORT_LIVED_FILES

RESERVED_MIN = 32
RESERVED_MAX = 4096
SPARE_SHARE = 2
TABLED_MAX = 16_384  # Each costs 8 bytes of kernel memory.
STDERR = 2
assert RESERVED_MIN // SPARE_SHARE > SHORT_LIVED_FILES, "logs let go before one is refused a file"


def limit() -> int | None:
    """Returns how many descriptors there may be; None without a limit.  It may be changed at any time."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def grow_table() -> None:
    """Has the system's table of descriptors grow now: once there are threads, each doubling takes some 10 ms (RCU)."""
    most = limit()
    last = (TABLED_MAX if most is None else min(most, TABLED_MAX)) - 1
    with suppress(OSError):
        os.close(fcntl.fcntl(STDERR, fcntl.F_DUPFD_CLOEXEC, last))


def reserved_of(limit: int) -> int:
    """Returns how many are reserved for the logs: a quarter, within RESERVED_MIN and RESERVED_MAX."""
    return min(max(limit // 4, RESERVED_MIN), RESERVED_MAX)


def spare_of(limit: int) -> int:
    """Returns how many of the reserved ones are left when logs let go of files for each other."""
    return reserved_of(limit) // SPARE_SHARE


def has_run_out(error: OSError) -> bool:
    """True if the error says that no descriptor is left."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def lowest_free() -> int | None:
    """Returns the number that the next descriptor will have; None if none is left."""
    try:
        lowest = os.dup(STDERR)
    except OSError:
        return None
    os.close(lowest)
    return lowest


def are_left() -> bool:
    """True if one more connection leaves enough for the logs."""
    lowest = lowest_free()
    return lowest is not None and lowest < most_for_connections()


def are_short() -> bool:
    """True if so few are left that logs should let go of some."""
    lowest = lowest_free()
    return lowest is None or not leaves_spare(lowest)


def most_for_connections() -> int:
    """Returns the limit for connections: one whose descriptor is lower leaves enough for the logs."""
    most = limit()
    return sys.maxsize if most is None else most - reserved_of(most)


def leaves_spare(descriptor: int) -> bool:
    """True if a file that was just given this descriptor leaves some for the others."""
    most = limit()
    return most is None or descriptor < most - spare_of(most)
