"""Many concurrent connections in one thread: each sends its data as fast as it can, and reads or not."""

from __future__ import annotations

import resource
import selectors
import socket
import struct
import time
from collections.abc import Callable
from types import TracebackType

import pytest

from support.raw_client import SECONDS_MAX

PIECE_BYTES = 1 << 18


def need_files(count: int) -> None:
    """Allow this process to open this number of files, or skip the test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"only {hard} files may be open here")
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


class Member:
    """One connection. `sent` counts bytes, `answers` whole frames; `is_closed` is set if the broker closed it."""

    def __init__(self, port: int, data: bytes, repeats: int, *, reads: bool, receive_buffer: int | None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(SECONDS_MAX)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setblocking(False)
        self.sent = 0
        self.answers = 0
        self.is_closed = False
        self.reads = reads
        self._data = memoryview(data)
        self._bytes_max = len(data) * repeats
        self._partial = bytearray()

    @property
    def has_sent_all(self) -> bool:
        return self.sent >= self._bytes_max

    @property
    def events(self) -> int:
        """Return the events to wait for; a member that does not read notices its end on writing."""
        return (0 if self.has_sent_all else selectors.EVENT_WRITE) | (selectors.EVENT_READ if self.reads else 0)

    def on_events(self, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                at = self.sent % len(self._data)
                self.sent += self.socket.send(self._data[at : at + min(PIECE_BYTES, self._bytes_max - self.sent)])
            if events & selectors.EVENT_READ:
                self._read()
        except BlockingIOError:
            return
        except ConnectionError:
            self.is_closed = True

    def _read(self) -> None:
        piece = self.socket.recv(PIECE_BYTES)
        self.is_closed = not piece
        self._partial += piece
        while len(self._partial) >= 4:
            (size,) = struct.unpack_from(">i", self._partial)
            if len(self._partial) < 4 + size:
                return
            del self._partial[: 4 + size]
            self.answers += 1


class Crowd:
    """Connections, `count` of them, that each send `data` `repeats` times."""

    def __init__(
        self,
        port: int,
        count: int,
        data: bytes,
        *,
        repeats: int = 1,
        reads: bool = True,
        receive_buffer: int | None = None,
    ) -> None:
        self._selector = selectors.DefaultSelector()
        self.members = [Member(port, data, repeats, reads=reads, receive_buffer=receive_buffer) for _ in range(count)]
        for member in self.members:
            self._selector.register(member.socket, selectors.EVENT_WRITE, member)

    def work_until(self, is_enough: Callable[[], bool], seconds_max: float) -> None:
        """Work until the condition holds, or fail."""
        deadline = time.monotonic() + seconds_max
        while not is_enough():
            assert time.monotonic() < deadline, f"{self}"
            self._turn()

    def work_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._turn()

    def _turn(self) -> None:
        for key, events in self._selector.select(0.05):
            member: Member = key.data
            member.on_events(events)
            if member.is_closed or not member.events:
                self._selector.unregister(key.fileobj)
            elif member.events != key.events:
                self._selector.modify(key.fileobj, member.events, member)

    @property
    def answered(self) -> int:
        return sum(member.answers for member in self.members)

    @property
    def closed(self) -> int:
        return sum(member.is_closed for member in self.members)

    def __str__(self) -> str:
        sent = sum(member.sent for member in self.members)
        return f"{len(self.members)} members: {sent} bytes sent, {self.answered} answers, {self.closed} gone"

    def __enter__(self) -> Crowd:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._selector.close()
        for member in self.members:
            member.socket.close()
