"""One client's connection: asyncio's callbacks on one side, sans-I/O parsing and dispatch on the other.

No task and no coroutine: bytes that arrive are parsed, dispatched and answered before the callback returns, and what
can't be answered yet is parked in the core.  Reading pauses while the peer does not take its answers, or has too many
requests waiting, so a slow reader slows only itself.

One read may bring thousands of requests, and their answers may be a thousand times as large.  So a connection stops in
the middle when its turn is over or its answers take too much memory, and goes on when the loop comes round again or the
peer has read.  The requests that wait lie in the receive buffer, which nobody touches while reading is paused.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, cast

from odradek.api import log_fields
from odradek.api.call import Peer
from odradek.api.outcome import Encoded, Staged
from odradek.base.limits import REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX, SEND_BUFFER_HIGH_BYTES
from odradek.core.cluster import Endpoint
from odradek.core.moment import Moment
from odradek.core.parked import Parked
from odradek.net.intake import LEFT_BYTES_MIN, Intake
from odradek.net.outbox import Outbox
from odradek.wire.connection import Connection
from odradek.wire.errors import Malformed
from odradek.wire.primitives import Chunk
from odradek.wire.request import Request

if TYPE_CHECKING:
    from odradek.net.listener import Listener

log = logging.getLogger(__name__)

NOBODY = Connection(buffer_bytes=0)
TURN_SECONDS = 0.01  # How long one connection may keep the loop from the others.
READ_BYTES_PER_TURN = 1024 * 1024  # Then it is the other connections' turn.
STAGED_PER_CHECK = 16


class ClientConnection(asyncio.BufferedProtocol):
    """One accepted connection on one listener."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._shell = listener.shell
        share = listener.budget.join(self._balance, self._is_too_slow)
        self._wire = Connection(listener.request_bytes_max, share=share)
        self._parked: dict[Parked[Encoded], tuple[Request, float]] = {}  # With when each came.
        self._unhandled: deque[Request] = deque()
        self._staged: list[tuple[Request, Staged]] = []
        self._intake: Intake | None = None
        self._asked_for_intake = -1  # About the request with that sequence.
        self._held_bytes = 0  # Of answers that were made and have not gone to the outbox.
        self._is_behind = False  # The peer, and too far, when that was last balanced.
        self._is_reading_paused = False
        self._read_in_turn = 0
        self._has_read_enough = False  # The loop would read on from this socket while there is something in it.
        self._is_going_on = False
        self._is_closing = False
        self.last_active = 0

    # asyncio's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._outbox = Outbox(self._transport, self._shell, self._balance)
        self._peer = _peer(self._transport, self._listener)
        self.last_active = self._shell.now().steady
        if self._listener.admit(self, self._peer.address.rpartition(":")[0]):
            self._shell.traffic.connections_accepted += 1
        else:
            self._shell.traffic.connections_refused += 1
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closing = True
        self._drop_intake()
        self._unhandled.clear()
        self._wire.leave()
        self._wire = NOBODY
        self._outbox.drop()
        self._listener.forget(self)
        for parked in self._parked:
            self._shell.broker.lot.forget(parked)
        self._parked.clear()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._wire.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_closing:
            return
        self._shell.traffic.bytes_in += nbytes
        self._read_in_turn += nbytes
        if self._read_in_turn > READ_BYTES_PER_TURN and not self._has_read_enough:
            self._has_read_enough = True
            self._shell.soon(self._next_turn)
        requests: list[Request] = []
        try:
            requests = self._wire.buffer_updated(nbytes)
            self._unhandled.extend(requests)
            self._work()
            if self._wire.missing_bytes >= LEFT_BYTES_MIN:
                self._begin_intake()
        except Malformed as reason:
            self._give_up(reason)
        except OSError:  # uvloop would close the connection without a word.
            log.exception("the connection of %s failed here", self._peer.address, extra=log_fields.of_peer(self._peer))
            self.abort()
        self._shell.settle()
        busy_poll = self._shell.busy_poll
        if busy_poll is not None and len(requests) == 1 and self._has_all_answers():
            busy_poll.answered()

    def eof_received(self) -> bool:
        return False  # Nobody is there to read the rest.

    # The shell's side.

    def answer_parked(self, parked: Parked[Encoded]) -> None:
        waiting = self._parked.pop(parked, None)
        if waiting is None:
            return
        request, began = waiting
        try:
            self._handled(request, parked.then(), began)
        except AssertionError:
            raise
        except Exception:
            self._failed(request)

    def send(self) -> None:
        chunks = self._wire.data_to_send()
        if chunks:
            # Only what waits for a parked answer stays.
            self._held_bytes = self._held_bytes - _in_memory(chunks) if self._parked else 0
            self._outbox.put(chunks)
        self._balance()

    def close(self) -> None:
        """Send what is ready, then close."""
        self._close_after_answers()

    def abort(self) -> None:
        self._drop_intake()
        self._outbox.drop()
        self._transport.abort()

    def close_if_idle(self, steady_before: int) -> None:
        if self._outbox.has_moved() or (self._intake is not None and self._intake.has_moved()):
            self.last_active = self._shell.now().steady
        elif self.last_active < steady_before and not self._parked:
            log.info("%s is closed: idle", self._peer.address, extra=log_fields.of_peer(self._peer))
            if self._is_closing or self._outbox.is_backed_up:
                self.abort()  # It has not read for as long.
            else:
                self.close()

    # What was received, and what becomes of it.

    def _work(self) -> None:
        """One turn: handle requests until there are no more, the time is over, or the peer is too far behind."""
        now, began = self._shell.now(), time.monotonic()
        self.last_active = now.steady
        if self._is_behind:
            self._outbox.look()
        if not self._is_behind:
            self._handle_requests(now, began)
        if not self._unhandled:
            self._wire.all_looked_at()
        if self._wire.failure is not None and not self._unhandled and not self._is_closing:
            self._give_up(self._wire.failure)
        self.send()

    def _handle_requests(self, now: Moment, began: float) -> None:
        shell, peer, unhandled, staged = self._shell, self._peer, self._unhandled, self._staged
        end = began + TURN_SECONDS
        while unhandled:
            request = unhandled.popleft()
            try:
                outcome = shell.dispatch(shell.broker, peer, request, now)
            except (Malformed, ConnectionAbortedError) as reason:
                self._finish_staged(now, began)
                self._give_up(reason, request)
                return
            if isinstance(outcome, Staged):
                staged.append((request, outcome))
                if len(staged) % STAGED_PER_CHECK:
                    continue  # They are quick.
            else:
                self._handled(request, outcome, began)
            if time.monotonic() > end or self._is_too_far_behind():
                break
        self._finish_staged(now, began)

    def _finish_staged(self, now: Moment, began: float) -> None:
        """What was staged is written, and then it can be answered."""
        if not self._staged:
            return
        staged, self._staged = self._staged, []
        self._shell.broker.commit(now)
        for request, one in staged:
            try:
                outcome = one.finish()
            except ConnectionAbortedError as reason:
                self._give_up(reason, request)
                return
            except AssertionError:
                raise
            except Exception:
                self._failed(request)
                return
            self._handled(request, outcome, began)

    def _failed(self, request: Request) -> None:
        """A bug of ours, after the request had waited: nothing to answer it with, and the next answers wait for it."""
        fields = log_fields.of_request(self._peer, request)
        log.exception("%r from %s failed here after it had waited", request, self._peer.address, extra=fields)
        self.abort()

    def _handled(self, request: Request, outcome: Encoded | Parked[Encoded], began: float) -> None:
        if isinstance(outcome, Parked):
            outcome.owner = self
            self._parked[outcome] = request, began
            self._shell.broker.lot.park(outcome)
        else:
            if outcome is not None:
                self._held_bytes += _in_memory(outcome)
            self._wire.answer(request, outcome)
            self._shell.traffic.answered(request.api_key, request.api_version, time.monotonic() - began)

    def _is_too_far_behind(self) -> bool:
        return (
            self._outbox.is_backed_up
            or self._held_bytes > SEND_BUFFER_HIGH_BYTES
            or self._wire.in_flight - len(self._unhandled) > REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX
        )

    def _has_all_answers(self) -> bool:
        """The peer has, for all it has asked."""
        return not self._wire.in_flight and not self._outbox.is_backed_up and not self._is_closing

    def _balance(self) -> None:
        """Read on, or not, by how far the peer is behind."""
        if self._is_closing:
            return
        too_far = self._is_behind = self._is_too_far_behind()
        if self._unhandled and not too_far and not self._is_going_on:
            self._is_going_on = True
            self._shell.loop.call_soon(self._go_on)
        has_enough = self._has_read_enough or self._intake is not None
        # A peer that is behind and asks for nothing more is read from: pausing costs as much as a small request.
        is_paused = bool(self._unhandled) or has_enough or self._wire.is_starved
        if is_paused == self._is_reading_paused:
            return
        self._is_reading_paused = is_paused
        if is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _next_turn(self) -> None:
        self._read_in_turn = 0
        self._has_read_enough = False
        self._balance()

    def _go_on(self) -> None:
        self._is_going_on = False
        if not self._is_closing:
            self._work()
            self._shell.settle()

    # Large produce requests (intake.py).

    def _begin_intake(self) -> None:
        """Let a mover receive the rest of the request of which the front is there, if it is one of those."""
        if self._unhandled or self._is_closing or self._is_too_far_behind() or not self._shell.movers.can_store:
            return
        request = self._wire.front()
        if request is None or request.sequence == self._asked_for_intake:
            return
        self._asked_for_intake = request.sequence
        descriptor = self._transport.get_extra_info("socket").fileno()
        self._intake = Intake.begin(self._shell, self._wire, self._peer, request, descriptor, self)
        self._balance()

    def intake_done(self, request: Request, outcome: Staged) -> None:
        self._intake = None
        now, began = self._shell.now(), time.monotonic()
        self.last_active = now.steady
        self._staged.append((request, outcome))
        self._finish_staged(now, began)
        self.send()
        self._shell.settle()

    def intake_handed_back(self, requests: list[Request]) -> None:
        self._intake = None
        self._unhandled.extend(requests)
        self._balance()

    def intake_lost(self) -> None:
        self._intake = None
        self.abort()

    def _drop_intake(self) -> None:
        if self._intake is not None:
            self._intake.drop()
            self._intake = None

    def _is_too_slow(self) -> None:
        """It holds memory that others wait for, and brings next to nothing."""
        peer = self._peer
        log.warning("%s is closed: slow, and others wait for its memory", peer.address, extra=log_fields.of_peer(peer))
        self.abort()

    def _give_up(self, reason: Exception, request: Request | None = None) -> None:
        peer = self._peer
        fields = log_fields.of_peer(peer) if request is None else log_fields.of_request(peer, request)
        log.warning("%s (%s) is closed: %s", peer.address, peer.software, reason, extra=fields)
        self._close_after_answers()

    def _close_after_answers(self) -> None:
        self._is_closing = True
        self._drop_intake()
        self._unhandled.clear()
        self._transport.pause_reading()
        self._wire.leave()
        self._outbox.put(self._wire.data_to_send())
        self._outbox.close_when_empty()


def _in_memory(chunks: list[Chunk]) -> int:
    size = 0
    for chunk in chunks:
        if isinstance(chunk, bytes):
            size += len(chunk)
    return size


def _peer(transport: asyncio.Transport, listener: Listener) -> Peer:
    host, port = transport.get_extra_info("sockname")[:2]
    local = Endpoint(listener.name, host.removeprefix("::ffff:"), port)
    remote = transport.get_extra_info("peername")
    address = f"{remote[0]}:{remote[1]}" if remote else "unknown"
    return Peer(listener.name, local, listener.advertised, address)
