"""What a connection still has to send, handed to its socket no faster than the peer reads.

While the transport has nothing queued, answers are written to the socket here: bytes in one gathered write, slices of
log files by sendfile, so that a consumer's records never pass through this process.  What the socket does not take
goes to the transport, which says when it is through; nothing is written beside it meanwhile.  Slices that are not in
the page cache are read in a thread, so that one slow disk never stalls the other connections.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Protocol, cast

from odradek.base.limits import SEND_BUFFERS_MAX, SEND_BYTES_PER_TURN, SEND_CHUNK_BYTES
from odradek.net.traffic import Traffic
from odradek.wire.primitives import Chunk


class FileBytes(Protocol):
    """A slice of a log file, as the core gives it out."""

    @property
    def size(self) -> int: ...

    def part(self, start: int, size: int) -> FileBytes: ...

    def send_to(self, socket: int, size_max: int) -> int | None:
        """How much the socket took; None if it has to be read instead."""

    def read(self) -> bytes: ...


class Loop(Protocol):
    """Where slow reads go, and what has to wait its turn; both come back on the loop."""

    @property
    def traffic(self) -> Traffic: ...

    def in_thread(self, work: Callable[[], bytes], then: Callable[[Future[bytes]], None]) -> None: ...

    def soon(self, work: Callable[[], None]) -> None: ...

    def read_failed(self, path: str, error: OSError) -> None:
        """A log's file can't be read; whoever asks for it next is to be told."""


class Outbox:
    """Raises nothing: a read that fails, or finds a file shorter than promised, aborts the connection."""

    def __init__(self, transport: asyncio.WriteTransport, loop: Loop, drained: Callable[[], None]) -> None:
        # Whatever the transport has to queue pauses us, and its being through resumes us.
        transport.set_write_buffer_limits(high=0)
        self._transport = transport
        self._socket: int = transport.get_extra_info("socket").fileno()
        self._loop = loop
        self._traffic = loop.traffic
        self._drained = drained  # Called when room may have come without anybody having put something.
        self._chunks: deque[Chunk] = deque()
        self._is_paused = False
        self._is_busy = False  # A thread reads, or it is the others' turn.
        self._closes_when_empty = False
        self._is_dropped = False

    @property
    def is_backed_up(self) -> bool:
        """The peer does not read as fast as it asks."""
        return bool(self._chunks)

    def put(self, chunks: Iterable[Chunk]) -> None:
        if not self._is_dropped:
            self._chunks.extend(chunks)
            self.send()

    def drop(self) -> None:
        """The connection is gone, and its descriptor may soon be another's."""
        self._is_dropped = True
        self._chunks.clear()

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        self._go_on()

    def close_when_empty(self) -> None:
        self._closes_when_empty = True
        self.send()

    def send(self) -> None:
        """As much as the socket takes now, and no more than one turn's worth."""
        if self._is_dropped or self._transport.is_closing():
            return
        try:
            left = SEND_BYTES_PER_TURN
            while self._chunks and not self._is_paused and not self._is_busy:
                left -= self._send_bytes() if isinstance(self._chunks[0], bytes) else self._send_slice()
                if left <= 0 and self._chunks:
                    self._is_busy = True
                    self._loop.soon(self._its_turn)
        except OSError as error:
            self._give_up(error)
        if self._closes_when_empty and not self._chunks and not self._is_busy:
            self._transport.close()  # It sends what it has queued first.

    def _give_up(self, error: BaseException) -> None:
        """An answer's length was promised already; there is no other way to say that it can't be kept."""
        self.drop()
        self._transport.abort()
        if isinstance(error, OSError) and error.filename is not None:  # A file's, not the socket's.
            self._loop.read_failed(error.filename, error)

    def _send_bytes(self) -> int:
        ready: list[bytes] = []
        while self._chunks and len(ready) < SEND_BUFFERS_MAX and isinstance(self._chunks[0], bytes):
            ready.append(cast(bytes, self._chunks.popleft()))
        data = ready[0] if len(ready) == 1 else b"".join(ready)
        try:
            sent = os.write(self._socket, data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self._transport.write(data[sent:])
        self._traffic.bytes_out += len(data)
        return len(data)

    def _send_slice(self) -> int:
        records = cast(FileBytes, self._chunks.popleft())
        sent = records.send_to(self._socket, SEND_BYTES_PER_TURN)
        if sent is None or sent == 0:
            # A full socket gets the next piece through the transport, which then tells when there is room again.
            self._read(records, cold=sent is None)
            return 0
        if sent < records.size:
            self._chunks.appendleft(records.part(sent, records.size - sent))
        self._traffic.bytes_out += sent
        return sent

    def _read(self, records: FileBytes, *, cold: bool) -> None:
        part = records.part(0, SEND_CHUNK_BYTES if cold else DOORBELL_BYTES)
        if part.size < records.size:
            self._chunks.appendleft(records.part(part.size, records.size - part.size))
        if cold:
            self._is_busy = True
            self._loop.in_thread(part.read, self._was_read)
        else:
            self._write(part.read())

    def _was_read(self, done: Future[bytes]) -> None:
        self._is_busy = False
        if self._is_dropped:
            return
        error = done.exception()
        if error is not None:
            self._give_up(error)
            return
        self._write(done.result())
        self._go_on()

    def _write(self, data: bytes) -> None:
        self._transport.write(data)
        self._traffic.bytes_out += len(data)

    def _its_turn(self) -> None:
        self._is_busy = False
        self._go_on()

    def _go_on(self) -> None:
        self.send()
        self._drained()


# Small, since it is copied; large enough that the socket is not empty before we are called.
DOORBELL_BYTES = 64 * 1024
