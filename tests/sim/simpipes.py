"""A client's connections to simulated brokers: pipelined requests in order, and responses in order.

    Pipe.send_request ──> in flight, after earlier requests ──> the broker ──> responses in order ──> the caller
                              └── lost: nothing arrives any more, until the first request times out

A connection closed by its client may still have requests in flight. The broker executes them, even after requests that
the client has sent since on other connections.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from odradek.base.units import BrokerId
from odradek.net.channels.channel_requests import RequestBuilder
from odradek.wire.client_codec import decode_response
from sim.simrequests import CLIENTS, TIMEOUT_US, Lines, Talk
from support.in_memory import frame_of

if TYPE_CHECKING:
    from sim.simreplicated import SimReplicated

T = TypeVar("T")

Then = Callable[[bytes | None], None]


class Pipe:
    """One connection; it ends with the process at its other end, or with the first request without a response."""

    def __init__(self, lines: Lines, receiver: SimReplicated) -> None:
        self._lines = lines
        self._receiver = receiver
        self._node = lines.clients
        self._life = receiver.node.life
        self._talk: Talk | None = None
        self._waiting: deque[Then] = deque()
        self._is_cut = not receiver.is_alive
        self._last_sent_us = self._last_answered_us = 0
        self.is_closed = False

    @property
    def broker(self) -> BrokerId:
        return self._receiver.id

    def send_request(self, builder: RequestBuilder[T], then: Callable[[T | None], None]) -> None:
        """Send a request after all earlier ones; `then` receives the response, or None."""
        assert not self.is_closed, "nobody asks on a connection that is closed"
        version = builder.latest_allowed
        frame = frame_of(builder.build(version), version, 1, "sim")

        def ended(answer: bytes | None) -> None:
            then(None if answer is None else decode_response(builder.response, version, answer)[1])

        self._waiting.append(ended)
        self._is_cut |= self._lines.loses(CLIENTS, self.broker)
        if not self._is_cut:
            self._last_sent_us = self._after(self._last_sent_us, lambda: self._arrived(frame))
        self._node.after(TIMEOUT_US, lambda: self._timed_out(ended))

    def _after(self, last_us: int, action: Callable[[], None]) -> int:
        """Schedule an arrival after a delay, not before earlier ones; return its time."""
        clock = self._node.clock
        time_us = max(last_us, clock.now_us + self._lines.delay_us())
        clock.at(time_us, action)
        return time_us

    def _arrived(self, frame: bytes) -> None:
        receiver = self._receiver
        if receiver.node.life != self._life or not receiver.is_alive:
            self._after(self._last_answered_us, self.close)  # The connection is reset as unknown.
        else:
            receiver.node.soon(lambda: self._serve(frame))

    def _serve(self, frame: bytes) -> None:
        server = self._receiver.server
        if self._talk is None:
            self._talk = server.connect(self._answer)
        server.receive(self._talk, frame)

    def _answer(self, answer: bytes) -> None:
        self._is_cut |= self._lines.loses(self.broker, CLIENTS)
        if not self._is_cut:
            self._last_answered_us = self._after(self._last_answered_us, lambda: self._answered(answer))

    def _answered(self, answer: bytes) -> None:
        if not self.is_closed:
            self._waiting.popleft()(answer)

    def _timed_out(self, ended: Then) -> None:
        if ended in self._waiting:
            self.close()

    def close(self) -> None:
        """End the connection; pending requests get no response."""
        self.is_closed = True
        while self._waiting:
            self._waiting.popleft()(None)
