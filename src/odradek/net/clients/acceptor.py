"""Acceptor of connections: the listening sockets of one address, each accepted from until empty.

A server of the event loop accepts one connection per turn, and a turn handles everything that is ready. Of 2,000
clients that connected at once, the last one waited for seconds. In addition, the system limits the queue of waiting
clients; a client that finds it full retries a second later.

Each accepted connection needs a descriptor, even if it is rejected. The acceptor therefore keeps a spare descriptor. If
no other is left and none can be released, it closes the spare, accepts one connection, closes that connection and
reopens the spare. If the spare is lost, nothing is accepted for a while; otherwise the loop would not sleep, as waiting
connections stay ready.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

from odradek.net.loop.descriptors import STDERR

log = logging.getLogger(__name__)

ACCEPTING_SECONDS = 0.01  # Per turn; accepting a connection with its first request takes one or two tenths of a ms.
PAUSE_SECONDS = 0.25
SOMAXCONN = Path("/proc/sys/net/core/somaxconn")

OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
# On Linux, accept reports errors that occurred before the connection was accepted.
ABORTED_BEFORE_ACCEPT = {
    errno.ECONNABORTED,
    errno.EPROTO,
    errno.EPERM,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENOPROTOOPT,
    errno.EOPNOTSUPP,
    errno.ETIMEDOUT,
}

Address = tuple[Any, ...]


def _make_no_room() -> bool:
    """Return False: no descriptor can be released."""
    return False


class Acceptor:
    """Acceptor for non-blocking, bound sockets.

    `enter` receives each accepted socket with its address, and raises nothing. `on_rejected` is called for a peer
    without a descriptor, and `on_crowd` with whether clients wait for another turn. `make_room` releases a descriptor
    if none is left; `around` returns the context manager of a turn.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: list[socket.socket],
        enter: Callable[[socket.socket, Address], None],
        on_rejected: Callable[[Address], None],
        on_crowd: Callable[[bool], None],
        *,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
        make_room: Callable[[], bool] = _make_no_room,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sockets = sockets
        self._loop = loop
        self._enter = enter
        self._on_rejected = on_rejected
        self._on_crowd = on_crowd
        self._clock = clock
        self._around = around
        self._make_room = make_room
        self._spare = _spare()
        self._pause: asyncio.TimerHandle | None = None

    def open(self, backlog: int) -> None:
        """Start listening.  Raises OSError if another process listens at the address by now."""
        for listening in self.sockets:
            listening.listen(backlog)
        self._watch()

    def close(self) -> None:
        """Close the sockets; the system refuses clients that are still waiting."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        for listening in self.sockets:
            self._loop.remove_reader(listening.fileno())
            listening.close()
        self.sockets = []
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _watch(self) -> None:
        self._pause = None
        if self._spare is None:
            self._spare = _spare()
        for listening in self.sockets:
            self._loop.add_reader(listening.fileno(), self._accept_all, listening)

    def _accept_all(self, listening: socket.socket) -> None:
        with self._around():
            is_crowded = self._accept_some(listening)
        self._on_crowd(is_crowded)

    def _accept_some(self, listening: socket.socket) -> bool:
        """Accept until no client waits or the turn is over; return whether some may still wait."""
        end = self._clock() + ACCEPTING_SECONDS
        # Inlines `socket.accept`, which reads these attributes each time: 10 us instead of 6.
        family, kind, protocol = int(listening.family), int(listening.type), listening.proto
        while self._clock() < end:
            try:
                descriptor, address = listening._accept()  # type: ignore[attr-defined]
            except (BlockingIOError, InterruptedError):
                return False
            except OSError as error:
                if error.errno in ABORTED_BEFORE_ACCEPT:
                    continue
                if error.errno == errno.EMFILE and self._make_room():
                    continue
                if error.errno not in OUT_OF_RESOURCES or self._spare is None:
                    self._pause_accepting(error)
                    return False
                if not self._reject_one(listening):
                    return False
                continue
            accepted = socket.socket(family, kind, protocol, descriptor)
            accepted.setblocking(False)
            self._enter(accepted, address)
        return True

    def _reject_one(self, listening: socket.socket) -> bool:
        """Accept and close one connection with the spare descriptor.

        Returns False if no client waits, which the system does not report without a descriptor.
        """
        assert self._spare is not None
        os.close(self._spare)
        try:
            accepted, address = listening.accept()
        except OSError:
            return False
        else:
            accepted.close()
            self._on_rejected(address)
            return True
        finally:
            self._spare = _spare()

    def _pause_accepting(self, error: OSError) -> None:
        log.warning("accepting no connections for %d ms: %s", 1000 * PAUSE_SECONDS, error.strerror)
        for listening in self.sockets:
            self._loop.remove_reader(listening.fileno())
        self._pause = self._loop.call_later(PAUSE_SECONDS, self._watch)


async def bound(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[socket.socket]:
    """Return a socket bound to each address of `host`, not listening yet.

    An empty host means all interfaces. With port 0 the system chooses a port, the same for all. Raises OSError.
    """
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            try:
                sock = socket.socket(family, kind, protocol)
            except OSError:
                continue  # This system does not support the address family.
            sockets.append(sock)
            _bind(sock, address, port or (sockets[0].getsockname()[1] if len(sockets) > 1 else 0))
        if not sockets:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def _bind(sock: socket.socket, address: Address, port: int) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Accepted sockets inherit it.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # IPv4 has its own socket.
    sock.bind((address[0], port, *address[2:]))


def _spare() -> int | None:
    try:
        return os.dup(STDERR)
    except OSError:
        return None


@cache
def warn_of_short_backlog(backlog: int) -> None:
    """Log once that the system's limit of waiting clients is below the requested backlog."""
    try:
        limit = int(SOMAXCONN.read_text())
    except (OSError, ValueError):
        return
    if limit < backlog:
        log.warning(
            "net.core.somaxconn is %d: connections may be delayed by 1 s in bursts; set it to %d or more",
            limit,
            backlog,
        )
