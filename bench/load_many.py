"""Very many connections, each asking for one small thing at a time: those of one process, in one epoll set.

It does little for each answer, so that the broker gets what it can of the machine; but it is one thread, and with very
many small answers it may be what is measured: `client_cores` tells.
"""

from __future__ import annotations

import resource
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import frames
from load import Gate, Latencies, LoadFailed, Report, Work, one_at_a_time

RECEIVE_BYTES = 1 << 16
SILENCE_SECONDS_MAX = 30
EVENTS_MAX = 64
OPEN_AT_ONCE = 100


class Swarm:
    """The connections; `on_answer` is given the index of one of them and a whole answer, from its length on."""

    def __init__(self, port: int, count: int) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.sockets: list[socket.socket] = []
        self._epoll = select.epoll()
        self._index: dict[int, int] = {}
        self._rests: dict[int, bytes] = {}
        for number in range(count):
            one = socket.create_connection(("127.0.0.1", port), SILENCE_SECONDS_MAX)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._index[one.fileno()] = number
            self._epoll.register(one.fileno(), select.EPOLLIN)
            self.sockets.append(one)

    def turn(self, timeout_seconds: float, on_answer: Callable[[int, bytes], None]) -> bool:
        """False if nothing came in time."""
        events = self._epoll.poll(timeout_seconds, EVENTS_MAX)
        for descriptor, _ in events:
            index = self._index[descriptor]
            data = self.sockets[index].recv(RECEIVE_BYTES)
            if not data:
                raise LoadFailed("the broker closed a connection")
            if self._rests:
                data = self._rests.pop(index, b"") + data
            if len(data) < 4 or len(data) < int.from_bytes(data[:4]) + 4:
                self._rests[index] = data
                continue
            on_answer(index, data)
        return bool(events)


@dataclass
class Producers:
    """`connections`, each with one request of one record in flight."""

    port: int
    topic: str
    frame: bytes
    connections: int
    warmup_seconds: float
    seconds: float

    def work(self) -> Work:
        return self._run

    def _run(self, gate: Gate) -> Report:
        swarm = Swarm(self.port, self.connections)
        seconds = (self.warmup_seconds, self.seconds)
        return one_at_a_time(gate, self.frame, seconds, lambda for_seconds: self._phase(swarm, for_seconds))

    def _phase(self, swarm: Swarm, seconds: float) -> Latencies:
        layout, frame, sockets, monotonic = frames.ack_layout(self.topic), self.frame, swarm.sockets, time.monotonic
        latencies: Latencies = []
        end = monotonic() + seconds
        since = [0.0] * len(sockets)
        sent = 0

        def send(index: int, now: float) -> None:
            nonlocal sent
            since[index] = now
            sockets[index].send(frame)
            sent += 1

        def on_answer(index: int, data: bytes) -> None:
            now = monotonic()
            layout.check(data, 1)
            latencies.append((now - since[index], 1))
            if now < end:
                send(index, now)

        for first in range(0, len(sockets), OPEN_AT_ONCE):
            for index in range(first, min(first + OPEN_AT_ONCE, len(sockets))):
                send(index, monotonic())
            swarm.turn(0, on_answer)
        while len(latencies) < sent:
            if not swarm.turn(SILENCE_SECONDS_MAX, on_answer):
                raise LoadFailed("no acknowledgement in time")
        return latencies


@dataclass
class Waiters:
    """`connections` that long-poll one partition, and one more that produces single records to it.

    With `rate_per_second` on a schedule; else the next when all have the one before.  `unit_bytes` is what one record
    is in the log.  The time is from before the producer's `send` to after a consumer's `recv`, for each of them.
    """

    port: int
    topic: str
    frame: bytes
    unit_bytes: int
    connections: int
    rate_per_second: int
    warmup_seconds: float
    seconds: float

    def work(self) -> Work:
        return self._run

    def _run(self, gate: Gate) -> Report:
        audience = _Audience(self)
        audience.run(self.warmup_seconds)
        audience.forget()
        gate.wait()
        begun, cpu = time.monotonic(), time.process_time()
        audience.run(self.seconds)
        return Report(
            begun=begun,
            ended=time.monotonic(),
            requests=audience.answers,
            records=len(audience.delays),
            wire_bytes=len(audience.delays) * self.unit_bytes,
            cpu_seconds=time.process_time() - cpu,
            latencies=audience.delays,
            total_records=len(audience.sent_at),
        )


@dataclass
class _Audience:
    plan: Waiters
    delays: Latencies = field(default_factory=list)
    sent_at: list[float] = field(default_factory=list)  # By offset.
    answers: int = 0

    def __post_init__(self) -> None:
        plan = self.plan
        self._fetching = frames.Fetching(plan.topic, 0)
        self._layout = frames.fetch_layout(plan.topic)
        self._ack = frames.ack_layout(plan.topic)
        self._swarm = Swarm(plan.port, plan.connections)
        self._there = [0] * plan.connections
        self._behind = 0  # Records that some have yet to get, once for each of those.
        self._producer = socket.create_connection(("127.0.0.1", plan.port), SILENCE_SECONDS_MAX)
        self._producer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for one in self._swarm.sockets:
            one.send(self._fetching.at(0))

    def forget(self) -> None:
        self.delays, self.answers = [], 0

    def run(self, seconds: float) -> None:
        """Ends when all have all that was sent."""
        start = time.monotonic()
        rate = self.plan.rate_per_second
        due, end = start, start + seconds
        while due < end:
            if rate or not self._behind:
                self._turn_until(due)
                self._send()
                due = due + 1 / rate if rate else time.monotonic()
            else:
                self._turn(SILENCE_SECONDS_MAX)
                due = time.monotonic()
        while self._behind:
            self._turn(SILENCE_SECONDS_MAX)
        self._acknowledged()

    def _turn_until(self, due: float) -> None:
        while (remaining := due - time.monotonic()) > 0:
            self._swarm.turn(remaining, self._on_answer)

    def _turn(self, timeout_seconds: float) -> None:
        if not self._swarm.turn(timeout_seconds, self._on_answer):
            raise LoadFailed("no records in time")

    def _send(self) -> None:
        self.sent_at.append(time.monotonic())
        self._producer.send(self.plan.frame)
        self._behind += self.plan.connections

    def _acknowledged(self) -> None:
        """What the producer was answered, which nobody waited for, is looked at."""
        self._producer.setblocking(False)
        size = self._ack.size_bytes
        try:
            while data := self._producer.recv(size * 1000):
                self._ack.check(data[: len(data) // size * size], len(data) // size)
        except BlockingIOError:
            self._producer.setblocking(True)

    def _on_answer(self, index: int, data: bytes) -> None:
        now = time.monotonic()
        layout = self._layout
        if data[layout.error_at : layout.error_at + 2] != b"\0\0" or data[13:15] != b"\0\0":
            raise LoadFailed("a Fetch was answered with an error")
        size, start = frames.read_uvarint(data, layout.records_size_at)
        there = self._there[index]
        whole = (size - 1) // self.plan.unit_bytes
        if whole:
            if int.from_bytes(data[start : start + 8]) != there:
                raise LoadFailed(f"asked for offset {there}, got another")
            self.delays += [(now - sent, 1) for sent in self.sent_at[there : there + whole]]
            self._there[index] = there = there + whole
            self._behind -= whole
        self.answers += 1
        self._swarm.sockets[index].send(self._fetching.at(there))
