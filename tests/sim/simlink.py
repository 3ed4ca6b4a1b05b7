"""A client's connection to one broker, without I/O: requests are sent in order, and responses arrive in order.

As in Kafka's clients, a request without a response in time ends the connection, together with all pending requests:
each receives None, since its outcome is unknown. The next request reconnects after a pause.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, NamedTuple, TypeVar

from odradek.wire.client_codec import decode_response, encode_request
from sim.simclock import MILLISECOND_US, SECOND_US, SimNode, Timer
from sim.simnet import SimNetwork
from sim.simsocket import SimSocket

REQUEST_TIMEOUT_US = 8 * SECOND_US
PAUSE_US = (20 * MILLISECOND_US, 600 * MILLISECOND_US)

Answer = TypeVar("Answer")


class Waiting(NamedTuple):
    """A request that was sent, or will be once there is a connection."""

    correlation: int
    version: int
    answer: type
    then: Callable[[Any], None]
    timeout: Timer


class SimLink:
    """A connection; `client` is the client id. After `leave`, no callback is called."""

    def __init__(
        self, node: SimNode, network: SimNetwork, random: Random, address: tuple[str, int], client: str
    ) -> None:
        self.node = node
        self.client = client
        self.timeouts = 0
        self._network = network
        self._random = random
        self._host, self._port = address
        self._socket: SimSocket | None = None
        self._out = bytearray()
        self._in = bytearray()
        self._waiting: deque[Waiting] = deque()
        self._correlation = 0
        self._pauses = False
        self._begins_with_pause = False

    @property
    def is_free(self) -> bool:
        """Return True if no other request precedes a new one."""
        return not self._waiting

    def send_request(
        self,
        message: object,
        version: int,
        answer: type[Answer],
        then: Callable[[Answer | None], None],
        timeout_us: int = REQUEST_TIMEOUT_US,
    ) -> None:
        """Send a request; `then` receives the response, or None if there will be none."""
        self._correlation += 1
        chunks = encode_request(message, version, self._correlation, self.client)
        self._out += b"".join(bytes(chunk) for chunk in chunks)  # type: ignore[arg-type]
        timeout = self.node.after(timeout_us, self._timed_out)
        self._waiting.append(Waiting(self._correlation, version, answer, then, timeout))
        if self._socket is None:
            self._connect()
        else:
            self._write()

    def _connect(self) -> None:
        if self._begins_with_pause:
            if not self._pauses:
                self._pauses = True
                self.node.after(self._random.randrange(*PAUSE_US), self._pause_over)
            return
        socket = self._socket = self._network.connect(self.node, self._host, self._port)
        socket.on_open = self._write
        socket.on_writable = self._write
        socket.on_readable = self._read
        socket.on_closed = partial(self._closed, socket)

    def _pause_over(self) -> None:
        self._pauses = self._begins_with_pause = False
        if self._waiting and self._socket is None:
            self._connect()

    def _write(self) -> None:
        if self._socket is not None and self._out:
            taken = self._socket.write(bytes(self._out))
            del self._out[:taken]

    def _read(self) -> None:
        assert self._socket is not None
        self._in += self._socket.read(1 << 20)
        while len(self._in) >= 4:
            size = int.from_bytes(self._in[:4])
            if len(self._in) < 4 + size:
                return
            frame = bytes(self._in[4 : 4 + size])
            del self._in[: 4 + size]
            self._answered(frame)

    def _answered(self, frame: bytes) -> None:
        assert self._waiting, f"{self.client} was answered what it had not asked"
        waiting = self._waiting.popleft()
        waiting.timeout.cancel()
        answer: object
        correlation, answer = decode_response(waiting.answer, waiting.version, frame)
        assert correlation == waiting.correlation, f"{self.client}: answers come in the order of their requests"
        waiting.then(answer)

    def _timed_out(self) -> None:
        self.timeouts += 1
        self.drop()

    def _closed(self, socket: SimSocket, reason: str) -> None:
        if socket is self._socket:
            self.drop()

    def drop(self) -> None:
        """End the connection; pending requests get no response."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._begins_with_pause = True
        self._out.clear()
        self._in.clear()
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            one.timeout.cancel()
        for one in waiting:
            one.then(None)

    def leave(self) -> None:
        """End the connection because the client is gone."""
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            one.timeout.cancel()
        self.drop()
