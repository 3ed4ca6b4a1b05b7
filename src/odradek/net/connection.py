"""One client's connection: asyncio's callbacks on one side, sans-I/O parsing and dispatch on the other.

No task and no coroutine: bytes that arrive are parsed, dispatched and answered before the callback returns, and what
can't be answered yet is parked in the core.  Reading pauses while the peer does not take its answers, or has too many
requests waiting, so a slow reader slows only itself.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from odradek.api.call import Peer
from odradek.api.dispatch import Encoded, dispatch
from odradek.base.limits import REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX, SEND_BUFFER_HIGH_BYTES
from odradek.core.cluster import Endpoint
from odradek.core.moment import Moment
from odradek.core.parked import Parked
from odradek.net.outbox import Outbox
from odradek.wire.connection import Connection
from odradek.wire.errors import Malformed
from odradek.wire.request import Request

if TYPE_CHECKING:
    from odradek.net.listener import Listener

log = logging.getLogger(__name__)


class ClientConnection(asyncio.BufferedProtocol):
    """One accepted connection on one listener."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._shell = listener.shell
        self._wire = Connection(listener.request_bytes_max)
        self._parked: dict[Parked[Encoded], Request] = {}
        self._is_reading_paused = False
        self._is_closing = False
        self.last_active = 0

    # asyncio's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=SEND_BUFFER_HIGH_BYTES)
        self._outbox = Outbox(self._transport, self._shell, self._balance)
        self._peer = _peer(self._transport, self._listener)
        self.last_active = self._shell.now().steady
        if not self._listener.admit(self, self._peer.address.rpartition(":")[0]):
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closing = True
        self._listener.forget(self)
        for parked in self._parked:
            self._shell.broker.lot.forget(parked)
        self._parked.clear()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._wire.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_closing:
            return
        now = self._shell.now()
        self.last_active = now.steady
        try:
            for request in self._wire.buffer_updated(nbytes):
                self._handle(request, now)
            if self._wire.failure is not None:
                raise self._wire.failure
        except (Malformed, ConnectionAbortedError) as reason:
            log.warning("%s (%s) is closed: %s", self._peer.address, self._peer.software, reason)
            self._close_after_answers()
        self.send()
        self._shell.settle()

    def eof_received(self) -> bool:
        return False  # Nobody is there to read the rest.

    def pause_writing(self) -> None:
        self._outbox.pause()

    def resume_writing(self) -> None:
        self._outbox.resume()

    # The shell's side.

    def answer_parked(self, parked: Parked[Encoded]) -> None:
        request = self._parked.pop(parked, None)
        if request is not None:
            self._wire.answer(request, parked.then())

    def send(self) -> None:
        chunks = self._wire.data_to_send()
        if chunks:
            self._outbox.put(chunks)
        self._balance()

    def close(self) -> None:
        """Send what is ready, then close."""
        self._close_after_answers()

    def abort(self) -> None:
        self._transport.abort()

    def close_if_idle(self, steady_before: int) -> None:
        if self.last_active < steady_before and not self._parked:
            log.info("%s is closed: idle", self._peer.address)
            self.close()

    def _handle(self, request: Request, now: Moment) -> None:
        outcome = dispatch(self._shell.broker, self._peer, request, now)
        if not isinstance(outcome, Parked):
            self._wire.answer(request, outcome)
            return
        outcome.owner = self
        self._parked[outcome] = request
        self._shell.broker.lot.park(outcome)

    def _balance(self) -> None:
        """Read on, or not, by how far the peer is behind."""
        too_far = self._outbox.is_backed_up or self._wire.in_flight > REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX
        if too_far == self._is_reading_paused or self._is_closing:
            return
        self._is_reading_paused = too_far
        if too_far:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _close_after_answers(self) -> None:
        self._is_closing = True
        self._transport.pause_reading()
        self._outbox.put(self._wire.data_to_send())
        self._outbox.close_when_empty()


def _peer(transport: asyncio.Transport, listener: Listener) -> Peer:
    host, port = transport.get_extra_info("sockname")[:2]
    local = Endpoint(listener.name, host.removeprefix("::ffff:"), port)
    remote = transport.get_extra_info("peername")
    address = f"{remote[0]}:{remote[1]}" if remote else "unknown"
    return Peer(listener.name, local, listener.advertised, address)
