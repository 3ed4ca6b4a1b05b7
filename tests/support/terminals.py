"""The other end of a terminal that a process writes to."""

from __future__ import annotations

import os
from contextlib import suppress

READ_BYTES = 1 << 16


def all_shown(descriptor: int) -> bytes:
    """Reads until nobody has the terminal open any more, and closes this end."""
    shown = b""
    with suppress(OSError):  # So Linux says that the other end was closed.
        while piece := os.read(descriptor, READ_BYTES):
            shown += piece
    os.close(descriptor)
    return shown
