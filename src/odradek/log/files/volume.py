"""Size of the volume that contains a data directory, and checks for low free space."""

from __future__ import annotations

import os
from typing import NamedTuple

from odradek.base.units import GIB, MIB

FULL_BYTES = 1 * MIB  # A disk with less room is considered full, see log/files/probe.py.
RESERVE_BYTES = 1 * GIB  # One segment; a fiftieth of a small volume.
RESERVED_PART = 50
LEAST_RESERVE_BYTES = 16 * MIB  # More than a start frees for its own work (the metadata file's reserve).


class Volume(NamedTuple):
    """Total bytes, and bytes that this user may still write; -1 if unknown."""

    total_bytes: int
    usable_bytes: int

    @property
    def is_full(self) -> bool:
        return 0 <= self.usable_bytes < FULL_BYTES

    @property
    def is_short(self) -> bool:
        """Return whether the volume is full or nearly full."""
        reserve = max(LEAST_RESERVE_BYTES, min(RESERVE_BYTES, self.total_bytes // RESERVED_PART))
        return 0 <= self.usable_bytes < reserve


UNKNOWN = Volume(-1, -1)


def volume_of(path: str) -> Volume:
    """Return the volume of a path; slow if its file system is on a network."""
    try:
        status = os.statvfs(path)
    except OSError:
        return UNKNOWN
    return Volume(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)
