"""Groups without members that commit one offset each, once a second, spread over a few connections.

Each has a moment of its own in its thousandth of the second: at even distances they would all meet another schedule's
records, or none of them.
"""

from __future__ import annotations

import random
import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from frames_commit import Commit, answer_layout
from load import Gate, LoadFailed, Report, Work

BROKER_SECONDS_MAX = 30
RECEIVE_BYTES = 1 << 16


@dataclass
class Plan:
    """`groups` is a multiple of `connections`, so that each group stays on one."""

    port: int
    topic: str
    groups: Sequence[str]
    connections: int
    warmup_seconds: float
    seconds: float

    def work(self) -> Work:
        return self._run

    def _run(self, gate: Gate) -> Report:
        committers = _Committers(self)
        committers.as_fast_as_they_go(self.warmup_seconds)
        gate.wait()
        begun, cpu = time.monotonic(), time.process_time()
        latencies = committers.once_a_second(self.seconds)
        return Report(
            begun=begun,
            ended=time.monotonic(),
            requests=len(latencies),
            cpu_seconds=time.process_time() - cpu,
            latencies=latencies,
        )


class _Connection:
    def __init__(self, port: int, topic: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), BROKER_SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._layout = answer_layout(topic)
        self._rest = b""
        self._sent: deque[float] = deque()

    @property
    def is_waiting(self) -> bool:
        return bool(self._sent)

    def send(self, frame: bytearray) -> None:
        self._sent.append(time.monotonic())
        self.socket.sendall(frame)

    def receive(self) -> list[tuple[float, int]]:
        """Seconds that commits took that are answered now."""
        data = self.socket.recv(RECEIVE_BYTES)
        if not data:
            raise LoadFailed("the broker closed a connection of groups")
        data = self._rest + data
        count = len(data) // self._layout.size_bytes
        self._layout.check(data, count)
        self._rest = data[count * self._layout.size_bytes :]
        now = time.monotonic()
        return [(now - self._sent.popleft(), 1) for _ in range(count)]


class _Committers:
    def __init__(self, plan: Plan) -> None:
        self._commits = [Commit(group, plan.topic) for group in plan.groups]
        self._connections = [_Connection(plan.port, plan.topic) for _ in range(plan.connections)]
        self._poll = select.poll()
        self._by_number = {connection.socket.fileno(): connection for connection in self._connections}
        for number in self._by_number:
            self._poll.register(number, select.POLLIN)
        chance = random.Random(len(self._commits))
        self._moments = [chance.random() for _ in self._commits]
        self._next = 0

    def as_fast_as_they_go(self, seconds: float) -> None:
        """Every group at least once; one commit in flight on each connection."""
        end = time.monotonic() + seconds
        while self._next < len(self._commits) or time.monotonic() < end:
            for _ in self._connections:
                self._commit()
            self._finish()

    def once_a_second(self, seconds: float) -> list[tuple[float, int]]:
        """The schedule does not wait for answers."""
        found: list[tuple[float, int]] = []
        start, count = time.monotonic(), len(self._commits)
        for number in range(int(seconds * count)):
            due = start + (number + self._moments[self._next % count]) / count
            while (left := due - time.monotonic()) > 0:
                found += self._answers(left)
            self._commit()
        return found + self._finish()

    def _commit(self) -> None:
        number = self._next
        self._next += 1
        commit = self._commits[number % len(self._commits)]
        self._connections[number % len(self._connections)].send(commit.at(number))

    def _answers(self, seconds: float) -> list[tuple[float, int]]:
        """poll() counts in milliseconds and wakes late rather than early, which is good enough for a commit."""
        ready = self._poll.poll(max(seconds * 1000, 0))
        return [took for number, _ in ready for took in self._by_number[number].receive()]

    def _finish(self) -> list[tuple[float, int]]:
        found: list[tuple[float, int]] = []
        deadline = time.monotonic() + BROKER_SECONDS_MAX
        while any(connection.is_waiting for connection in self._connections):
            found += self._answers(1)
            if time.monotonic() > deadline:
                raise LoadFailed("commits are not answered")
        return found
