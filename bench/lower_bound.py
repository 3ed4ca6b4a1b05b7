"""The least that any broker does: bytes from sockets to a file, bytes from the file to sockets, nothing else.

    python bench/lower_bound.py PORT FILE TOPIC

One thread, one epoll loop.  A Produce request is written to the file as it comes and acknowledged with constant bytes;
a Fetch request is answered by sendfile from the byte position that its offset names, and waits if nothing is there.
Of a request it looks at length, API key and, in a Fetch, the offset.  TOPIC only says how long topic names are.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import sys
from pathlib import Path

import frames

BUFFER_BYTES = 128 << 10  # Stays in the cache of a core between recv and write; 4 MiB took twice the time.
PRODUCE, FETCH, RESET = 0, 1, 19
RESET_FRAME = (4).to_bytes(4) + RESET.to_bytes(2) + bytes(2)
HEAD_BYTES = 6
# Kafka's default for socket.send.buffer.bytes.  Left to itself, the kernel lets megabytes queue up, which have left the
# processor's cache before they are received: fetches were half as fast and took twice the processor time.
SEND_BUFFER_BYTES = 100 << 10


def reset(port: int) -> None:
    """Empties the file."""
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(RESET_FRAME)
        assert connection.recv(4) == bytes(4)


def is_up(port: int) -> bool:
    try:
        reset(port)
    except OSError:
        return False
    return True


class Mover:
    """The file, the answers, and who waits for bytes to come."""

    def __init__(self, path: Path, topic: str) -> None:
        self.file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND)
        self.size = 0
        self.topic = topic
        self.acknowledgement = frames.ack_bytes(topic)
        fetching = frames.Fetching(topic, 0)
        self.offset_at = bytes(fetching.at(0x5A5A5A5A5A5A5A)).index(b"\0" + b"\x5a" * 7)
        self.waiting: list[tuple[socket.socket, int]] = []

    def reset(self) -> None:
        os.ftruncate(self.file, 0)
        self.size = 0

    def write(self, data: memoryview) -> None:
        self.size += os.write(self.file, data)

    def acknowledge(self, connection: socket.socket, count: int) -> None:
        connection.sendall(self.acknowledgement * count)
        waiting, self.waiting = self.waiting, []
        for consumer, position in waiting:
            self.fetch(consumer, position)

    def fetch(self, connection: socket.socket, position: int) -> None:
        size = min(self.size - position, frames.PARTITION_BYTES)
        if size <= 0:
            self.waiting.append((connection, position))
            return
        connection.sendall(frames.fetch_head(self.topic, size), socket.MSG_MORE)
        end = position + size
        while position < end:
            position += os.sendfile(connection.fileno(), self.file, position, end - position)
        connection.sendall(frames.FETCH_TRAILER)


class Peer:
    """One connection: what was received and not yet used, and how much of a Produce request is still to come."""

    def __init__(self, connection: socket.socket, mover: Mover) -> None:
        self._connection = connection
        self._mover = mover
        self._view = memoryview(bytearray(BUFFER_BYTES))
        self._filled = 0
        self._missing = 0

    def receive(self) -> bool:
        """False at the end of the connection."""
        received = self._connection.recv_into(self._view[self._filled :])
        if not received:
            return False
        self._filled += received
        used, acknowledged = self._produced()
        if used:
            self._mover.write(self._view[:used])
        if acknowledged:
            self._mover.acknowledge(self._connection, acknowledged)
        used = self._others(used)
        rest = self._filled - used
        if rest and used:
            self._view[:rest] = bytes(self._view[used : self._filled])
        self._filled = rest
        return True

    def _produced(self) -> tuple[int, int]:
        """How far Produce requests reach, and how many end there."""
        end = self._filled
        at = min(self._missing, end)
        acknowledged = 1 if self._missing and at == self._missing else 0
        self._missing -= at
        view = self._view
        while end - at >= HEAD_BYTES and view[at + 5] == PRODUCE:
            size = int.from_bytes(view[at : at + 4]) + 4
            if size > end - at:
                self._missing = size - (end - at)
                return end, acknowledged
            at += size
            acknowledged += 1
        return at, acknowledged

    def _others(self, at: int) -> int:
        view = self._view
        while self._filled - at >= HEAD_BYTES and view[at + 5] != PRODUCE:
            size = int.from_bytes(view[at : at + 4]) + 4
            if size > self._filled - at:
                break
            if view[at + 5] == FETCH:
                where = at + self._mover.offset_at
                self._mover.fetch(self._connection, int.from_bytes(view[where : where + 8]))
            else:
                self._mover.reset()
                self._connection.sendall(bytes(4))
            at += size
        return at


def serve(port: int, mover: Mover) -> None:
    listener = socket.create_server(("127.0.0.1", port), backlog=64)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
                selector.register(connection, selectors.EVENT_READ, Peer(connection, mover))
                continue
            alive = False
            with contextlib.suppress(ConnectionError):
                alive = key.data.receive()
            if not alive:
                selector.unregister(key.fileobj)
                mover.waiting = [pair for pair in mover.waiting if pair[0] is not key.fileobj]
                key.fileobj.close()  # type: ignore[union-attr]


if __name__ == "__main__":
    serve(int(sys.argv[1]), Mover(Path(sys.argv[2]), sys.argv[3]))
