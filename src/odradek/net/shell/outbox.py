"""What a connection still has to send, written to its socket no faster than the peer reads.

Bytes go out in one gathered write, slices of log files by sendfile, so that a consumer's records never pass through
this process; small ones are read from the page cache and go out with what is around them, which takes half as many
calls of the system.  When the socket is full we wait until the kernel says that there is room.  Slices that are not in
the page cache are read in a thread, so that one slow disk never stalls the other connections.  Large slices are a
mover's work from their first byte to their last (movers.py), which also waits for the disk.

The transport only receives.  As it watches its descriptor itself, waiting for room takes a second descriptor of the
same socket, which a connection gets when it first needs one.
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
from odradek.net.loop.active_connections import Heard
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
        """Returns -1 where there is no descriptor."""


class FileBytes(Protocol):
    """A slice of a log file, as the core gives it out."""

    @property
    def size(self) -> int: ...

    @property
    def position(self) -> int: ...

    @property
    def file(self) -> File: ...

    def part(self, start: int, size: int) -> FileBytes: ...

    def send_to(self, descriptor: int, size_max: int) -> int | None:
        """Returns how many bytes the socket took; None if the slice has to be read instead."""

    def read_cached(self, space: memoryview) -> int:
        """Copies the slice's beginning into `space`, as far as the page cache has it; returns how many bytes."""

    def read(self) -> bytes: ...

    def failure(self, error: OSError) -> OSError:
        """Returns the failure of a read that somebody else has done; it names the file."""


class Copies:
    """Copies of small slices.  Within `with copies: ...`, as when one record is sent to many, the last copy is kept."""

    def __init__(self) -> None:
        self._is_kept = False
        self._last: FileBytes | None = None
        self._bytes = b""

    def __enter__(self) -> None:
        self._is_kept = True

    def __exit__(self, *_: object) -> None:
        self._is_kept = False
        self._last = None  # It would keep its file open.

    def of(self, records: FileBytes) -> bytes | None:
        """Returns the slice's bytes, None if they are not all in the page cache.  Raises DiskFailed."""
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
    """What an outbox needs of the shell; slow reads and later turns come back on the loop."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def traffic(self) -> Traffic: ...

    @property
    def movers(self) -> Movers: ...

    @property
    def copies(self) -> Copies: ...

    @property
    def heard(self) -> Heard: ...

    def now(self) -> Moment: ...

    def in_thread(self, work: Callable[[], bytes], then: Callable[[Future[bytes]], None]) -> None: ...

    def soon(self, work: Callable[[], None]) -> None: ...

    def read_failed(self, path: str, error: OSError) -> None:
        """Takes the file's partition offline, so that whoever asks for it next is told."""


class Outbox:
    """The answers that a connection still has to send.

    Raises nothing: a read that fails, or finds a file shorter than promised, aborts the connection.
    """

    is_bare = True  # The peer reads what is written to the descriptor.

    def __init__(self, transport: asyncio.WriteTransport, loop: Loop, drained: Callable[[], None]) -> None:
        self._transport = transport
        self._descriptor: int = transport.get_extra_info("socket").fileno()
        self._loop = loop
        self._traffic = loop.traffic
        self._drained = drained  # Called when there may be room, other than within `put`.
        self._chunks: deque[Chunk] = deque()
        self._second: socket.socket | None = None
        self._is_watched = False  # The loop calls when the socket has room.
        self._is_full = False  # The socket takes no more.
        self._is_busy = False  # A thread reads, a mover sends, or other connections have their turn.
        self.makes_way = True  # Others have their turn before a mover begins; a follower who waits holds up many.
        self._has_made_way = False  # They had it since a mover last began.
        self._transfer: Transfer | None = None
        self._transferred = 0  # How much the transfer had moved when it was last asked.
        self._closes_when_empty = False
        self._is_dropped = False
        self._has_moved = False

    def tell(self, drained: Callable[[], None]) -> None:
        """Sets the function to call when there may be room."""
        self._drained = drained

    @property
    def is_backed_up(self) -> bool:
        """True if the peer does not read as fast as it asks."""
        return bool(self._chunks)

    def take_progress(self) -> bool:
        """True if the peer has taken something since the last call."""
        moved = 0 if self._transfer is None else self._loop.movers.moved(self._transfer)
        has_moved = self._has_moved or moved > self._transferred
        self._has_moved, self._transferred = False, moved
        return has_moved

    def put(self, chunks: Iterable[Chunk]) -> None:
        if not self._is_dropped:
            self._chunks.extend(chunks)
            self.look()
            self.send()

    def look(self) -> None:
        """Takes note of a quiet transfer that has ended: a mover does not tell when it has sent the last chunk."""
        transfer = self._transfer
        if transfer is not None and self._loop.movers.ask(transfer):
            self._was_moved(transfer)

    def drop(self) -> None:
        """Forgets all chunks: the connection is gone, and its descriptor may soon be another's."""
        self._is_dropped = True
        self._drained = _nothing  # It refers back to this outbox: a cycle is only freed by the collector.
        self._chunks.clear()
        if self._transfer is not None:
            self._loop.movers.cancel(self._transfer)
            self._transfer = None
        if self._second is not None:
            self._stop_watching()
            self._second.close()

    def close_when_empty(self) -> None:
        self._closes_when_empty = True
        self.look()
        self.send()

    def send(self) -> None:
        """Sends as much as the socket takes now, but no more than one turn's worth."""
        if self._is_dropped or self._transport.is_closing():
            return
        try:
            left = SEND_BYTES_PER_TURN
            while self._chunks and not self._is_full and not self._is_busy:
                left -= self._send_bytes() if isinstance(self._chunks[0], IN_MEMORY) else self._send_slice()
                if left <= 0 and self._chunks and not self._is_full and not self._is_busy:
                    self._is_busy = True
                    self._loop.soon(self._its_turn)
        except OSError as error:
            self._give_up(error)
        if self._closes_when_empty and not self._chunks and not self._is_busy:
            self.drop()
            self._transport.close()

    def _give_up(self, error: BaseException) -> None:
        """Aborts the connection: an answer's length was promised, and nothing else can say that it can't be kept."""
        self.drop()
        self._transport.abort()
        if isinstance(error, OSError) and error.filename is not None:  # A file's, not the socket's.
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
        self._took(sent)
        if sent < len(data):
            self._chunks.appendleft(memoryview(data)[sent:])
            self._wait_for_room()
        return sent

    def _write_before_slice(self, data: bytes | memoryview) -> int:
        """Writes with MSG_MORE, so that the peer is not woken for the front of an answer whose records come at once."""
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
        self._took(sent)
        if sent < records.size:
            self._chunks.appendleft(cast(Chunk, records.part(sent, records.size - sent)))
            if sent < SEND_CHUNK_BYTES:
                self._wait_for_room()
        return sent

    def _took(self, size: int) -> None:
        self._traffic.bytes_out += size
        self._has_moved = True

    # Large slices.

    def _move(self, head: bytes) -> bool:
        """Lets a mover send `head`, the next slice, and the end of the answer if that is all there is behind the slice.

        Returns False if the slice is small, or there is no mover.
        """
        if isinstance(self._chunks[0], IN_MEMORY):
            return False
        records = cast(FileBytes, self._chunks[0])
        if records.size < MOVED_BYTES_MIN or records.file.fileno() < 0:
            return False
        if self.makes_way and not self._has_made_way and not self._loop.heard.is_one(self._loop.now().steady):
            self._make_way(head)
            return True
        # A Fetch response of a flexible version ends in three bytes.  A mover that sends only the records would have
        # the loop woken again for those.
        end = self._chunks[1] if len(self._chunks) == 2 and isinstance(self._chunks[1], IN_MEMORY) else b""
        transfer = self._loop.movers.send(
            self._descriptor,
            head,
            records.file,
            records.position,
            records.size,
            after=bytes(end),
            is_quiet=len(self._chunks) == (2 if end else 1) and not self._closes_when_empty,
            done=self._was_moved,
        )
        if transfer is None:
            return False
        if end:
            del self._chunks[1]
        self._transfer, self._transferred = transfer, 0
        self._is_busy, self._has_made_way = True, False
        self._traffic.bytes_out += len(head) + records.size + len(end)
        return True

    def _make_way(self, head: bytes) -> None:
        """Lets what others have sent meanwhile be handled before a mover begins.

        The mover and the peer that it wakes take the processors, and would have the loop wait.
        """
        if head:
            self._chunks.appendleft(head)
        self._is_busy = self._has_made_way = True
        self._loop.soon(lambda: self._loop.soon(self._its_turn))  # The loop looks at its sockets between the two.

    def _was_moved(self, transfer: Transfer) -> None:
        self._transfer = None
        self._is_busy = False
        records = cast(FileBytes, self._chunks.popleft())
        self._traffic.bytes_out += transfer.moved - records.size
        self._has_moved = True
        if transfer.error:
            error = OSError(transfer.error, os.strerror(transfer.error))
            self._give_up(records.failure(error) if transfer.is_files_error else error)
        else:
            self._go_on()

    # Waiting for room.

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
        """Returns a second descriptor of the socket; None if only those are left that the logs need."""
        if self._second is None and are_left():
            try:
                self._second = socket.socket(fileno=os.dup(self._descriptor))
            except OSError:
                return None
        return self._second

    # Slices that are not in the page cache.

    def _read(self, records: FileBytes) -> None:
        part = records.part(0, SEND_CHUNK_BYTES)
        if part.size < records.size:
            self._chunks.appendleft(cast(Chunk, records.part(part.size, records.size - part.size)))
        self._is_busy = True
        self._loop.in_thread(part.read, self._was_read)

    def _was_read(self, done: Future[bytes]) -> None:
        self._is_busy = False
        if self._is_dropped:
            return
        error = done.exception()
        if error is not None:
            self._give_up(error)
            return
        self._chunks.appendleft(done.result())
        self._go_on()

    def _its_turn(self) -> None:
        self._is_busy = False
        self._go_on()

    def _go_on(self) -> None:
        self.send()
        self._drained()


def _nothing() -> None:
    """Does nothing: the connection is gone."""


class TransportWithOutbox:
    """A transport whose bytes are not those of its socket, and which therefore has an outbox of its own.

    `principal` is who the peer has shown to be before any of its bytes were let through.  This class does not inherit
    from asyncio.Transport, for the reason that Receiving gives.
    """

    def __init__(self, principal: Principal) -> None:
        self.principal = principal

    def outbox_for(self, drained: Callable[[], None]) -> Outbox:
        raise NotImplementedError


def principal_of(transport: asyncio.Transport) -> Principal:
    """Returns who is at the other end; ANONYMOUS on a connection in plain text."""
    return transport.principal if isinstance(transport, TransportWithOutbox) else ANONYMOUS


def outbox_of(transport: asyncio.Transport, loop: Loop, drained: Callable[[], None]) -> Outbox:
    """Returns the outbox of a connection, with or without TLS."""
    if isinstance(transport, TransportWithOutbox):
        return transport.outbox_for(drained)
    return Outbox(transport, loop, drained)


ROOM_POLL_SECONDS = 0.01
COPIED_BYTES_MAX = 16 * 1024  # In one write.
MOVED_BYTES_MIN = 128 * 1024  # What a socket takes at once is not worth waking a thread for.
MOVED_HEAD_BYTES_MAX = 16 * 1024
