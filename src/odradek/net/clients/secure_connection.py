"""TLS connection: an asyncio protocol in front of the connection that speaks Kafka.

    socket ─> SecureFront ─> Session ─> get_buffer, buffer_updated of the connection
    socket <─ SecureOutbox <─ Session <─ put, send

asyncio's own TLS is equally fast. But it does not report whose handshake failed and why. It also cannot limit how much
is encrypted ahead, or send a response's slices without holding all of them in memory.

The connection behind the front is not notified before the handshake is complete. A peer that does not complete it takes
one connection slot for at most HANDSHAKE_SECONDS_MAX, and one line in the log.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any, Protocol, cast

from odradek.base.units import SECOND_MS
from odradek.core.kernel.access import ANONYMOUS, USER, Principal
from odradek.net.clients.secure_outbox import PIECE_BYTES, SecureOutbox
from odradek.net.shell.outbox import Loop, TransportWithOutbox
from odradek.tls.ssl_contexts import Contexts
from odradek.tls.tls_errors import TlsFailed
from odradek.tls.tls_session import Session

log = logging.getLogger(__name__)

HANDSHAKE_SECONDS_MAX = 30.0
LINGER_SECONDS = 2  # Time for the peer to read the alert.
# SSLObject.write takes, and read returns, one TLS record (16 KiB) at a time, however large the buffer is: a megabyte
# takes 64 calls. Received records are gathered before the connection is called.
READ_BYTES = 256 * 1024
FED_BYTES = 32 * 1024  # Given to OpenSSL per call; each connection keeps a buffer as large as its largest piece.
RECORDS_PER_TURN = 512  # Each takes a few microseconds and may be one byte. Then others have their turn.
UNSENT_BYTES_MAX = 64 * 1024  # TLS responds to a peer's key updates, and the peer may not read the responses.
REASONS_REMEMBERED_MAX = 100
NOTHING = memoryview(b"")


class Connection(Protocol):
    """Kafka connection behind the TLS front: an asyncio.BufferedProtocol."""

    def connection_made(self, transport: asyncio.BaseTransport, /) -> None: ...

    def connection_lost(self, error: Exception | None, /) -> None: ...

    def get_buffer(self, sizehint: int, /) -> memoryview: ...

    def buffer_updated(self, nbytes: int, /) -> None: ...


class SecureConnectionOwner(Protocol):
    """The listener as a front sees it; it counts connections."""

    @property
    def name(self) -> str: ...

    @property
    def loop(self) -> Loop: ...

    @property
    def entrance(self) -> ListenerTls | None: ...

    def on_connected(self, connection: SecureFront, address: str) -> None: ...

    def forget(self, connection: SecureFront) -> None: ...

    def now_ms(self) -> int: ...


class ListenerTls:
    """TLS state shared by a listener's connections: certificates, buffers and the state of log limits."""

    def __init__(self, contexts: Contexts) -> None:
        self.contexts = contexts
        # Shared: received bytes are decrypted, and gathered bytes encrypted, before the loop runs anything else.
        self.space = memoryview(bytearray(READ_BYTES))
        self.gathering = memoryview(bytearray(PIECE_BYTES))
        self.outgoing = ssl.MemoryBIO()
        self._next_lines: dict[str, int] = {}
        self._refused = 0

    def front(self, owner: SecureConnectionOwner, connection: Connection) -> SecureFront:
        return SecureFront(owner, self, connection)

    def report(self, owner: SecureConnectionOwner, address: str, reason: str, level: int = logging.WARNING) -> None:
        """Log a rejection, at most once a second per reason, as rejected clients reconnect at once."""
        self._refused += 1
        now = owner.now_ms()
        if now < self._next_lines.get(reason, now):
            return
        if len(self._next_lines) >= REASONS_REMEMBERED_MAX:
            self._next_lines.clear()
        self._next_lines[reason] = now + SECOND_MS
        fields = {"connection": address, "listener": owner.name}
        text = "TLS handshake with %s failed: %s (%d failed since startup)"
        log.log(level, text, address, reason, self._refused, extra=fields)


class SecureFront(asyncio.BufferedProtocol):
    """One accepted connection; `connection` gets a SecureTransport once the handshake is complete."""

    def __init__(self, owner: SecureConnectionOwner, entrance: ListenerTls, connection: Connection) -> None:
        self._owner = owner
        self._entrance = entrance
        self._connection = connection
        self._session = Session(entrance.contexts.context(), outgoing=entrance.outgoing)
        self._transport: SecureTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unfed = NOTHING  # Bytes received but not yet given to OpenSSL; only while `buffer_updated` runs.
        self._records_left = 0  # TLS records that this turn may still decrypt.
        self._is_paused_for_turn = False  # Nothing is read before the connection's next turn.
        self._is_reported = False
        self._is_refused = False  # Further bytes from the peer are discarded.

    # Callbacks from asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        self._outbox = SecureOutbox(self._raw, self._session, self._owner.loop, self._entrance.gathering)
        remote = self._raw.get_extra_info("peername")
        self._address = f"{remote[0]}:{remote[1]}" if remote else "unknown"
        self._owner.on_connected(self, self._address.rpartition(":")[0])
        self._timer = self._owner.loop.loop.call_later(HANDSHAKE_SECONDS_MAX, self._time_out)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._entrance.space

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_refused:
            return
        self._unfed = self._entrance.space[:nbytes]
        try:
            while self._unfed and not self._session.is_established:
                self._feed()
        except TlsFailed as reason:
            self._refuse(reason)
            return
        if self._session.is_established and self._transport is None:
            self._start_connection()
        self.deliver()

    def eof_received(self) -> bool:
        if self._transport is None and not self._is_refused:
            self._report(self._session.unfinished("disconnected"), logging.INFO)
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_timer()
        self._outbox.drop()
        if self._transport is not None:
            self._connection.connection_lost(error)
            return
        self._owner.forget(self)
        self._report(self._session.unfinished("disconnected"), logging.INFO)

    # Calls from the listener, until the handshake is complete.

    def stop_reading(self) -> None:
        """Close the connection, which has sent no request yet."""
        self.close()

    def close(self) -> None:
        self._is_reported = True
        self._raw.close()

    def abort(self) -> None:
        self._is_reported = True
        self._raw.abort()

    def close_if_idle(self, steady_before: int) -> None:
        """Do nothing, as the handshake's deadline comes sooner."""

    # Between socket and connection.

    def deliver(self) -> None:
        """Deliver decrypted bytes, unless the connection has paused reading."""
        transport = self._transport
        self._records_left = RECORDS_PER_TURN
        try:
            while transport is not None and transport.is_reading() and (size := self._decrypt()):
                self._connection.buffer_updated(size)
            while self._unfed:  # The connection has paused reading.
                self._feed()
        except TlsFailed as reason:
            self._refuse(reason)
            return
        if self._session.bytes_to_send:
            self._outbox.send()
            if self._session.bytes_to_send > UNSENT_BYTES_MAX:
                self._report("it does not read the responses of the handshake")
                self._raw.abort()
        if self._session.has_peer_closed and not self._raw.is_closing():
            self._raw.close()
        elif not self._records_left:
            self._pause_for_turn()

    def _decrypt(self) -> int:
        """Decrypt as much as the connection's buffer takes: records are small and each call takes time."""
        view = self._connection.get_buffer(-1)
        filled = 0
        while filled < len(view) and self._records_left:
            size = self._session.read_into(view[filled:])
            if size:
                filled += size
                self._records_left -= 1
            elif self._unfed:
                self._feed()
            else:
                break
        return filled

    def _feed(self) -> None:
        piece, self._unfed = self._unfed[:FED_BYTES], self._unfed[FED_BYTES:]
        self._session.receive(piece)

    def _start_connection(self) -> None:
        self._stop_timer()
        self._owner.forget(self)  # From now on, the connection itself is counted.
        self._transport = SecureTransport(self._raw, self._session, self._outbox, self._deliver_soon)
        self._connection.connection_made(cast(asyncio.Transport, self._transport))

    def _deliver_soon(self) -> None:
        self._owner.loop.soon(self._deliver_if_open)

    def _pause_for_turn(self) -> None:
        if not self._raw.is_closing():
            self._raw.pause_reading()
            if not self._is_paused_for_turn:
                self._is_paused_for_turn = True
                self._owner.loop.soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_paused_for_turn = False
        self._deliver_if_open()
        if not self._is_paused_for_turn and self._transport is not None and self._transport.is_reading():
            self._raw.resume_reading()

    def _deliver_if_open(self) -> None:
        if not self._raw.is_closing() and not self._is_refused:
            self.deliver()

    def _refuse(self, reason: TlsFailed) -> None:
        self._report(str(reason))
        self._is_refused = True
        self._unfed = NOTHING
        self._stop_timer()
        self._outbox.send()  # Sends the alert.
        if self._outbox.is_backed_up or self._raw.is_closing():
            self._raw.abort()
            return
        # Closing while the peer still sends would discard the alert.
        self._outbox.drop()
        self._raw.write_eof()
        self._raw.resume_reading()
        self._timer = self._owner.loop.loop.call_later(LINGER_SECONDS, self._raw.abort)

    def _time_out(self) -> None:
        self._report(self._session.unfinished("timed out"))
        self._raw.abort()

    def _report(self, reason: str, level: int = logging.WARNING) -> None:
        if not self._is_reported:
            self._is_reported = True
            self._entrance.report(self._owner, self._address, reason, level)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class SecureTransport(TransportWithOutbox):
    """Transport of a TLS connection with the methods that connections use; its outbox sends responses."""

    def __init__(
        self, raw: asyncio.Transport, session: Session, outbox: SecureOutbox, deliver_soon: Callable[[], None]
    ) -> None:
        super().__init__(ANONYMOUS if session.subject is None else Principal(USER, session.subject))
        self._raw = raw
        self._session = session
        self._outbox = outbox
        self._request_delivery = deliver_soon
        self._is_paused = False

    def outbox_for(self, drained: Callable[[], None]) -> SecureOutbox:
        self._outbox.call_when_drained(drained)
        return self._outbox

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._raw.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._raw.is_closing()

    def is_reading(self) -> bool:
        return not self._is_paused and not self._raw.is_closing()

    def pause_reading(self) -> None:
        self._is_paused = True
        if not self._raw.is_closing():
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if not self._raw.is_closing():
            self._raw.resume_reading()
            self._request_delivery()  # Bytes may have been decrypted before the pause.

    def close(self) -> None:
        self._raw.close()

    def abort(self) -> None:
        self._raw.abort()
