"""One end of a simulated connection: data written and read by a process, and the buffers of its kernel.

    write ──> in flight, in pieces ──> arrived, unread ──> read
              └────────── at most one buffer ──────────┘

A reader that does not read stops the writer: `write` takes no more than there is space for, and `on_writable` is called
when there is space again. Callbacks run in turns of the process's loop; after the process has ended, none runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING

from sim.simclock import Action, SimNode

if TYPE_CHECKING:
    from sim.simnet import SimNetwork

BUFFER_BYTES = (2_000, 20_000, 200_000)


class SimSocket:
    """One end of a connection; `on_closed` receives "closed" (by the peer), "reset", "refused" or "timed out"."""

    def __init__(self, network: SimNetwork, node: SimNode, number: int, peer_name: str) -> None:
        self.node = node
        self.number = number
        self.peer_name = peer_name
        self.peer: SimSocket | None = None
        self.is_open = False
        self.is_over = False  # Neither readable nor writable any more.
        self.on_open: Action = _nothing
        self.on_readable: Action = _nothing
        self.on_writable: Action = _nothing
        self.on_closed: Callable[[str], None] = _no_reason
        self._network = network
        self._buffer_bytes = network.random.choice(BUFFER_BYTES)
        self._under_way: deque[bytes] = deque()  # In flight from here.
        self._taken_bytes = 0  # Sent from here, unread there.
        self._is_blocked = False
        self._arrived = bytearray()
        self._has_notified = False  # Data can be read.
        self._end = ""  # The peer has closed; reported once all data is read.

    def join(self, peer: SimSocket) -> None:
        """Open the accepted end of a connection."""
        self.peer, peer.peer = peer, self
        self.is_open = True

    # The process's side.

    def write(self, data: bytes) -> int:
        """Write as many bytes as there is space for."""
        if not self.is_open or self.is_over:
            return 0
        taken = data[: self._buffer_bytes - self._taken_bytes]
        self._is_blocked = len(taken) < len(data)
        if taken:
            self._taken_bytes += len(taken)
            self._network.was_sent(self, taken)
            for piece in pieces(taken, self._network.random):
                self._under_way.append(piece)
                self._carry(self._piece_arrives)
        return len(taken)

    def read(self, size_max: int) -> bytes:
        data = bytes(self._arrived[:size_max])
        del self._arrived[:size_max]
        peer = self.peer
        if data and peer is not None:
            self._carry(lambda: peer.was_read(len(data)))
        if self._end and not self._arrived:
            self._on_closed(self._end)
        return data

    @property
    def readable_bytes(self) -> int:
        return len(self._arrived)

    def close(self) -> None:
        """Close this end; written data still arrives, and then the end of the stream.

        If unread bytes remain, the kernel resets the connection instead.
        """
        if self.is_over:
            return
        reason = "reset" if self._arrived else "closed"
        self.vanish()
        peer = self.peer
        if peer is not None:
            self._carry(lambda: peer.was_closed(reason))

    def vanish(self) -> None:
        """Drop the connection without any notification."""
        self.is_over, self.is_open = True, False
        self._arrived.clear()
        self._network.sockets.pop(self, None)

    # The network's side.

    def _carry(self, arrive: Action) -> None:
        self._network.link(self.node.name, self.peer_name).carry(arrive)

    def was_opened(self) -> None:
        if not self.is_over:
            self.is_open = True
            self._call(self.on_open)

    def _piece_arrives(self) -> None:
        piece = self._under_way.popleft() if self._under_way else b""
        peer = self.peer
        if peer is None or not piece:
            return
        if peer.is_over:
            if peer.node.is_up:  # The kernel does not know the connection.
                peer._carry(lambda: self.was_closed("reset"))
            return
        peer._arrived += piece
        peer.notify_readable()

    def notify_readable(self) -> None:
        if not self._has_notified:
            self._has_notified = True
            self._call(self._readable)

    def _readable(self) -> None:
        self._has_notified = False
        if self._arrived:
            self.on_readable()

    def was_read(self, size: int) -> None:
        self._taken_bytes -= size
        if self._is_blocked and not self.is_over:
            self._is_blocked = False
            self._call(self.on_writable)

    def was_closed(self, reason: str) -> None:
        if self.is_over:
            return
        if reason == "closed" and self._arrived:
            self._end = reason
            return
        self._on_closed(reason)

    def _on_closed(self, reason: str) -> None:
        was_over = self.is_over
        self.vanish()
        if not was_over:
            self.node.soon(lambda: self.on_closed(reason))

    def lose_last_bytes(self) -> None:
        """Let only some of the first bytes in flight from here arrive."""
        data = b"".join(self._under_way)
        self._under_way.clear()
        kept = data[: self._network.random.randrange(len(data) + 1)]
        if kept and self.peer is not None and not self.peer.is_over:
            self.peer._arrived += kept
            self.peer.notify_readable()

    def _call(self, action: Action) -> None:
        self.node.soon(lambda: None if self.is_over else action())


def pieces(data: bytes, random: Random) -> Iterable[bytes]:
    """Return the same bytes split anywhere, since no receiver may depend on the split."""
    if len(data) < 2 or random.random() < 0.7:
        return (data,)
    cuts = sorted(random.randrange(1, len(data)) for _ in range(random.randrange(1, 4)))
    return [data[start:end] for start, end in zip((0, *cuts), (*cuts, len(data)), strict=True) if start < end]


def _nothing() -> None:
    """Ignore an event without a listener."""


def _no_reason(reason: str) -> None:
    """Ignore a close without a listener."""
