"""A port that stays reserved while its broker is stopped.

A free port can be taken by another process before the broker restarts, because the next bind to port 0 may get it. A
client that reconnects to a free local port may even get that port as its source port and connect to itself. A socket
that is bound but not listening prevents both. All sockets have SO_REUSEADDR, so the broker can bind the same port.
"""

from __future__ import annotations

import socket

HOST = "127.0.0.1"


class Port:
    """A bound port; port 0 lets the system choose; raises OSError if the port is in use."""

    def __init__(self, number: int = 0) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((HOST, number))
        except BaseException:
            self._socket.close()
            raise
        self.number: int = self._socket.getsockname()[1]

    def release(self) -> None:
        self._socket.close()
