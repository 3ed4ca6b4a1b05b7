"""The socket interface that a connection needs, and its implementation under TLS.

A non-blocking SSL socket in Python reports which event it waits for, which may differ from the requested direction. It
may also contain decrypted bytes that poll() does not report.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from contextlib import suppress
from functools import lru_cache
from typing import Protocol

from odradek.client.connection.client_errors import ConfigurationError, ConnectionLost, TlsRefused
from odradek.tls import failure_reasons
from odradek.tls.ssl_contexts import Contexts, client_context
from odradek.tls.tls_config import TlsConfig
from odradek.tls.tls_errors import TlsConfigError

CONFIGURATIONS_KEPT_MAX = 16


class Stream(Protocol):
    """A non-blocking socket, plain or under TLS."""

    def fileno(self) -> int: ...

    def send(self, data: memoryview, /) -> int: ...

    def recv_into(self, buffer: memoryview, /) -> int: ...

    def close(self) -> None: ...


class WouldBlock(BlockingIOError):
    """Error of a call that must be repeated after one of these events of poll()."""

    def __init__(self, events: int) -> None:
        super().__init__()
        self.events = events


class SecureStream:
    """TLS on a connected socket, with the handshake completed by the constructor.

    Raise TlsRefused for errors that require a change of configuration; ConnectionLost, and OSError later, for others;
    ConfigurationError for an unreadable store.
    """

    def __init__(self, plain: socket.socket, config: TlsConfig, host_name: str, where: str, timeout_ms: int) -> None:
        self._where = where
        self._stream = plain
        try:
            self._stream = self._tls = _context(config).wrap_socket(
                plain, server_hostname=host_name, do_handshake_on_connect=False
            )
            self._handshake(time.monotonic() + timeout_ms / 1000)
        except BaseException:
            self._stream.close()
            raise

    def fileno(self) -> int:
        return self._tls.fileno()

    @property
    def version(self) -> str | None:
        return self._tls.version()

    @property
    def has_received(self) -> bool:
        """Return whether there is data to receive that poll() does not report."""
        return self._tls.pending() > 0

    def send(self, data: memoryview, /) -> int:
        try:
            return self._tls.send(data)
        except ssl.SSLError as error:
            raise self._error(error) from error

    def recv_into(self, buffer: memoryview, /) -> int:
        try:
            return self._tls.recv_into(buffer)
        except ssl.SSLError as error:
            raise self._error(error) from error

    def close(self) -> None:
        if self._tls.fileno() >= 0:
            with suppress(OSError, ValueError):  # It sends the close alert and does not wait for the peer's.
                self._tls.unwrap()
        self._tls.close()

    def _handshake(self, deadline: float) -> None:
        poll = select.poll()
        while True:
            try:
                self._tls.do_handshake()
                return
            except ssl.SSLError as error:
                events = self._events(error)
                if events is None:
                    raise self._handshake_error(error) from error
            except OSError as error:
                raise self._closed_by_peer() from error
            poll.register(self._tls, events)
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not poll.poll(remaining * 1000 + 1):
                raise ConnectionLost(f"{self._where} did not finish the TLS handshake in time; is it an SSL listener?")

    @staticmethod
    def _events(error: ssl.SSLError) -> int | None:
        if isinstance(error, ssl.SSLWantReadError):
            return select.POLLIN
        return select.POLLOUT if isinstance(error, ssl.SSLWantWriteError) else None

    def _handshake_error(self, error: ssl.SSLError) -> Exception:
        if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return self._closed_by_peer()
        failure = self._error(error)
        return (
            failure
            if isinstance(failure, TlsRefused)
            else ConnectionLost(f"TLS handshake with {self._where} failed: {failure}")
        )

    def _closed_by_peer(self) -> ConnectionLost:
        return ConnectionLost(f"{self._where} closed the connection during the TLS handshake; is it an SSL listener?")

    def _error(self, error: ssl.SSLError) -> Exception:
        events = self._events(error)
        if events is not None:
            return WouldBlock(events)
        reason = failure_reasons.of(error, is_server=False)
        return (
            TlsRefused(f"TLS handshake with {self._where} failed: {reason}")
            if failure_reasons.is_final(error)
            else OSError(reason)
        )


def _context(config: TlsConfig) -> ssl.SSLContext:
    try:
        return _contexts(config).context()
    except TlsConfigError as error:
        raise ConfigurationError(str(error).rstrip(".")) from None


@lru_cache(maxsize=CONFIGURATIONS_KEPT_MAX)
def _contexts(config: TlsConfig) -> Contexts:
    """Return the same contexts to all connections of a process: creating a context takes milliseconds."""
    return Contexts(config, client_context)
