"""Listener for clients: one bound address with its connections and their limits."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from odradek.base.units import SECOND_MS
from odradek.core.kernel.cluster_view import Endpoint
from odradek.net.clients.acceptor import Acceptor, Address, bound, warn_of_short_backlog
from odradek.net.clients.client_connection import ClientConnection
from odradek.net.clients.connection_quotas import ConnectionQuotas
from odradek.net.clients.listen_failure import CannotListen, listen_error_text
from odradek.net.clients.receiving_transport import ReceivingTransport
from odradek.net.loop.descriptors import limit_for_connections
from odradek.net.loop.readers import Readers
from odradek.net.shell.outbox import Loop
from odradek.net.shell.shell import Shell
from odradek.wire.budget import ReceiveBudget

if TYPE_CHECKING:
    from odradek.net.clients.secure_connection import ListenerTls, SecureFront
    from odradek.tls.ssl_contexts import Contexts

log = logging.getLogger(__name__)

SYSTEM_DEFAULT = -1
# Kafka's default of 50 suits a thread that only accepts connections. Here a burst may wait for a turn of the loop, and
# a client that finds the queue full retries a second later. 4096 is Linux's default limit.
BACKLOG_MIN = 4096
TOO_MANY_CONNECTIONS = "too many connections"
TOO_MANY_FILES = "too many open files; the remaining ones are reserved for log segments (see ulimit -n)"
EVERY_INTERFACE = ("0.0.0.0", "::")


class Listener:
    """One listener of the broker.

    `quotas`, which may be shared with other listeners, limits its connections; excess connections are closed at once.
    """

    def __init__(
        self,
        shell: Shell,
        name: str,
        advertised: Endpoint | None,
        *,
        request_bytes_max: int,
        quotas: ConnectionQuotas,
        backlog: int,
        budget: ReceiveBudget | None = None,
        receive_buffer_bytes: int = SYSTEM_DEFAULT,
        send_buffer_bytes: int = SYSTEM_DEFAULT,
        contexts: Contexts | None = None,
    ) -> None:
        self.shell = shell
        self.name = name
        self.advertised = advertised
        self.request_bytes_max = request_bytes_max
        self.budget = ReceiveBudget() if budget is None else budget
        self.quotas = quotas
        self._backlog = max(backlog, BACKLOG_MIN)
        self._buffers = {socket.SO_RCVBUF: receive_buffer_bytes, socket.SO_SNDBUF: send_buffer_bytes}
        # If set, connections use TLS.
        self.entrance = None if contexts is None else _entrance(contexts)
        self._connections: dict[ClientConnection | SecureFront, str] = {}
        self._rejected_count = 0
        self._is_stopping = False
        self._next_warning = 0
        self._descriptors_max = 0  # Limit of this turn.
        self._readers = Readers(shell.loop, around=shell.gathered)
        self._acceptor: Acceptor | None = None
        self.host = ""
        self.port = 0

    async def bind(self, host: str, port: int) -> None:
        """Bind without listening.  Raises CannotListen.

        With port 0 the system chooses a port, which `port` then contains.
        """
        self.host, self.port = host, port
        try:
            sockets = await bound(self.shell.loop, host, port)
        except OSError as error:
            raise self._cannot_listen(error) from error
        for listening in sockets:
            for option, size in self._buffers.items():
                if size != SYSTEM_DEFAULT:
                    listening.setsockopt(socket.SOL_SOCKET, option, size)  # Accepted sockets inherit it.
        self._acceptor = Acceptor(
            self.shell.loop,
            sockets,
            self._enter,
            self._on_no_descriptor,
            self._readers.on_crowd,
            around=self._around_entries,
            make_room=self.shell.room.for_connection,
        )
        address, self.port = sockets[0].getsockname()[:2]
        if self.advertised is None and host and address not in EVERY_INTERFACE:
            self.advertised = Endpoint(self.name, host, self.port)

    def secure(self, contexts: Contexts) -> None:
        """Replace the certificates of a TLS listener; existing connections keep theirs."""
        if self.entrance is None:
            self.entrance = _entrance(contexts)
        else:
            self.entrance.contexts = contexts

    def _protocol(self) -> ClientConnection | SecureFront:
        connection = ClientConnection(self)
        return connection if self.entrance is None else self.entrance.front(self, connection)

    @property
    def loop(self) -> Loop:
        return self.shell

    def now_ms(self) -> int:
        return self.shell.now().steady

    async def start(self) -> None:
        """Start accepting clients.  Raises CannotListen if another process listens there by now."""
        assert self._acceptor is not None
        warn_of_short_backlog(self._backlog)
        try:
            self._acceptor.open(self._backlog)
        except OSError as error:
            raise self._cannot_listen(error) from error

    def _cannot_listen(self, error: OSError) -> CannotListen:
        return CannotListen(
            listen_error_text(f"{self.name}://{self.host or '0.0.0.0'}:{self.port}", error, "listeners=")
        )

    def _enter(self, accepted: socket.socket, address: Address) -> None:
        """Create a connection from an accepted socket, or close it at once so that the peer reads its end."""
        reason = self._rejection_reason(address[0])
        if reason is None and accepted.fileno() >= self._descriptors_max:
            accepted = self._with_lower_descriptor(accepted)
            reason = None if accepted.fileno() < self._descriptors_max else TOO_MANY_FILES
        if reason is not None:
            accepted.close()
            self._reject(address[0], reason)
            return
        self.shell.traffic.connections_accepted += 1
        ReceivingTransport(self.shell.loop, self._readers, accepted, address, self._protocol()).start_receiving()

    @contextmanager
    def _around_entries(self) -> Iterator[None]:
        self._descriptors_max = limit_for_connections()
        with self.shell.around_entries, self.shell.gathered:
            yield

    def _with_lower_descriptor(self, accepted: socket.socket) -> socket.socket:
        """Return the same connection with a descriptor released by idle logs, if there is one."""
        if not self.shell.room.for_connection():
            return accepted
        try:
            lowered = accepted.dup()
        except OSError:
            return accepted
        accepted.close()
        return lowered

    def _on_no_descriptor(self, address: Address) -> None:
        self._reject(address[0], TOO_MANY_FILES)

    def on_connected(self, connection: ClientConnection | SecureFront, address: str) -> None:
        """Count a connection until `forget`; a TLS connection counts as its front until the handshake ends."""
        self._connections[connection] = address
        self.quotas.add(address)

    def _reject(self, address: str, reason: str) -> None:
        """Count a rejection and log at most one line a second, as rejected clients reconnect at once."""
        self._rejected_count += 1
        self.shell.traffic.connections_refused += 1
        now = self.shell.now().steady
        if now >= self._next_warning:
            self._next_warning = now + SECOND_MS
            fields = {"connection": address, "listener": self.name}
            log.warning(
                "rejected connection of %s: %s (%d rejected since startup)",
                address,
                reason,
                self._rejected_count,
                extra=fields,
            )

    def _rejection_reason(self, address: str) -> str | None:
        if self._is_stopping:
            return "the broker is shutting down"
        return None if self.quotas.has_room(address) else TOO_MANY_CONNECTIONS

    def forget(self, connection: ClientConnection | SecureFront) -> None:
        address = self._connections.pop(connection, None)
        if address is not None:
            self.quotas.remove(address)

    def close_idle(self, steady_before: int) -> None:
        for connection in list(self._connections):
            connection.close_if_idle(steady_before)

    def stop_accepting(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()

    def stop_reading(self) -> None:
        self._is_stopping = True
        for connection in list(self._connections):
            connection.stop_reading()

    def close_connections(self) -> None:
        for connection in list(self._connections):
            connection.close()

    def abort_connections(self) -> None:
        for connection in list(self._connections):
            connection.abort()
        self._readers.close()

    def __len__(self) -> int:
        return len(self._connections)


def _entrance(contexts: Contexts) -> ListenerTls:
    from odradek.net.clients.secure_connection import ListenerTls  # Lazy, so that a broker without TLS starts sooner.

    return ListenerTls(contexts)
