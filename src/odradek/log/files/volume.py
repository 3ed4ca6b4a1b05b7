"""How large the volume is that a data directory lies on, and whether there is little room left on it."""

from __future__ import annotations

import os
from typing import NamedTuple

from odradek.base.units import GIB, MIB

FULL_BYTES = 1 * MIB  # With less no disk counts as one with room, see probe.py.
RESERVE_BYTES = 1 * GIB  # A segment; of a small volume a fiftieth.
RESERVED_PART = 50
LEAST_RESERVE_BYTES = 16 * MIB  # More than a start gives back for its own work (the metadata file's reserve).


class Volume(NamedTuple):
    """Bytes in all, and those that this user may still write; -1 where that is not known."""

    total_bytes: int
    usable_bytes: int

    @property
    def is_full(self) -> bool:
        return 0 <= self.usable_bytes < FULL_BYTES

    @property
    def is_short(self) -> bool:
        """True if it is full, or nearly."""
        reserve = max(LEAST_RESERVE_BYTES, min(RESERVE_BYTES, self.total_bytes // RESERVED_PART))
        return 0 <= self.usable_bytes < reserve


UNKNOWN = Volume(-1, -1)


def volume_of(path: str) -> Volume:
    """Asks the file system, which may be slow to answer where it lies on a network."""
    try:
        status = os.statvfs(path)
    except OSError:
        return UNKNOWN
    return Volume(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)
