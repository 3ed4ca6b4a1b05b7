"""Detection of a server without multiRead: it returns an error, and closes the connection some time later."""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import suppress

import pytest

pytest.importorskip("kazoo", reason="ZooKeeper is reached through kazoo.")

from odradek.coordination.tree import SessionState
from odradek.coordination.zookeeper import open_zookeeper

pytestmark = pytest.mark.waits

MULTI_READ, CLOSE = 22, -11
UNIMPLEMENTED = -6
SESSION = struct.pack(">iiqi16s?", 0, 60_000, 7, 16, bytes(16), False)
STAT = struct.pack(">qqqqiiiqiiq", *[0] * 11)


class OldServer:
    """A ZooKeeper before 3.6, which may answer one more request before it closes the connection, like a busy one."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(60)
        self.port: int = self._listening.getsockname()[1]
        self.connections = 0
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with self._listening, suppress(TimeoutError):
            while self._serve_one():
                pass

    def _serve_one(self) -> bool:
        """Serve one connection, and return True if another one may follow."""
        connection, _ = self._listening.accept()
        self.connections += 1
        with connection:
            self._received(connection)
            self._send(connection, SESSION)
            while request := self._received(connection):
                xid, kind = struct.unpack_from(">ii", request)
                if kind == MULTI_READ:
                    self._answer(connection, xid, UNIMPLEMENTED)
                    self._close_slowly(connection)
                    return True
                self._answer(connection, xid)
                if kind == CLOSE:
                    return False
        return True

    def _close_slowly(self, connection: socket.socket) -> None:
        connection.settimeout(0.2)
        with suppress(TimeoutError):
            self._answer(connection, *struct.unpack_from(">i", self._received(connection)))
            time.sleep(0.2)

    def _answer(self, connection: socket.socket, xid: int, error: int = 0) -> None:
        self._send(connection, struct.pack(">iqi", xid, 1, error) + (b"" if error else STAT))

    @staticmethod
    def _received(connection: socket.socket) -> bytes:
        size = connection.recv(4, socket.MSG_WAITALL)
        return connection.recv(*struct.unpack(">i", size), socket.MSG_WAITALL) if size else b""

    @staticmethod
    def _send(connection: socket.socket, frame: bytes) -> None:
        connection.sendall(struct.pack(">i", len(frame)) + frame)

    def ended(self) -> None:
        self._thread.join()


def test_multi_read_is_probed_on_a_separate_connection() -> None:
    server = OldServer()
    tree = open_zookeeper(f"127.0.0.1:{server.port}")
    states: list[SessionState] = []
    tree.on_session(states.append)
    for _ in range(3):
        assert tree.exists("/") is not None
    tree.close()
    server.ended()
    assert server.connections == 2
    assert SessionState.SUSPENDED not in states
