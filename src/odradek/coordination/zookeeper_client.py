"""kazoo's client configured for a broker, and the ACLs of Kafka's znodes.

Surprising: kazoo reads certificates from named PEM files, so the key of a PKCS12 store would have to be written to
one. Therefore connections are made here, with our own context, and kazoo treats them as plain ones. It also logs the
request that authenticates a session, including the password; such lines are dropped.
"""

from __future__ import annotations

import logging
import selectors
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.handlers.threading import SequentialThreadingHandler  # type: ignore[import-untyped]
from kazoo.handlers.utils import selector_select  # type: ignore[import-untyped]
from kazoo.protocol.serialization import SASL, Auth  # type: ignore[import-untyped]
from kazoo.retry import KazooRetry  # type: ignore[import-untyped]
from kazoo.security import ACL, CREATOR_ALL_ACL, READ_ACL_UNSAFE  # type: ignore[import-untyped]

from odradek.coordination.zookeeper_access import Access, Credentials, Scheme, Tls

# Kafka's ZkData.SensitiveRootPaths: passwords of users and brokers, and the secrets of delegation tokens.
SENSITIVE = ("/config/users", "/config/brokers", "/delegation_token/tokens")
OPEN_TO_ALL = "/consumers"  # Old consumers are not brokers, and create their nodes below it.
# kazoo's own delay doubles up to an hour: after a ten-minute outage a broker would be away for another ten.
RETRY_SECONDS, RETRY_SECONDS_MAX = 0.1, 1.0


class Acls:
    """The ACLs of new znodes, by their path on the ensemble; the broker's tree begins at `root`."""

    def __init__(self, root: str = "", *, sets_acls: bool = False) -> None:
        self._root = root
        self._sets_acls = sets_acls

    def of(self, path: str) -> list[ACL] | None:
        """Return the ACL of Kafka's ZkData.defaultAcls; None allows everything to everyone."""
        below = path[len(self._root) :] if path.startswith(f"{self._root}/") else path
        if not self._sets_acls or below == OPEN_TO_ALL:
            return None
        if below.startswith(SENSITIVE):
            return [*CREATOR_ALL_ACL]
        return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]


class _SecureSocket(ssl.SSLSocket):
    """A connection that reports a server's TLS alert, which TLS 1.3 sends only with the first answer."""

    on_alert: Callable[[OSError], None] | None = None

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        try:
            return super().recv(buflen, flags)
        except ssl.SSLError as error:
            if self.on_alert is not None and "ALERT" in (error.reason or ""):
                self.on_alert(error)
            raise


class _Poll:
    """A replacement of the module selectors for kazoo, which creates a selector for each wait.

    There are three waits for each answer. With epoll, each took four system calls, and most of the time of a
    controller that reads ten thousand states.
    """

    EVENT_READ, EVENT_WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
    DefaultSelector = selectors.PollSelector


class PlainHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads and sockets, with limited connection attempts.

    An attempt to connect takes at most a server's share of the session timeout, as in Java's client. Otherwise a
    machine that is off would use all of it, and the session would expire before the next server is tried.
    """

    def __init__(self, attempt_seconds: float) -> None:
        super().__init__()
        self._attempt_seconds = attempt_seconds

    def create_connection(self, address: tuple[str, int], hostname: str | None = None, **_: object) -> socket.socket:
        connection: socket.socket = super().create_connection(address=address, timeout=self._attempt_seconds)
        return connection

    def select(self, *arguments: Any) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait as kazoo's handler does, but with poll."""
        found: tuple[list[Any], list[Any], list[Any]] = selector_select(*arguments, selectors_module=_Poll)
        return found


class TlsHandler(PlainHandler):
    """Handler that makes TLS connections; `failure` is the reason of the last failed one."""

    def __init__(self, attempt_seconds: float, tls: Tls) -> None:
        super().__init__(attempt_seconds)
        self._tls = tls
        self.failure: str | None = None

    def create_connection(self, address: tuple[str, int], hostname: str | None = None, **_: object) -> ssl.SSLSocket:
        plain = super().create_connection(address)
        context = self._tls.context()
        context.sslsocket_class = _SecureSocket
        try:
            secured = context.wrap_socket(plain, server_hostname=hostname or address[0])
        except OSError as error:
            plain.close()
            self._failed(error)
            raise
        assert isinstance(secured, _SecureSocket), "the context creates only SSL sockets"
        secured.on_alert = self._failed
        return secured

    def select(self, to_read: Sequence[Any], *others: Any) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait as kazoo's handler does, and count data that TLS has already decrypted.

        No socket is readable because of such data. Otherwise, if two answers came in one TLS record, kazoo would read
        the second one only when a third one comes.
        """
        pending = [sock for sock in to_read if isinstance(sock, ssl.SSLSocket) and sock.pending()]
        if pending:
            return pending, [], []
        return super().select(to_read, *others)

    def _failed(self, error: OSError) -> None:
        self.failure = self._tls.reason(error)


def make_client(hosts: str, session_timeout_ms: int, access: Access) -> KazooClient:
    """Return a client that is not connected yet."""
    timeout = session_timeout_ms / 1000
    attempt = timeout / len(hosts.split(","))
    logger = logging.getLogger("kazoo.client")
    logger.addFilter(_hides_credentials)
    return KazooClient(
        hosts=hosts,
        timeout=timeout,
        handler=PlainHandler(attempt) if access.tls is None else TlsHandler(attempt, access.tls),
        connection_retry=KazooRetry(max_tries=-1, delay=RETRY_SECONDS, max_delay=RETRY_SECONDS_MAX),
        logger=logger,
        **({} if access.credentials is None else _authenticating(access.credentials)),
    )


def _authenticating(credentials: Credentials) -> dict[str, Any]:
    user, password = credentials.user, credentials.password.reveal()
    if credentials.scheme is Scheme.DIGEST:
        return {"auth_data": [(Scheme.DIGEST.value, f"{user}:{password}")]}
    return {"sasl_options": {"mechanism": "DIGEST-MD5", "username": user, "password": password}}


def _hides_credentials(record: logging.LogRecord) -> bool:
    arguments = record.args if isinstance(record.args, tuple) else ()
    return not any(isinstance(argument, Auth | SASL) for argument in arguments)
