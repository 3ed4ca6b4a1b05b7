"""Where connections come in: the listening sockets of one address, each accepted from until none waits.

A loop's own server accepts one connection in each turn, and a turn is as long as all that is ready: of 2,000 clients
that came at once the last waited for seconds.  And the system lets only so many wait: who finds the queue full tries
again a second later.

There must be a descriptor for each that is accepted, even for those who are turned away.  So one is kept: without any
other, and if nobody makes room, it is given up for the moment that it takes to accept a connection and close it.  If it
is lost, nobody is accepted for a while; the loop would not sleep otherwise, as those who wait stay ready.
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

from odradek.net.descriptors import STDERR

log = logging.getLogger(__name__)

ACCEPTING_SECONDS = 0.01  # In one turn: each that comes with a request takes a tenth of a millisecond or two.
PAUSE_SECONDS = 0.25
SOMAXCONN = Path("/proc/sys/net/core/somaxconn")

NONE_LEFT = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
# Linux tells here of errors that a connection had before it was accepted.
HAS_GONE = {
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


def _is_none_made() -> bool:
    """Nobody can make room."""
    return False


class Door:
    """Non-blocking, bound sockets.  `enter` is given each accepted socket, and the peer's address; it raises nothing.

    `has_turned_away` is told of those for whom there was no descriptor, `is_crowded` whether some have to wait for
    another turn.  `make_room` is asked for a descriptor if there is none; `around` gives what stands around a turn.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: list[socket.socket],
        enter: Callable[[socket.socket, Address], None],
        has_turned_away: Callable[[Address], None],
        is_crowded: Callable[[bool], None],
        *,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
        make_room: Callable[[], bool] = _is_none_made,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sockets = sockets
        self._loop = loop
        self._enter = enter
        self._has_turned_away = has_turned_away
        self._is_crowded = is_crowded
        self._clock = clock
        self._around = around
        self._make_room = make_room
        self._spare = _spare()
        self._pause: asyncio.TimerHandle | None = None

    def open(self, backlog: int) -> None:
        """Raises OSError if somebody else listens there by now."""
        for one in self.sockets:
            one.listen(backlog)
        self._watch()

    def close(self) -> None:
        """Whoever waits is told that nobody is there."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        for one in self.sockets:
            self._loop.remove_reader(one.fileno())
            one.close()
        self.sockets = []
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _watch(self) -> None:
        self._pause = None
        if self._spare is None:
            self._spare = _spare()
        for one in self.sockets:
            self._loop.add_reader(one.fileno(), self._accept_all, one)

    def _accept_all(self, listening: socket.socket) -> None:
        with self._around():
            is_crowded = self._accept_some(listening)
        self._is_crowded(is_crowded)

    def _accept_some(self, listening: socket.socket) -> bool:
        """True if the time was over before nobody waited any more."""
        end = self._clock() + ACCEPTING_SECONDS
        # As `socket.accept` does it, which asks for these each time: 10 us where this takes 6.
        family, kind, protocol = int(listening.family), int(listening.type), listening.proto
        while self._clock() < end:
            try:
                descriptor, address = listening._accept()  # type: ignore[attr-defined]
            except (BlockingIOError, InterruptedError):
                return False
            except OSError as error:
                if error.errno in HAS_GONE:
                    continue
                if error.errno == errno.EMFILE and self._make_room():
                    continue
                if error.errno not in NONE_LEFT or self._spare is None:
                    self._rest(error)
                    return False
                if not self._turn_one_away(listening):
                    return False
                continue
            accepted = socket.socket(family, kind, protocol, descriptor)
            accepted.setblocking(False)
            self._enter(accepted, address)
        return True

    def _turn_one_away(self, listening: socket.socket) -> bool:
        """With the spare descriptor; False if nobody waits, of which the system says nothing without a descriptor."""
        assert self._spare is not None
        os.close(self._spare)
        try:
            accepted, address = listening.accept()
        except OSError:
            return False
        else:
            accepted.close()
            self._has_turned_away(address)
            return True
        finally:
            self._spare = _spare()

    def _rest(self, error: OSError) -> None:
        log.warning("nobody is let in for %d ms: %s", 1000 * PAUSE_SECONDS, error.strerror)
        for one in self.sockets:
            self._loop.remove_reader(one.fileno())
        self._pause = self._loop.call_later(PAUSE_SECONDS, self._watch)


async def bound(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[socket.socket]:
    """A socket for each address that `host` has, not listening yet; no host is all interfaces.

    With port 0 the system chooses one, the same for all.  Raises OSError.
    """
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            try:
                one = socket.socket(family, kind, protocol)
            except OSError:
                continue  # The name has an address of a kind that this system does not have.
            sockets.append(one)
            _bind(one, address, port or (sockets[0].getsockname()[1] if len(sockets) > 1 else 0))
        if not sockets:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    except BaseException:
        for one in sockets:
            one.close()
        raise
    return sockets


def _bind(one: socket.socket, address: Address, port: int) -> None:
    one.setblocking(False)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # What is accepted inherits it.
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if one.family == socket.AF_INET6:
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # IPv4 has a socket of its own.
    one.bind((address[0], port, *address[2:]))


def _spare() -> int | None:
    try:
        return os.dup(STDERR)
    except OSError:
        return None


@cache
def tell_of_short_queue(wanted: int) -> None:
    """Once: the system may let fewer wait than we ask for."""
    try:
        most = int(SOMAXCONN.read_text())
    except (OSError, ValueError):
        return
    if most < wanted:
        log.warning(
            "net.core.somaxconn is %d: of more clients that come at once some wait a second; %d is enough",
            most,
            wanted,
        )
