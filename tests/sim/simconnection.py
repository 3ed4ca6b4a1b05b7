"""The broker's side of a simulated connection, like net/clients/client_connection with asyncio's transports.

Reading pauses while received requests wait, while the peer does not read its responses, or while the connection is
muted. A turn ends after a number of steps from the seed, where the real connection checks a clock.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from odradek.api.conversation import Conversation
from odradek.api.request.call import Peer
from odradek.base.limits import REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX, SEND_BUFFER_HIGH_BYTES
from odradek.core.kernel.cluster_view import Endpoint
from odradek.log.files.disk import DiskFailed, FileSlice
from odradek.wire.connection import Connection
from odradek.wire.schema.malformed import Malformed
from odradek.wire.schema.primitives import Chunk
from sim.simclock import MILLISECOND_US
from sim.simsocket import SimSocket

if TYPE_CHECKING:
    from sim.simshell import SimShell

STEPS_PER_TURN = (1, 2, 8, 64)
READ_BYTES = (100, 4_096, 65_536)
BACKED_UP_BYTES = 64 * 1024


class SimConnection:
    """One accepted connection."""

    def __init__(self, shell: SimShell, socket: SimSocket, endpoint: Endpoint) -> None:
        self._shell = shell
        self._socket = socket
        self._outbox: deque[Chunk] = deque()
        self._out_bytes = 0
        self._will_continue = self._is_gathered = False
        self._is_closing = self._has_left = False
        self._has_unmute = False
        peer = Peer(endpoint.listener, endpoint, endpoint, f"{socket.peer_name}:{40_000 + socket.number}")
        self.talk = Conversation(shell, peer, Connection(), self.continue_reading)
        socket.on_readable = self._readable
        socket.on_writable = self._writable
        socket.on_closed = lambda reason: self.lost()
        if socket.readable_bytes:
            self._readable()

    # The socket's side.

    def _readable(self) -> None:
        """Read as much as allowed, and handle it."""
        if self._is_closing or self._is_reading_paused():
            return
        if self._is_gathered:
            self._shell.flush_gathered()  # The staged records are in the buffer.
        data = self._socket.read(self._shell.random.choice(READ_BYTES))
        if not data:
            return
        try:
            self.talk.receive_data(data)
            self._work()
        except Malformed:
            self._close_after_answers()
        self._shell.settle()
        if self._socket.readable_bytes:
            self._shell.soon(self._readable)

    def _is_reading_paused(self) -> bool:
        return self.talk.has_unhandled or self._has_large_backlog() or self._has_unmute

    def lost(self) -> None:
        """Handle the loss of the connection."""
        self._is_closing = self._has_left = True
        self.talk.leave()
        self._outbox.clear()
        self._shell.forget(self)

    def _writable(self) -> None:
        self._send()
        self._balance()

    # Work.

    def _work(self) -> None:
        """Run one turn."""
        now, talk = self._shell.now(), self.talk
        for _ in range(self._shell.random.choice(STEPS_PER_TURN)):
            if self._has_large_backlog() or not talk.step(now, 0):
                break
        if talk.staged and not talk.has_unhandled and talk.ending is None and self._shell.gathers(self):
            self._is_gathered = True
            return
        talk.commit(now, 0)
        self._end_turn()

    def commit(self) -> None:
        """End a turn whose requests are written together with those of other connections."""
        self._is_gathered = False
        self.talk.commit(self._shell.now(), 0)
        self._end_turn()

    def _end_turn(self) -> None:
        talk = self.talk
        if not talk.has_unhandled:
            talk.wire.mark_requests_handled()
            if talk.wire.failure is not None and talk.ending is None:
                self._close_after_answers()
        self.continue_reading()

    def _has_large_backlog(self) -> bool:
        requests_max, bytes_max = REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX, SEND_BUFFER_HIGH_BYTES
        return self._out_bytes > BACKED_UP_BYTES or self.talk.is_too_far_ahead(requests_max, bytes_max)

    def continue_reading(self) -> None:
        """Continue after a change of the conversation: new responses, its end, or the end of a wait."""
        talk = self.talk
        if talk.ending is not None and not self._has_left:
            assert not talk.ending.is_broken, f"a handler failed: {talk.ending.reason!r}"
            self._close_after_answers()
            return
        self._put(talk.data_to_send())
        if not self._is_closing:
            self._balance()

    def _balance(self) -> None:
        """Continue with received data, unless the peer is behind or the connection is muted."""
        if self._is_closing:
            return
        talk, now = self.talk, self._shell.now()
        if talk.mute_until > now.steady and not self._has_unmute:
            self._has_unmute = True
            self._shell.after((talk.mute_until - now.steady) * MILLISECOND_US, self._unmuted)
        if talk.can_continue(now) and not self._has_large_backlog() and not self._will_continue:
            self._will_continue = True
            self._shell.soon(self._continue)
        elif self._socket.readable_bytes and not self._is_reading_paused():
            self._socket.notify_readable()

    def _unmuted(self) -> None:
        self._has_unmute = False
        self._balance()

    def _continue(self) -> None:
        self._will_continue = False
        if not self._is_closing:
            self._work()
            self._shell.settle()

    # Answers.

    def _put(self, chunks: list[Chunk]) -> None:
        for chunk in chunks:
            self._outbox.append(chunk)
            self._out_bytes += chunk.size if isinstance(chunk, FileSlice) else len(chunk)  # type: ignore[arg-type]
        self._send()

    def _send(self) -> None:
        """Send as much as the socket accepts; a slice of a file is read at its turn, like sendfile does."""
        while self._outbox:
            chunk = self._outbox[0]
            try:
                data = self._shell.read_slice(chunk) if isinstance(chunk, FileSlice) else bytes(chunk)  # type: ignore[arg-type]
            except DiskFailed as failed:
                self._take_offline(str(failed.filename))
                self._abort()
                return
            taken = self._socket.write(data)
            self._out_bytes -= taken
            if taken < len(data):
                self._outbox[0] = data[taken:]
                return
            self._outbox.popleft()
        if self._has_left and not self._socket.is_over:
            self._socket.close()
            self._shell.forget(self)

    def _take_offline(self, path: str) -> None:
        """Take the partition offline whose file cannot be read, and wake its parked requests."""
        broker, directory = self._shell.broker, path.rpartition("/")[0]
        for name, partition in broker.partitions.items():
            if partition.is_online and partition.log.directory == directory:
                partition.take_offline()
                broker.purgatory.happened(name)
                self._shell.soon(self._shell.settle)

    # The end.

    def stop_reading(self) -> None:
        """Stop handling requests; the handled ones are still answered."""
        self._is_closing = True
        self.talk.stop()

    def close(self) -> None:
        self._close_after_answers()

    def _abort(self) -> None:
        self._socket.close()
        self.lost()

    def _close_after_answers(self) -> None:
        if not self._has_left:
            self._has_left = True
            self.stop_reading()
            self._put(self.talk.leave())
