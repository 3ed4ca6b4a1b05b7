"""TLS without a socket: received data goes in, data to send comes out.

    session.receive(data)            bytes from the peer, as received
    session.read_into(view) -> n     decrypted data, until 0
    session.write(data)              data to encrypt
    session.data_to_send()           records for the peer: call it after each other method, also after TlsFailed

The certificate of a client is known only after the handshake is complete. A client of TLS 1.3 considers the handshake
complete before the server has verified that certificate, so it receives a rejection with the first data it reads.
"""

from __future__ import annotations

import ssl
from contextlib import suppress

from odradek.tls import failure_reasons
from odradek.tls.principal import distinguished_name
from odradek.tls.tls_errors import TlsFailed

Buffer = bytes | bytearray | memoryview

_RECORD_HANDSHAKE = 0x16
READ_BYTES = 64 * 1024


class Session:
    """The TLS state of one connection, as server or client.

    Every method may raise TlsFailed, whose text is the reason, and no other error. The connection must then be closed
    after `data_to_send` is sent, which notifies the peer.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        is_server: bool = True,
        host_name: str | None = None,
        outgoing: ssl.MemoryBIO | None = None,
    ) -> None:
        """Create a session; those of one thread may share `outgoing`, which never shrinks."""
        self._is_server = is_server
        self._incoming, self._outgoing = ssl.MemoryBIO(), outgoing or ssl.MemoryBIO()
        self._to_send = b""
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server, server_hostname=host_name)
        self._has_received = False
        self._failure: TlsFailed | None = None
        self.is_established = False
        self.has_peer_closed = False
        if not is_server:
            self._do_handshake()

    def receive(self, data: Buffer) -> None:
        """Process bytes received from the socket."""
        self._check()
        if not self._has_received and data:
            self._has_received = True
            if self._is_server and data[0] != _RECORD_HANDSHAKE:
                raise self._failed(TlsFailed("the client does not use TLS, but this listener requires it"))
        self._incoming.write(data)
        if not self.is_established:
            self._do_handshake()

    def receive_eof(self) -> None:
        """Record the end of the peer's data; raise TlsFailed without a preceding close alert, as TLS requires."""
        self._check()
        if not self.is_established:
            raise self._failed(TlsFailed(self.unfinished("disconnected")))
        if not self.has_peer_closed:
            self.has_peer_closed = True
            raise self._failed(TlsFailed("the client disconnected"))

    def read_into(self, view: bytearray | memoryview) -> int:
        """Read decrypted bytes into `view` and return their number, 0 if there are none yet or none left."""
        self._check()
        if not self.is_established or self.has_peer_closed:
            return 0
        if not self._incoming.pending and not self._tls.pending():
            return 0  # Reading would raise an exception, which takes longer than a small record.
        size = 0
        try:
            size = self._tls.read(len(view), view)  # type: ignore[assignment]  # Typeshed declares only the other overload.
        except ssl.SSLWantReadError:
            return 0
        except ssl.SSLZeroReturnError:
            pass  # The peer's end after our own close; before that, it is read as 0 bytes.
        except ssl.SSLError as error:
            raise self._failed(self._reason(error)) from None
        finally:
            self._collect()  # An alert, or new keys.
        self.has_peer_closed = not size
        return size

    def read(self) -> bytes:
        """Return all available decrypted bytes."""
        parts = []
        space = bytearray(READ_BYTES)
        while size := self.read_into(space):
            parts.append(bytes(memoryview(space)[:size]))
        return b"".join(parts)

    def write(self, data: Buffer) -> None:
        """Encrypt data immediately; the caller limits the amount of data waiting to be sent."""
        self._check()
        assert self.is_established, "data is sent after the handshake"
        view = memoryview(data)
        try:
            while view:
                view = view[self._tls.write(view) :]  # One record per call.
        except ssl.SSLError as error:
            raise self._failed(self._reason(error)) from None
        finally:
            self._collect()

    def close(self) -> None:
        """Announce the end of our data; `data_to_send` then contains the close alert."""
        if self._failure is not None or not self.is_established:
            return
        with suppress(ssl.SSLError):  # The peer has not sent its close alert yet, and need not.
            self._tls.unwrap()
        self._collect()

    def data_to_send(self) -> bytes:
        data, self._to_send = self._to_send, b""
        return data

    @property
    def bytes_to_send(self) -> int:
        return len(self._to_send)

    @property
    def subject(self) -> str | None:
        """Return the subject of the peer's certificate as Java writes it (CN=...), or None without one."""
        der = self._tls.getpeercert(binary_form=True) if self.is_established else None
        return None if der is None else distinguished_name(der)

    @property
    def negotiated(self) -> str:
        """Return the version and the cipher suite, for a log line."""
        cipher = self._tls.cipher()
        return f"{self._tls.version()} {cipher[0]}" if cipher is not None else "no TLS"

    def unfinished(self, event: str) -> str:
        """Return the reason for an incomplete handshake for a log line: the peer "left" or "stopped"."""
        if self._has_received:
            return f"the peer {event} during the TLS handshake"
        return f"the peer {event} before sending data"

    def _do_handshake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            raise self._failed(self._reason(error)) from None
        finally:
            self._collect()
        self.is_established = True

    def _collect(self) -> None:
        """Collect the records after each call of OpenSSL, because the next session writes to the same buffer."""
        if self._outgoing.pending:
            self._to_send += self._outgoing.read()

    def _reason(self, error: ssl.SSLError) -> TlsFailed:
        return TlsFailed(failure_reasons.of(error, is_server=self._is_server))

    def _failed(self, failure: TlsFailed) -> TlsFailed:
        self._failure = failure
        return failure

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
