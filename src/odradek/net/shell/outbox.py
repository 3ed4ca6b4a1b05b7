"""Outbox of a connection: data still to be sent, written to its socket no faster than the peer reads.

Bytes go out in one gathered write, and slices of log files by sendfile, so a consumer's records never pass through this
process. Small slices are read from the page cache and sent together with the bytes around them, which takes half as
many system calls. When the socket is full, the outbox waits until the kernel reports room. Slices that are not in the
page cache are read in a thread, so that one slow disk never stalls other connections. A mover (net/native/movers.py)
sends large slices from their first byte to their last and also waits for the disk.

The transport only receives. It watches its descriptor itself, so waiting for room takes a second descriptor of the same
socket. A connection gets this descriptor when it first needs it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol, cast

from odradek.base.limits import SEND_BUFFERS_MAX, SEND_BYTES_PER_TURN, SEND_CHUNK_BYTES
from odradek.core.kernel.access import ANONYMOUS, Principal
from odradek.core.kernel.moment import Moment
from odradek.net.loop.active_connections import ActiveConnections
from odradek.net.loop.descriptors import are_left
from odradek.net.loop.traffic import Traffic
from odradek.net.native.movers import Movers
from odradek.wire.schema.primitives import IN_MEMORY, Chunk

if TYPE_CHECKING:
    from odradek.net.native.mover import Transfer


class File(Protocol):
    @property
    def path(self) -> str: ...

    def fileno(self) -> int:
        """Return the file's descriptor, or -1 if there is none."""


class FileBytes(Protocol):
    """Slice of a log file, as the core returns it."""

    @property
    def size(self) -> int: ...

    @property
    def position(self) -> int: ...

    @property
    def file(self) -> File: ...

    def part(self, start: int, size: int) -> FileBytes: ...

    def send_to(self, descriptor: int, size_max: int) -> int | None:
        """Return the number of bytes the socket took, or None if the slice must be read instead."""

    def read_cached(self, space: memoryview) -> int:
        """Copy the start of the slice into `space`, as far as it is in the page cache; return the byte count."""

    def read(self) -> bytes: ...

    def failure(self, error: OSError) -> OSError:
        """Return the failure of a read that was done elsewhere, with the file's name."""


class Copies:
    """Copies of small slices.

    Within `with copies: ...`, for example while one record is sent to many consumers, the last copy is kept.
    """

    def __init__(self) -> None:
        self._is_kept = False
        self._last: FileBytes | None = None
        self._bytes = b""

    def __enter__(self) -> None:
        self._is_kept = True

    def __exit__(self, *_: object) -> None:
        self._is_kept = False
        self._last = None  # Keeping it would keep its file open.

    def of(self, records: FileBytes) -> bytes | None:
        """Return the slice's bytes, or None if they are not all in the page cache.  Raises DiskFailed."""
        last, size = self._last, records.size
        if last is not None and (last.position, last.size) == (records.position, size) and last.file is records.file:
            return self._bytes
        space = bytearray(size)
        if size and records.read_cached(memoryview(space)) < size:
            return None
        copy = bytes(space)
        if self._is_kept:
            self._last, self._bytes = records, copy
        return copy


class Loop(Protocol):
    """Part of the shell that an outbox uses; slow reads and later turns return on the loop."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def traffic(self) -> Traffic: ...

    @property
    def movers(self) -> Movers: ...

    @property
    def copies(self) -> Copies: ...

    @property
    def active_connections(self) -> ActiveConnections: ...

    def now(self) -> Moment: ...

    def in_thread(self, work: Callable[[], bytes], then: Callable[[Future[bytes]], None]) -> None: ...

    def soon(self, work: Callable[[], None]) -> None: ...

    def read_failed(self, path: str, error: OSError) -> None:
        """Take the file's partition offline, so that later requests for it fail."""


class Outbox:
    """Responses that a connection still has to send.

    Raises nothing: a failed read, or a file shorter than expected, aborts the connection.
    """

    is_bare = True  # The peer reads the bytes written to the descriptor.

    def __init__(self, transport: asyncio.WriteTransport, loop: Loop, drained: Callable[[], None]) -> None:
        self._transport = transport
        self._descriptor: int = transport.get_extra_info("socket").fileno()
        self._loop = loop
        self._traffic = loop.traffic
        self._drained = drained  # Called when there may be room, except within `put`.
        self._chunks: deque[Chunk] = deque()
        self._second: socket.socket | None = None
        self._is_watched = False  # The loop calls when the socket has room.
        self._is_full = False  # The socket accepts no more bytes.
        self._is_busy = False  # A thread reads, a mover sends, or other connections have their turn.
        self.must_yield = True  # Others have a turn before a mover; not for followers, whose wait delays many.
        self._has_yielded = False  # Others have had a turn since a mover last started.
        self._transfer: Transfer | None = None
        self._transferred = 0  # Bytes the transfer had moved when it was last checked.
        self._closes_when_empty = False
        self._is_dropped = False
        self._has_moved = False

    def call_when_drained(self, drained: Callable[[], None]) -> None:
        """Set the function to call when there may be room."""
        self._drained = drained

    @property
    def is_backed_up(self) -> bool:
        """Return whether the peer reads more slowly than it sends requests."""
        return bool(self._chunks)

    def take_progress(self) -> bool:
        """Return whether the peer has received any bytes since the last call."""
        moved = 0 if self._transfer is None else self._loop.movers.moved(self._transfer)
        has_moved = self._has_moved or moved > self._transferred
        self._has_moved, self._transferred = False, moved
        return has_moved

    def put(self, chunks: Iterable[Chunk]) -> None:
        if not self._is_dropped:
            self._chunks.extend(chunks)
            self.check_transfer()
            self.send()

    def check_transfer(self) -> None:
        """Check for the end of a quiet transfer: a mover does not report that it has sent the last chunk."""
        transfer = self._transfer
        if transfer is not None and self._loop.movers.check_ended(transfer):
            self._on_moved(transfer)

    def drop(self) -> None:
        """Discard all chunks: the connection is closed, and its descriptor may soon belong to another."""
        self._is_dropped = True
        self._drained = _nothing  # It refers back to this outbox, and only the collector frees a cycle.
        self._chunks.clear()
        if self._transfer is not None:
            self._loop.movers.cancel(self._transfer)
            self._transfer = None
        if self._second is not None:
            self._stop_watching()
            self._second.close()

    def close_when_empty(self) -> None:
        self._closes_when_empty = True
        self.check_transfer()
        self.send()

    def send(self) -> None:
        """Send as much as the socket takes now, but no more than one turn's worth."""
        if self._is_dropped or self._transport.is_closing():
            return
        try:
            left = SEND_BYTES_PER_TURN
            while self._chunks and not self._is_full and not self._is_busy:
                left -= self._send_bytes() if isinstance(self._chunks[0], IN_MEMORY) else self._send_slice()
                if left <= 0 and self._chunks and not self._is_full and not self._is_busy:
                    self._is_busy = True
                    self._loop.soon(self._on_turn)
        except OSError as error:
            self._abort(error)
        if self._closes_when_empty and not self._chunks and not self._is_busy:
            self.drop()
            self._transport.close()

    def _abort(self, error: BaseException) -> None:
        """Abort the connection, because a response whose length was already sent cannot be completed."""
        self.drop()
        self._transport.abort()
        if isinstance(error, OSError) and error.filename is not None:  # An error of a file, not of the socket.
            self._loop.read_failed(error.filename, error)

    def _send_bytes(self) -> int:
        chunks = self._chunks
        ready: list[bytes | memoryview] = []
        copied = 0
        while chunks and len(ready) < SEND_BUFFERS_MAX:
            chunk = chunks[0]
            if isinstance(chunk, IN_MEMORY):
                ready.append(chunk)
            else:
                copied += chunk.size
                copy = self._loop.copies.of(cast(FileBytes, chunk)) if copied <= COPIED_BYTES_MAX else None
                if copy is None:
                    break
                ready.append(copy)
            chunks.popleft()
        data = ready[0] if len(ready) == 1 else b"".join(ready)
        if self._chunks and len(data) < MOVED_HEAD_BYTES_MAX and self._move(bytes(data)):
            return 0
        try:
            sent = self._write_before_slice(data) if chunks else os.write(self._descriptor, data)
        except BlockingIOError:
            sent = 0
        self._count_sent(sent)
        if sent < len(data):
            self._chunks.appendleft(memoryview(data)[sent:])
            self._wait_for_room()
        return sent

    def _write_before_slice(self, data: bytes | memoryview) -> int:
        """Write with MSG_MORE, so that the peer does not wake before the records that follow at once."""
        second = self._second_descriptor()
        return os.write(self._descriptor, data) if second is None else second.send(data, socket.MSG_MORE)

    def _send_slice(self) -> int:
        if self._move(b""):
            return 0
        records = cast(FileBytes, self._chunks.popleft())
        sent = records.send_to(self._descriptor, SEND_CHUNK_BYTES)
        if sent is None:
            self._read(records)
            return 0
        self._count_sent(sent)
        if sent < records.size:
            self._chunks.appendleft(cast(Chunk, records.part(sent, records.size - sent)))
            if sent < SEND_CHUNK_BYTES:
                self._wait_for_room()
        return sent

    def _count_sent(self, size: int) -> None:
        self._traffic.bytes_out += size
        self._has_moved = True

    # Transfers of large slices.

    def _move(self, head: bytes) -> bool:
        """Start a mover for `head`, the next slice, and the end of the response if nothing else follows.

        Returns False if the slice is small, or there is no mover.
        """
        if isinstance(self._chunks[0], IN_MEMORY):
            return False
        records = cast(FileBytes, self._chunks[0])
        if records.size < MOVED_BYTES_MIN or records.file.fileno() < 0:
            return False
        if (
            self.must_yield
            and not self._has_yielded
            and not self._loop.active_connections.is_one(self._loop.now().steady)
        ):
            self._yield_first(head)
            return True
        # A Fetch response of a flexible version ends with three bytes. If a mover sent only the records, it would have
        # to wake the loop again for them.
        end = self._chunks[1] if len(self._chunks) == 2 and isinstance(self._chunks[1], IN_MEMORY) else b""
        transfer = self._loop.movers.send(
            self._descriptor,
            head,
            records.file,
            records.position,
            records.size,
            after=bytes(end),
            is_quiet=len(self._chunks) == (2 if end else 1) and not self._closes_when_empty,
            done=self._on_moved,
        )
        if transfer is None:
            return False
        if end:
            del self._chunks[1]
        self._transfer, self._transferred = transfer, 0
        self._is_busy, self._has_yielded = True, False
        self._traffic.bytes_out += len(head) + records.size + len(end)
        return True

    def _yield_first(self, head: bytes) -> None:
        """Handle pending requests of other connections before a mover starts.

        The mover and the peer that it wakes occupy the processors, and would delay the loop.
        """
        if head:
            self._chunks.appendleft(head)
        self._is_busy = self._has_yielded = True
        self._loop.soon(lambda: self._loop.soon(self._on_turn))  # The loop checks its sockets between the two calls.

    def _on_moved(self, transfer: Transfer) -> None:
        self._transfer = None
        self._is_busy = False
        records = cast(FileBytes, self._chunks.popleft())
        self._traffic.bytes_out += transfer.moved - records.size
        self._has_moved = True
        if transfer.error:
            error = OSError(transfer.error, os.strerror(transfer.error))
            self._abort(records.failure(error) if transfer.is_files_error else error)
        else:
            self._continue()

    # Waiting for room in the socket.

    def _wait_for_room(self) -> None:
        self._is_full = True
        if self._is_watched:
            return
        second = self._second_descriptor()
        if second is None:
            self._loop.loop.call_later(ROOM_POLL_SECONDS, self._may_have_room)
            return
        self._loop.loop.add_writer(second.fileno(), self._may_have_room)
        self._is_watched = True

    def _may_have_room(self) -> None:
        if self._is_dropped:
            return
        self._is_full = False
        self.send()
        if not self._is_full:
            self._stop_watching()
            self._drained()

    def _stop_watching(self) -> None:
        if self._is_watched and self._second is not None:
            self._loop.loop.remove_writer(self._second.fileno())
            self._is_watched = False

    def _second_descriptor(self) -> socket.socket | None:
        """Return a second descriptor of the socket, or None if only those reserved for logs are left."""
        if self._second is None and are_left():
            try:
                self._second = socket.socket(fileno=os.dup(self._descriptor))
            except OSError:
                return None
        return self._second

    # Reads of slices that are not in the page cache.

    def _read(self, records: FileBytes) -> None:
        part = records.part(0, SEND_CHUNK_BYTES)
        if part.size < records.size:
            self._chunks.appendleft(cast(Chunk, records.part(part.size, records.size - part.size)))
        self._is_busy = True
        self._loop.in_thread(part.read, self._on_read)

    def _on_read(self, done: Future[bytes]) -> None:
        self._is_busy = False
        if self._is_dropped:
            return
        error = done.exception()
        if error is not None:
            self._abort(error)
            return
        self._chunks.appendleft(done.result())
        self._continue()

    def _on_turn(self) -> None:
        self._is_busy = False
        self._continue()

    def _continue(self) -> None:
        self.send()
        self._drained()


def _nothing() -> None:
    """Do nothing: the connection is closed."""


class TransportWithOutbox:
    """Transport whose bytes differ from those of its socket, so that it has an outbox of its own.

    `principal` is the identity that the peer has proven before any of its bytes were delivered. This class does not
    inherit from asyncio.Transport, for the reason given in Receiving.
    """

    def __init__(self, principal: Principal) -> None:
        self.principal = principal

    def outbox_for(self, drained: Callable[[], None]) -> Outbox:
        raise NotImplementedError


def principal_of(transport: asyncio.Transport) -> Principal:
    """Return the principal of the peer; ANONYMOUS on a plaintext connection."""
    return transport.principal if isinstance(transport, TransportWithOutbox) else ANONYMOUS


def outbox_of(transport: asyncio.Transport, loop: Loop, drained: Callable[[], None]) -> Outbox:
    """Return the outbox of a connection, with or without TLS."""
    if isinstance(transport, TransportWithOutbox):
        return transport.outbox_for(drained)
    return Outbox(transport, loop, drained)


ROOM_POLL_SECONDS = 0.01
COPIED_BYTES_MAX = 16 * 1024  # Per write.
MOVED_BYTES_MIN = 128 * 1024  # Below this, a socket takes the slice at once, which does not justify waking a thread.
MOVED_HEAD_BYTES_MAX = 16 * 1024
