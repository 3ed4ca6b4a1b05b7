"""How large the volume is that a data directory lies on."""

from __future__ import annotations

import os
from typing import NamedTuple


class Volume(NamedTuple):
    """Bytes in all, and those that this user may still write; -1 where that is not known."""

    total_bytes: int
    usable_bytes: int


UNKNOWN = Volume(-1, -1)


def volume_of(path: str) -> Volume:
    """Asks the file system, which may be slow to answer where it lies on a network."""
    try:
        status = os.statvfs(path)
    except OSError:
        return UNKNOWN
    return Volume(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)
