"""Limits on file descriptors: connections leave enough for logs, and logs leave the last few.

A partition that is being written to uses one descriptor, a reader of old records uses some more, and each index is
opened briefly. Some descriptors are therefore reserved for logs. A connection that would use a reserved one is
rejected, unless an idle log releases a file. When half of the reserved descriptors are in use, logs also release files
for each other. The last few are for files that are open only briefly.

The system assigns the lowest free number, so the next descriptor shows how many are in use. No count of ours can drift.
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
assert RESERVED_MIN // SPARE_SHARE > SHORT_LIVED_FILES, "logs release files before the limit is reached"


def limit() -> int | None:
    """Return the limit of descriptors, or None without a limit; it may change at any time."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def grow_table() -> None:
    """Grow the system's descriptor table now.

    Once there are threads, each doubling takes about 10 ms (RCU).
    """
    maximum = limit()
    last = (TABLED_MAX if maximum is None else min(maximum, TABLED_MAX)) - 1
    with suppress(OSError):
        os.close(fcntl.fcntl(STDERR, fcntl.F_DUPFD_CLOEXEC, last))


def reserved_of(limit: int) -> int:
    """Return the number reserved for logs: a quarter, between RESERVED_MIN and RESERVED_MAX."""
    return min(max(limit // 4, RESERVED_MIN), RESERVED_MAX)


def spare_of(limit: int) -> int:
    """Return the number of reserved descriptors left at which logs release files for each other."""
    return reserved_of(limit) // SPARE_SHARE


def has_run_out(error: OSError) -> bool:
    """Return whether the error means that no descriptor is left."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def lowest_free() -> int | None:
    """Return the number that the next descriptor will have, or None if none is left."""
    try:
        lowest = os.dup(STDERR)
    except OSError:
        return None
    os.close(lowest)
    return lowest


def are_left() -> bool:
    """Return whether one more connection leaves enough descriptors for the logs."""
    lowest = lowest_free()
    return lowest is not None and lowest < limit_for_connections()


def are_short() -> bool:
    """Return whether so few descriptors are left that logs should release some."""
    lowest = lowest_free()
    return lowest is None or not leaves_spare(lowest)


def limit_for_connections() -> int:
    """Return the limit for connections; descriptors below it leave enough for the logs."""
    maximum = limit()
    return sys.maxsize if maximum is None else maximum - reserved_of(maximum)


def leaves_spare(descriptor: int) -> bool:
    """Return whether enough descriptors are left for others after a file received this one."""
    maximum = limit()
    return maximum is None or descriptor < maximum - spare_of(maximum)
