"""Ports for servers that can't be told to take a free one by themselves."""

from __future__ import annotations

import os
import re
import socket
from itertools import cycle, islice

# Below the system's own range for connections, where any client of any test may hold one when the server comes to it.
_FIRST, _PER_PROCESS, _PROCESSES = 10_000, 1_000, 22


def _mine() -> range:
    """Returns the ports of this process of pytest-xdist: no other one gives them out."""
    number = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or os.getpid()) % _PROCESSES
    return range(_FIRST + number * _PER_PROCESS, _FIRST + (number + 1) * _PER_PROCESS)


_ports = cycle(_mine())


def free_port() -> int:
    """Returns a port of 127.0.0.1 that nobody has, and that is not given out again soon."""
    for port in islice(_ports, _PER_PROCESS):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("all ports are taken")
