"""Ports for servers that cannot choose a free one themselves, or whose port must not have been used before.

Clients of an earlier test may still try to reach their broker, and the system reuses its port immediately.
"""

from __future__ import annotations

import socket
from itertools import cycle, islice

# Below the system's own range for connections, where any client of any test may hold one when the server comes to it.
_FIRST, _PER_PROCESS, _PROCESSES = 10_000, 1_375, 16


def _reserve() -> tuple[socket.socket, range]:
    """Return the ports of this process, and the object that reserves them against all other processes."""
    for number in range(_PROCESSES):
        held = socket.socket(socket.AF_UNIX)
        try:
            held.bind(f"\0odradek-test-ports-{number}")
        except OSError:
            held.close()
        else:
            return held, range(_FIRST + number * _PER_PROCESS, _FIRST + (number + 1) * _PER_PROCESS)
    raise AssertionError(f"{_PROCESSES} processes run tests")


_held, _range = _reserve()
_ports = cycle(_range)


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
