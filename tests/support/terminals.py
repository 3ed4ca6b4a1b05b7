"""The other end of a terminal that a process writes to, and filters of its output."""

from __future__ import annotations

import os
import re
from contextlib import suppress

READ_BYTES = 1 << 16


def all_shown(descriptor: int) -> bytes:
    """Read until all processes have closed the terminal, and close this end."""
    shown = b""
    with suppress(OSError):  # Linux reports a closed other end this way.
        while piece := os.read(descriptor, READ_BYTES):
            shown += piece
    os.close(descriptor)
    return shown


def own(errors: str) -> str:
    """Return standard error without librdkafka's lines.

    Clients of earlier tests write to it, too, until they are garbage-collected: their brokers are stopped.
    """
    return re.sub(r"^%\d\|.*\n", "", errors, flags=re.MULTILINE)
