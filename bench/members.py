"""Members of one group, each on a connection of its own, all in this process: what the classic protocol and KIP-848's
have in common.

A member has one request in flight.  One that has its share asks by heartbeat whether that still holds, every
HEARTBEAT_SECONDS while the group is not settled: clients do so every three or five seconds, which is then all that
would be measured.  Settled is a group when all its members have their share of one generation (or epoch), newer than
the last.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence

from load import LoadFailed

from odradek.wire.client_codec import decode_response, encode_request

HEARTBEAT_SECONDS = 0.05
SETTLED_SECONDS_MAX = 60
RECEIVE_BYTES = 1 << 16
REBALANCE_MS = 60_000
CORRELATION_ID = 7
CLIENT_ID = "bench"
NO_GENERATION = -1


class Channel:
    """A connection with one request in flight."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), SETTLED_SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self._awaited: tuple[type, int] | None = None

    @property
    def is_busy(self) -> bool:
        return self._awaited is not None

    def send(self, request: object, version: int, response: type) -> None:
        assert self._awaited is None, "one request in flight"
        self._awaited = response, version
        frame = b"".join(bytes(chunk) for chunk in encode_request(request, version, CORRELATION_ID, CLIENT_ID))  # type: ignore[arg-type]
        self.socket.sendall(frame)

    def receive(self) -> object | None:
        """The answer, once it is whole."""
        data = self.socket.recv(RECEIVE_BYTES)
        if not data:
            raise LoadFailed("the broker closed a member's connection")
        self._received += data
        if len(self._received) < 4 or len(self._received) < 4 + int.from_bytes(self._received[:4]):
            return None
        assert self._awaited is not None, "nothing comes unasked"
        (response, version), self._awaited = self._awaited, None
        frame, self._received = self._received[4:], b""
        return decode_response(response, version, frame)[1]


class Member:
    """The protocol is a subclass: what is sent, and what to do with each answer."""

    def __init__(self, group: Group, channel: Channel) -> None:
        self.group = group
        self.channel = channel
        self.generation = NO_GENERATION
        self.has_left = False

    def join(self) -> None:
        raise NotImplementedError

    def heartbeat(self) -> None:
        """Whether what it has still holds."""
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    def on_response(self, response: object) -> None:
        raise NotImplementedError

    def heartbeat_later(self) -> None:
        self.group.due_heartbeats.append((time.monotonic() + HEARTBEAT_SECONDS, self))

    def settle(self, generation: int) -> None:
        if generation != self.generation:
            self.group.settled_in[self.generation] -= 1
            self.group.settled_in[generation] += 1
            self.generation = generation

    def on_left(self) -> None:
        self.settle(NO_GENERATION)
        self.has_left = True


class Group:
    """`join`, `leave_together` any number of times, `close`; times are in seconds from the first request sent."""

    def __init__(self, name: str, channels: Sequence[Channel], make: Callable[[Group, Channel], Member]) -> None:
        self.name = name
        self.settled_in: Counter[int] = Counter()
        self.requests = 0
        self.due_heartbeats: deque[tuple[float, Member]] = deque()  # In the order of time: all wait equally long.
        self._selector = selectors.DefaultSelector()
        self._before = NO_GENERATION
        self._members = [make(self, channel) for channel in channels]
        for member in self._members:
            self._selector.register(member.channel.socket, selectors.EVENT_READ, member)

    def join(self) -> float:
        begun = time.monotonic()
        for member in self._members:
            member.join()
        return self._settle() - begun

    def leave_together(self, count: int) -> float:
        """Those who joined first leave; the others ask as soon as these are gone."""
        self._drain()
        leaving, self._members = self._members[:count], self._members[count:]
        begun = time.monotonic()
        self._leave(leaving)
        for member in self._members:
            member.heartbeat()
        return self._settle() - begun

    def close(self) -> None:
        self._drain()
        self._leave(self._members)
        self._selector.close()

    def is_fully_assigned(self) -> bool:
        """Whether shares of one generation are all that there is to have."""
        return True

    def _settle(self) -> float:
        """When the last member got its share."""
        self._run(self._is_settled)
        self._before = self._members[0].generation
        return time.monotonic()

    def _is_settled(self) -> bool:
        generation = self._members[0].generation
        is_complete = self.settled_in[generation] == len(self._members)
        return is_complete and generation > self._before and self.is_fully_assigned()

    def _drain(self) -> None:
        """No request in flight, and nobody about to ask."""
        self.due_heartbeats.clear()
        self._run(lambda: not any(member.channel.is_busy for member in self._members), sends_heartbeats=False)
        self.due_heartbeats.clear()

    def _leave(self, leaving: Sequence[Member]) -> None:
        for member in leaving:
            member.leave()
        self._run(lambda: all(member.has_left for member in leaving), sends_heartbeats=False)
        for member in leaving:
            self._selector.unregister(member.channel.socket)

    def _run(self, is_over: Callable[[], bool], *, sends_heartbeats: bool = True) -> None:
        deadline = time.monotonic() + SETTLED_SECONDS_MAX
        while not is_over():
            for key, _ in self._selector.select(HEARTBEAT_SECONDS / 10):
                response = key.data.channel.receive()
                if response is not None:
                    self.requests += 1
                    key.data.on_response(response)
            now = time.monotonic()
            while sends_heartbeats and self.due_heartbeats and self.due_heartbeats[0][0] <= now:
                self.due_heartbeats.popleft()[1].heartbeat()
            if now > deadline:
                raise LoadFailed(f"{self.name} did not settle: {dict(self.settled_in)}")
