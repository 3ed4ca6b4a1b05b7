"""Connection of one client, between asyncio's callbacks and its conversation.

There are no tasks or coroutines. Received bytes are parsed, dispatched and answered before the callback returns;
requests that cannot be answered yet are parked in the core. Reading pauses while the peer does not read its responses,
has too many requests waiting, or is muted, so a slow reader slows only itself.

One read may contain thousands of requests, and their responses may be a thousand times as large. A connection therefore
stops early when its turn is over or its responses take too much memory. It resumes in the next round of the loop or
when the peer has read. Waiting requests stay in the receive buffer, which is not modified while reading is paused.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Protocol, cast

from odradek.api.conversation import Conversation
from odradek.api.request import log_fields
from odradek.api.request.call import Peer
from odradek.api.request.outcome import StagedRequest
from odradek.base.limits import REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX, SEND_BUFFER_HIGH_BYTES
from odradek.base.units import SECOND_MS
from odradek.core.kernel.cluster_view import Endpoint
from odradek.core.kernel.moment import Moment
from odradek.net.clients.large_produce_intake import LEFT_BYTES_MIN, Intake, is_for_mover
from odradek.net.loop.group_commit import REQUESTS_MAX
from odradek.net.shell.outbox import outbox_of, principal_of
from odradek.net.shell.shell import Shell
from odradek.wire.budget import ReceiveBudget
from odradek.wire.connection import Connection
from odradek.wire.request import Request
from odradek.wire.schema.malformed import Malformed
from odradek.wire.schema.primitives import Buffer

log = logging.getLogger(__name__)

TURN_SECONDS = 0.01  # Longest time that a connection may keep the loop from others,
LONG_TURN_SECONDS = 0.002  # and for a request that takes many turns.
READ_BYTES_PER_TURN = 1024 * 1024  # Limit after which other connections have their turn,
SHARED_BYTES_PER_TURN = 128 * 1024  # if there are any: a follower's next fetch may be among their requests.


class ConnectionOwner(Protocol):
    """The part of a listener that its connections need, when they begin and when they end."""

    @property
    def shell(self) -> Shell: ...

    @property
    def name(self) -> str: ...

    @property
    def advertised(self) -> Endpoint | None: ...

    @property
    def request_bytes_max(self) -> int: ...

    @property
    def budget(self) -> ReceiveBudget: ...

    def on_connected(self, connection: ClientConnection, address: str) -> None:
        """Count a connection until `forget`."""

    def forget(self, connection: ClientConnection) -> None:
        """Release the place of a connection that has ended."""


class ClientConnection(asyncio.BufferedProtocol):
    """One accepted connection of one listener."""

    def __init__(self, listener: ConnectionOwner) -> None:
        self._listener = listener
        self._shell = listener.shell
        share = listener.budget.join(self._balance, self._drop_slow_peer)
        self._wire = Connection(listener.request_bytes_max, share=share)
        self._intake: Intake | None = None
        self._is_behind = False  # The peer was too far behind when the connection was last balanced.
        self._is_reading_paused = False
        self._read_in_turn = 0
        self._space_bytes = 0  # Size of the last read's buffer.
        self._has_read_enough = False  # Otherwise, the loop would read this socket as long as it has data.
        self._is_continuing = False
        self._unmute: asyncio.TimerHandle | None = None
        self._is_closing = False  # No more bytes are read or handled.
        self._has_left = False  # No more requests are answered.
        self._is_gathered = False  # Batches staged by this connection share a commit with other connections.
        self.last_active = 0

    # Callbacks from asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._outbox = outbox_of(self._transport, self._shell, self._balance)
        self._peer = _peer(self._transport, self._listener)
        self._conversation = Conversation(self._shell, self._peer, self._wire, self._follow_up)
        self.last_active = self._shell.now().steady
        self._listener.on_connected(self, self._peer.address.rpartition(":")[0])

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closing = self._has_left = True
        self._shell.active_connections.forget(self)
        self._drop_intake()
        if self._unmute is not None:
            self._unmute.cancel()
        self._conversation.leave()
        self._outbox.drop()
        self._listener.forget(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._is_gathered:
            self._shell.gathered.flush()  # The staged requests are in the buffer.
        space = self._wire.get_buffer(sizehint)
        self._space_bytes = len(space)
        return space

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_closing:
            return
        self._shell.traffic.bytes_in += nbytes
        # A read that does not fill its buffer has emptied the socket, and other connections have their turns. A limit
        # per turn must be reset with each turn. Counted over its life, every connection would be paused after sending 1
        # MiB, and a client with one request in flight would run at 0.6 times the rate.
        self._read_in_turn = self._read_in_turn + nbytes if nbytes == self._space_bytes else 0
        if self._read_in_turn > SHARED_BYTES_PER_TURN and not self._has_read_enough and self._has_used_its_turn():
            self._has_read_enough = True
            self._shell.soon(self._next_turn)
        requests = 0
        try:
            requests = self._conversation.received(nbytes)
            self._handle_requests()
            if self._wire.missing_bytes >= LEFT_BYTES_MIN:
                self._begin_intake()
        except Malformed as reason:
            self._close_with_warning(reason)
        except OSError:  # uvloop would close the connection silently.
            log.exception(
                "unexpected error on the connection of %s", self._peer.address, extra=log_fields.of_peer(self._peer)
            )
            self.abort()
        self._shell.settle()
        busy_poll = self._shell.busy_poll
        if busy_poll is not None and requests == 1 and self._has_all_answers():
            busy_poll.on_answered()

    def _has_used_its_turn(self) -> bool:
        return self._read_in_turn > READ_BYTES_PER_TURN or not self._shell.active_connections.is_one(self.last_active)

    def eof_received(self) -> bool:
        return False  # The peer does not read any more responses.

    # Calls from the shell.

    def stop_reading(self) -> None:
        """Stop handling requests, even those already received; requests already handled are still answered."""
        self._is_closing = True
        self._drop_intake()
        self._conversation.stop()
        self._transport.pause_reading()

    def close(self) -> None:
        """Send the responses that are ready, then close."""
        self._close_after_answers()

    def abort(self) -> None:
        self._drop_intake()
        self._outbox.drop()
        self._transport.abort()

    def close_if_idle(self, steady_before: int) -> None:
        if self._outbox.take_progress() or (self._intake is not None and self._intake.take_progress()):
            self.last_active = self._shell.now().steady
        elif self.last_active < steady_before and not self._conversation.is_waiting:
            log.info(
                "closed connection of %s: idle (connections.max.idle.ms)",
                self._peer.address,
                extra=log_fields.of_peer(self._peer),
            )
            if self._is_closing or self._outbox.is_backed_up:
                self.abort()  # The peer has not read for that long either.
            else:
                self.close()

    # Received requests and their handling.

    def _handle_requests(self) -> None:
        """Handle requests until none is left, the turn is over, or the peer is too far behind."""
        now, began = self._shell.now(), time.monotonic()
        self.last_active = now.steady
        shell, conversation = self._shell, self._conversation
        shell.active_connections.on_received(self, now.steady)
        if self._is_behind:
            self._outbox.check_transfer()
        if not self._is_behind:
            while conversation.step(now, began):
                spent = time.monotonic() - began
                if (
                    spent > (LONG_TURN_SECONDS if conversation.is_in_steps else TURN_SECONDS)
                    or self._is_too_far_behind()
                ):
                    break
            if self._has_only_staged() and self._shell.gathered.try_add(self, now, began):
                self._is_gathered = True
                return
            conversation.commit(now, began)
        self._end_turn()

    def commit(self, now: Moment, began: float) -> None:
        """Commit the staged batches and end the turn; called in a commit shared with other connections."""
        self._is_gathered = False
        try:
            self._conversation.commit(now, began)
            self._end_turn()
        except OSError:
            log.exception(
                "unexpected error on the connection of %s", self._peer.address, extra=log_fields.of_peer(self._peer)
            )
            self.abort()
        except Exception as error:  # The transport does the same with an error that escapes a turn.
            context = {
                "message": "failed to commit staged batches",
                "exception": error,
                "transport": self._transport,
                "protocol": self,
            }
            self._shell.loop.call_exception_handler(context)
            self.abort()

    def _has_only_staged(self) -> bool:
        """Return whether only the commit is left in this turn, and reading on does not depend on it."""
        conversation, wire = self._conversation, self._wire
        if not 0 < conversation.staged <= REQUESTS_MAX or conversation.has_unhandled or conversation.ending is not None:
            return False
        return wire.failure is None and not wire.missing_bytes

    def _end_turn(self) -> None:
        conversation = self._conversation
        if not conversation.has_unhandled:
            self._wire.mark_requests_handled()
            if self._wire.failure is not None and conversation.ending is None:
                self._close_with_warning(self._wire.failure)
        self._follow_up()

    def _is_too_far_behind(self) -> bool:
        return self._outbox.is_backed_up or self._conversation.is_too_far_ahead(
            REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX, SEND_BUFFER_HIGH_BYTES
        )

    def _has_all_answers(self) -> bool:
        """Return whether the peer has the responses to all its requests."""
        return not self._wire.in_flight and not self._outbox.is_backed_up and not self._is_closing

    def _balance(self) -> None:
        """Pause or resume reading, depending on how far the peer is behind."""
        if self._is_closing:
            return
        too_far = self._is_behind = self._is_too_far_behind()
        has_unhandled = self._conversation.has_unhandled
        if has_unhandled and not too_far and not self._is_continuing:
            self._continue_soon()
        has_enough = self._has_read_enough or self._intake is not None or self._unmute is not None
        # Reading continues for a peer that is behind but sends no more requests: a pause costs as much as a small
        # request.
        is_paused = has_unhandled or has_enough or self._wire.is_starved
        if is_paused == self._is_reading_paused:
            return
        self._is_reading_paused = is_paused
        if is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _continue_soon(self) -> None:
        if self._conversation.can_continue(self._shell.now()):
            self._is_continuing = True
            if self._conversation.is_in_steps:
                self._shell.long_turns.wait(self._continue)
            else:
                self._shell.loop.call_soon(self._continue)

    def _next_turn(self) -> None:
        self._read_in_turn = 0
        self._has_read_enough = False
        self._balance()

    def _follow_up(self) -> None:
        """Send responses that are ready, and apply the new state: an ending, a mute, or more work."""
        conversation = self._conversation
        if conversation.ending is not None and not self._has_left:
            self._end()
            return
        chunks = conversation.data_to_send()
        if chunks:
            self._outbox.must_yield = not self._peer.is_follower
            self._outbox.put(chunks)
        if self._is_closing:
            return
        self._balance()
        if conversation.mute_until and self._unmute is None:
            self._mute(conversation.mute_until - self._shell.now().steady)

    def _continue(self) -> None:
        self._is_continuing = False
        if not self._is_closing:
            self._handle_requests()
            self._shell.settle()

    def _mute(self, milliseconds: int) -> None:
        """Stop reading and handling requests for this time."""
        self._unmute = self._shell.loop.call_later(milliseconds / SECOND_MS, self._unmuted)
        self._balance()

    def _unmuted(self) -> None:
        self._unmute = None
        left = self._conversation.mute_until - self._shell.now().steady
        if left > 0 and not self._is_closing:  # The timer's clock is finer than the shell's.
            self._mute(left)
        else:
            self._balance()

    # Large produce requests (net/clients/large_produce_intake.py).

    def _begin_intake(self) -> None:
        """Let a mover receive the rest of a partly received request if it is a large produce."""
        self._shell.gathered.flush()  # A log with a staged batch cannot begin a streaming append.
        if self._is_closing or self._is_too_far_behind():
            return
        if not is_for_mover(self._shell, self._wire.missing_bytes, self.last_active):
            return
        if not self._outbox.is_bare:
            return  # The records must be decrypted.
        large = self._conversation.begin_large(self._shell.now())
        if large is not None:
            descriptor = self._transport.get_extra_info("socket").fileno()
            self._intake = Intake.start_intake(self._shell, self._conversation, large, descriptor, self)
            self._balance()

    def intake_done(self, request: Request, outcome: StagedRequest) -> None:
        self._intake = None
        now, began = self._shell.now(), time.monotonic()
        self.last_active = now.steady
        self._conversation.on_large_received(request, outcome, now, began)
        self._follow_up()
        self._shell.settle()

    def intake_handed_back(self, parts: tuple[Buffer, ...], size: int) -> None:
        self._intake = None
        self._conversation.hand_back(parts, size)
        self._balance()

    def intake_lost(self) -> None:
        self._intake = None
        self.abort()

    def _drop_intake(self) -> None:
        if self._intake is not None:
            self._intake.drop()
            self._intake = None

    # End of the connection.

    def _drop_slow_peer(self) -> None:
        """Abort the connection: it occupies memory that others need, and its peer sends almost nothing."""
        peer = self._peer
        log.warning(
            "closed connection of %s: it reads too slowly, and other connections need its memory",
            peer.address,
            extra=log_fields.of_peer(peer),
        )
        self.abort()

    def _end(self) -> None:
        """Close the connection when its conversation has ended."""
        ending = self._conversation.ending
        assert ending is not None
        if ending.is_broken:
            self.abort()
        else:
            self._close_with_warning(ending.reason, ending.request)

    def _close_with_warning(self, reason: Exception, request: Request | None = None) -> None:
        peer = self._peer
        fields = log_fields.of_peer(peer) if request is None else log_fields.of_request(peer, request)
        log.warning("closed connection of %s (%s): %s", peer.address, peer.software, reason, extra=fields)
        self._close_after_answers()

    def _close_after_answers(self) -> None:
        if self._has_left:
            return
        self._has_left = True
        self.stop_reading()
        self._outbox.put(self._conversation.leave())
        self._outbox.close_when_empty()


def _peer(transport: asyncio.Transport, listener: ConnectionOwner) -> Peer:
    advertised = listener.advertised
    # The local address matters only for a listener on all interfaces.
    local = _local(transport, listener) if advertised is None else advertised
    remote = transport.get_extra_info("peername")
    address = f"{remote[0]}:{remote[1]}" if remote else "unknown"
    return Peer(listener.name, local, advertised, address, principal_of(transport))


def _local(transport: asyncio.Transport, listener: ConnectionOwner) -> Endpoint:
    host, port = transport.get_extra_info("sockname")[:2]
    return Endpoint(listener.name, host.removeprefix("::ffff:"), port)
