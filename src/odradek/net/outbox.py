"""What a connection still has to send, handed to its transport no faster than the peer reads.

Slices of log files are read when their turn comes: from the page cache at once, from a cold disk in a thread, so that
one slow read never stalls the other connections.  At most a chunk of them is in memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Protocol, cast

from odradek.base.limits import SEND_CHUNK_BYTES
from odradek.wire.primitives import Chunk

Sendable = bytes | bytearray


class FileBytes(Protocol):
    """A slice of a log file, as the core gives it out."""

    @property
    def size(self) -> int: ...

    def part(self, start: int, size: int) -> FileBytes: ...

    def read_cached(self) -> Sendable | None:
        """None if a disk has to be asked."""

    def read(self) -> bytes: ...


class Threads(Protocol):
    """Where slow reads go; `then` is called back on the loop."""

    def in_thread(self, work: Callable[[], bytes], then: Callable[[Future[bytes]], None]) -> None: ...


class Outbox:
    """Raises nothing: a read that fails, or finds a file shorter than promised, aborts the connection."""

    def __init__(self, transport: asyncio.WriteTransport, threads: Threads, drained: Callable[[], None]) -> None:
        self._transport = transport
        self._threads = threads
        self._drained = drained  # Called when room may have come without anybody having put something.
        self._chunks: deque[Chunk] = deque()
        self._is_paused = False
        self._is_reading = False
        self._closes_when_empty = False

    @property
    def is_backed_up(self) -> bool:
        """The peer does not read as fast as it asks."""
        return bool(self._chunks)

    def put(self, chunks: Iterable[Chunk]) -> None:
        self._chunks.extend(chunks)
        self.send()

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        self.send()
        self._drained()

    def close_when_empty(self) -> None:
        self._closes_when_empty = True
        self.send()

    def send(self) -> None:
        """As much as the transport takes now."""
        while self._chunks and not self._is_paused and not self._is_reading:
            ready = self._next_chunks()
            if len(ready) == 1:
                self._transport.write(ready[0])
            elif ready:
                self._transport.writelines(ready)
        if self._closes_when_empty and not self._chunks and not self._is_reading:
            self._transport.close()

    def _next_chunks(self) -> list[Sendable]:
        """About one chunk's worth that is in memory or in the page cache; starts a read if a disk has to be asked."""
        ready: list[Sendable] = []
        room = SEND_CHUNK_BYTES
        while self._chunks and room > 0:
            chunk = self._chunks.popleft()
            if isinstance(chunk, bytes):
                ready.append(chunk)
                room -= len(chunk)
                continue
            slice_ = cast(FileBytes, chunk)
            part = slice_.part(0, room)
            if part.size < slice_.size:
                self._chunks.appendleft(slice_.part(part.size, slice_.size - part.size))
            data = part.read_cached()
            if data is None:
                self._is_reading = True
                self._threads.in_thread(part.read, self._was_read)
                break
            ready.append(data)
            room -= part.size
        return ready

    def _was_read(self, done: Future[bytes]) -> None:
        self._is_reading = False
        if done.exception() is not None:
            # The length was promised already; there is no other way to say that it can't be kept.
            self._transport.abort()
            return
        self._transport.write(done.result())
        self.send()
        self._drained()
