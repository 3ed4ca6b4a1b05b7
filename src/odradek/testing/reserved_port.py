"""A port that stays ours while the broker on it is stopped.

A free port that is merely remembered may be another's when the broker comes back: the next bind to port 0 may get it,
and a client that tries to reconnect to a free port on its own machine may even be given that port as its source and
connect to itself.  A socket that is bound, but does not listen, keeps both away; as all of them have SO_REUSEADDR the
broker's own can be bound beside it.
"""

from __future__ import annotations

import socket

HOST = "127.0.0.1"


class Port:
    """A bound port; port 0 lets the system choose.  Raises OSError if it is in use."""

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
