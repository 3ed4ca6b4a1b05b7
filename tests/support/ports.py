"""Ports for servers that cannot choose a free one themselves."""

from __future__ import annotations

import os
import re
import socket
from itertools import cycle, islice

# Below the system's own range for connections, where any client of any test may hold one when the server comes to it.
_FIRST, _PER_PROCESS, _PROCESSES = 10_000, 1_000, 22


def _mine() -> range:
    """Return the ports of this process of pytest-xdist, which no other one uses."""
    number = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or os.getpid()) % _PROCESSES
    return range(_FIRST + number * _PER_PROCESS, _FIRST + (number + 1) * _PER_PROCESS)


_ports = cycle(_mine())


def free_port() -> int:
    """Return an unused port of 127.0.0.1 that is not returned again soon."""
    for port in islice(_ports, _PER_PROCESS):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("all ports are taken")
