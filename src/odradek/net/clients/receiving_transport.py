"""Transport of a plaintext connection: reads into its protocol's buffer.

net/shell/outbox.py does the writing. uvloop creates its own transports in one turn of the loop and reports them in the
next. This transport is ready, and has read the data that came with the connection, when `start_receiving` returns.
net/loop/readers.py watches it.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any, cast

from odradek.net.loop.readers import Readers

_NO_PROTOCOL = asyncio.BufferedProtocol()
READS_PER_EVENT_MAX = 32  # As long as each fills the whole buffer; libuv has the same limit.


class ReceivingTransport:
    """Receiving transport of an accepted, non-blocking socket.

    As in asyncio, `connection_lost` reports the end in another turn. This class does not inherit from
    asyncio.Transport, whose instances have a slot at the place where instances of a compiled class have their methods.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        readers: Readers,
        accepted: socket.socket,
        address: tuple[Any, ...],
        protocol: asyncio.BufferedProtocol,
    ) -> None:
        self._loop = loop
        self._readers = readers
        self._socket = accepted
        self._address = address
        self._protocol = protocol
        self._is_closing = False
        self._is_paused = False
        self._is_watched = False
        self._is_new = True  # Not watched by the readers yet.

    def start_receiving(self) -> None:
        """Notify the protocol of the connection, then deliver the bytes that the peer has sent already."""
        self._protocol.connection_made(cast(asyncio.Transport, self))
        if not self._is_new or not self.is_reading():
            return
        self._is_watched = True
        has_sent = self._read()
        if self._is_new and self._is_watched:
            self._is_new = False
            self._add(is_newcomer=not has_sent)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":
            return self._socket
        if name == "peername":
            return self._address
        if name == "sockname":
            return self._socket.getsockname()
        return default

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return not self._is_paused and not self._is_closing

    def pause_reading(self) -> None:
        self._is_paused = True
        self._watch()

    def resume_reading(self) -> None:
        self._is_paused = False
        self._watch(is_again=True)

    def write_eof(self) -> None:
        """Send an end of stream to the peer; its bytes are still read."""
        with suppress(OSError):  # The peer has already disconnected.
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._close(None)

    def abort(self) -> None:
        self._close(None)

    def _watch(self, *, is_again: bool = False) -> None:
        must_watch = self.is_reading()
        if must_watch == self._is_watched:
            return
        self._is_watched, was_new, self._is_new = must_watch, self._is_new, False
        if must_watch:
            self._add(is_paused_at_times=is_again)
        elif not was_new:
            self._readers.remove(self._socket.fileno())

    def _add(self, *, is_newcomer: bool = False, is_paused_at_times: bool = False) -> None:
        try:
            self._readers.add(
                self._socket.fileno(), self._read, is_newcomer=is_newcomer, is_paused_at_times=is_paused_at_times
            )
        except OSError as error:  # The system cannot watch more descriptors.
            self._is_watched = False
            self._close(error)

    def _read(self) -> bool:
        """Read until the socket is empty, and return whether any data arrived.

        An error that escapes the protocol closes only this connection, unless the loop's handler treats it as fatal.
        """
        try:
            return self._receive()
        except OSError as error:  # An error of the socket: a reset, or an unreachable peer.
            self._close(error)
        except Exception as error:
            # First of all: a handler that stops the broker stops accepting before this peer can notice.
            self._loop.call_exception_handler(
                {
                    "message": f"Fatal error: {type(self._protocol).__name__} failed",
                    "exception": error,
                    "transport": self,
                    "protocol": self._protocol,
                }
            )
            self._close(error)
        return False

    def _receive(self) -> bool:
        protocol = self._protocol
        for number in range(READS_PER_EVENT_MAX):
            space: memoryview = protocol.get_buffer(-1)  # type: ignore[assignment]  # Our protocols return views.
            try:
                received = self._socket.recv_into(space)
            except BlockingIOError:
                return number > 0
            if not received:
                if not protocol.eof_received():
                    self._close(None)
                return True
            protocol.buffer_updated(received)
            if received < len(space) or not self._is_watched:
                return True
        return True

    def _close(self, error: Exception | None) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._watch()
        self._loop.call_soon(self._end, error)

    def _end(self, error: Exception | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self._socket.close()  # Last, so that nothing else is assigned the descriptor before.
            # The protocol refers back to this transport, and thousands of such cycles burden the garbage collector.
            self._protocol = _NO_PROTOCOL
