"""Connections that open all at once and then ask one small thing after another: how long until the first answer.

One process, one epoll set, no threads: it does little for each answer, so that the broker is what is waited for.  How
long its own turns take is told too: no time is known better than that.
"""

from __future__ import annotations

import gc
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import frames
from load import Gate, LoadFailed, Report, Work, clock

LATER_CLIENTS = 40
LATER_PAUSE_SECONDS = 0.05
SILENCE_SECONDS_MAX = 60
SETTLING_SECONDS = 1.0
LATE_SECONDS = 0.2
RECEIVE_BYTES = 4096


@dataclass
class Plan:
    """`connections` at once, all busy from then on; meanwhile others come one by one.

    `is_full`: those others are one too many, and what counts is when they are told so.
    """

    port: int
    topic: str
    frame: bytes
    connections: int
    is_full: bool = False

    def work(self) -> Work:
        return self._run

    def _run(self, gate: Gate) -> Report:
        gate.wait()
        gc.disable()
        door = Door(self)
        begun, cpu = clock()
        door.open_all(self.connections)
        opening = time.monotonic() - begun
        door.work_until(lambda: door.waiting == 0)
        first = list(door.firsts)
        answered, since = door.answers, time.monotonic()
        door.work_for(SETTLING_SECONDS)
        later = [door.open_one() for _ in range(LATER_CLIENTS)]
        ended = time.monotonic()
        numbers = {
            "first_max_ms": 1000 * max(first),
            "first_p50_ms": 1000 * _quantile(first, 0.5),
            "first_p99_ms": 1000 * _quantile(first, 0.99),
            "opening_ms": 1000 * opening,
            "lost": float(door.lost),
            "late": float(sum(one > LATE_SECONDS for one in first)),
            "later_p50_ms": 1000 * _quantile(later, 0.5),
            "later_max_ms": 1000 * max(later),
            "busy_per_s": (door.answers - answered) / (ended - since),
            "own_turn_max_ms": 1000 * door.turn_max,
        }
        return Report(
            begun=begun,
            ended=ended,
            requests=door.answers,
            records=door.answers,
            cpu_seconds=time.process_time() - cpu,
            total_records=door.answers,
            numbers=numbers,
        )


@dataclass
class Door:
    """The connections; `firsts` has the seconds from connecting to the first answer, or to the end instead of one."""

    plan: Plan
    firsts: list[float] = field(default_factory=list)
    answers: int = 0
    turn_max: float = 0.0
    lost: int = 0

    def __post_init__(self) -> None:
        self._epoll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._since: dict[int, float] = {}  # Of those without an answer yet.
        self._has: dict[int, int] = {}  # Bytes of an answer that is not whole.
        self._size = frames.ack_layout(self.plan.topic).size_bytes
        self._layout = frames.ack_layout(self.plan.topic)

    @property
    def waiting(self) -> int:
        return len(self._since)

    def open_all(self, count: int) -> None:
        for number in range(count):
            self._open()
            if number % 16 == 15:
                self._turn(0)  # Those who have an answer go on at once.

    def open_one(self) -> float:
        """Seconds until a new connection had its first answer, or was turned away; the others go on."""
        descriptor = self._open()
        self.work_until(lambda: descriptor not in self._since)
        seconds = self.firsts[-1]
        self.work_for(LATER_PAUSE_SECONDS)
        return seconds

    def _open(self) -> int:
        one = socket.socket()
        one.setblocking(False)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        descriptor = one.fileno()
        self._since[descriptor] = time.monotonic()
        one.connect_ex(("127.0.0.1", self.plan.port))
        self._sockets[descriptor] = one
        self._has[descriptor] = 0
        self._epoll.register(descriptor, select.EPOLLOUT)
        return descriptor

    def work_until(self, is_enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SILENCE_SECONDS_MAX
        while not is_enough():
            if time.monotonic() > deadline:
                raise LoadFailed(f"{self.waiting} connections were never answered")
            self._turn(0.1)

    def work_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._turn(0.01)

    def _lose(self, descriptor: int) -> None:
        self.lost += 1
        since = self._since.pop(descriptor, None)
        if since is not None:
            self.firsts.append(time.monotonic() - since)
        self._epoll.unregister(descriptor)
        self._sockets.pop(descriptor).close()

    def _turn(self, timeout_seconds: float) -> None:
        events = self._epoll.poll(timeout_seconds, 64)
        began = time.monotonic()
        frame, size, sockets = self.plan.frame, self._size, self._sockets
        for descriptor, event in events:
            one = sockets[descriptor]
            if event & select.EPOLLOUT:
                with suppress(ConnectionError):  # Reading tells of it.
                    one.send(frame)
                self._epoll.modify(descriptor, select.EPOLLIN)
                continue
            try:
                data = one.recv(RECEIVE_BYTES)
            except ConnectionResetError:  # Turned away; or the queue was full, and the handshake never finished.
                self._lose(descriptor)
                continue
            if not data:
                if not self.plan.is_full:
                    raise LoadFailed("the broker closed a connection")
                self._lose(descriptor)
                continue
            has = self._has[descriptor] + len(data)
            if has < size:
                self._has[descriptor] = has
                continue
            if has == len(data):
                self._layout.check(data, 1)
            self._has[descriptor] = 0
            since = self._since.pop(descriptor, None)
            if since is not None:
                self.firsts.append(time.monotonic() - since)
            self.answers += 1
            one.send(frame)
        self.turn_max = max(self.turn_max, time.monotonic() - began)


def _quantile(samples: list[float], share: float) -> float:
    return sorted(samples)[min(int(share * len(samples)), len(samples) - 1)]
