"""A mover with its own threads and without a loop, and socket pairs for it. Import it only if there is a mover."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from odradek.net.native.mover import Mover, Transfer
from support.waiting import readable

SECONDS_MAX = 120  # Ends a hang.
THREADS = 3
COLD_THREADS = 2


class Moving(Mover):
    """A mover with its threads, and the finished transfers."""

    threads: list[threading.Thread]

    def __new__(
        cls, groups: list[set[int]] | None = None, running: list[int] | None = None, cold: int = COLD_THREADS
    ) -> Moving:
        return super().__new__(cls, THREADS, groups or [])  # type: ignore[call-arg]  # An extension type takes them here.

    def __init__(
        self, groups: list[set[int]] | None = None, running: list[int] | None = None, cold: int = COLD_THREADS
    ) -> None:
        """Create a mover; `running` are the numbers of its threads if not all, `cold` counts those for disks."""
        numbers = range(THREADS + len(groups or [])) if running is None else running
        self.threads = [threading.Thread(target=self.run, args=(number,), daemon=True) for number in numbers]
        self.threads += [threading.Thread(target=self.run_cold, daemon=True) for _ in range(cold)]
        for thread in self.threads:
            thread.start()

    def wait(self, count: int = 1) -> list[Transfer]:
        """Wait for this number of transfers to end, and return them."""
        ended: list[Transfer] = []
        while len(ended) < count:
            assert self.has_news(), f"{len(ended)} of {count} have ended"
            ended += self.finished()
        assert len(ended) == count
        return ended

    def has_news(self, seconds: float = SECONDS_MAX) -> bool:
        return bool(readable(self, seconds=seconds))

    def until_moved(self, transfer: Transfer, size: int) -> None:
        until(lambda: self.moved(transfer) == size)

    def end(self) -> None:
        self.stop()
        for thread in self.threads:
            thread.join(SECONDS_MAX)
            assert not thread.is_alive()


class Held:
    """A file that is open as long as it is referenced."""

    def __init__(self, path: Path | str) -> None:
        self.path = str(path)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT)

    def fileno(self) -> int:
        return self._descriptor

    def __del__(self) -> None:
        os.close(self._descriptor)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def nothing(transfer: Transfer) -> None:
    """Ignore a transfer of the loop, since there is none."""


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield a socket pair: the mover's end, and the peer's."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.settimeout(SECONDS_MAX)
        yield ours, theirs


@contextmanager
def tcp_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as theirs:
        ours, _ = server.accept()
        with ours:
            ours.setblocking(False)
            theirs.settimeout(SECONDS_MAX)
            yield ours, theirs


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Run blocking work in a thread, and join it after the block."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield
    thread.join(SECONDS_MAX)
    assert not thread.is_alive()


def read(peer: socket.socket, size: int, into: bytearray, piece: int = 1 << 16) -> None:
    while len(into) < size:
        received = peer.recv(min(piece, size - len(into)))
        if not received:
            return
        into += received


def following(ours: socket.socket) -> bytes:
    """Read the four bytes after a transfer, which belong to the next one."""
    got = bytearray()
    ours.settimeout(SECONDS_MAX)
    read(ours, 4, got)
    return bytes(got)
