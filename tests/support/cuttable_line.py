"""A line to a server on this machine that can be cut and restored."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType

READ_BYTES = 64 * 1024


class CuttableLine:
    """A proxy with a port of its own; while it is cut, it closes all connections, old and new."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._is_cut = False

    def __enter__(self) -> CuttableLine:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def cut(self) -> None:
        with self._lock:
            self._is_cut = True
            for end in self._open:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            self._open.clear()

    def mend(self) -> None:
        self._is_cut = False

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._begin(client)

    def _begin(self, client: socket.socket) -> None:
        with self._lock:
            if self._is_cut:
                client.close()
                return
            server = socket.create_connection(self._target)
            self._open += [client, server]
        for source, sink in ((client, server), (server, client)):
            threading.Thread(target=_carry, args=(source, sink), daemon=True).start()


def _carry(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(READ_BYTES):
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
