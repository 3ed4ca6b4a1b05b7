"""Connections in plain text or under TLS that do the same: produce, fetch, or connect again and again.

One process and one epoll set for all connections of a load, the same code for either kind: what differs between two
runs is TLS and the broker.  Answers are counted and their error codes looked at, records are thrown away.
"""

from __future__ import annotations

import gc
import select
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import frames
from load import Gate, LoadFailed, Report, Work, clock

from odradek.wire.messages.api_versions import ApiVersionsRequest

HOST = "127.0.0.1"
NAME = "localhost"  # In the broker's certificate.
HEAD_BYTES = 128  # Of an answer, for its error code.
SCRATCH_BYTES = 1 << 20
SILENCE_SECONDS_MAX = 30
TURN_SECONDS = 0.5

Checked = Callable[[bytes], None]  # The head of each answer; raises.


@dataclass
class RepeatedRequest:
    """What one connection sends again and again, with `window` of them on their way."""

    frame: bytes
    window: int
    check: Checked


@dataclass
class Plan:
    """`connections` that ask until `seconds` are over; the n-th sends `request_of(n)`.  None: in plain text."""

    port: int
    context: ssl.SSLContext | None
    connections: int
    request_of: Callable[[int], RepeatedRequest]
    warmup_seconds: float
    seconds: float

    def work(self) -> Work:
        return lambda gate: _Crowd(self).run(gate)


def connected(port: int, context: ssl.SSLContext | None) -> socket.socket:
    plain = socket.create_connection((HOST, port), SILENCE_SECONDS_MAX)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return plain if context is None else context.wrap_socket(plain, server_hostname=NAME)


class Link:
    """One connection: what is left to send, and how much of an answer is there."""

    def __init__(self, plan: Plan, number: int) -> None:
        self._request = plan.request_of(number)
        self.socket = connected(plan.port, plan.context)
        self.socket.setblocking(False)
        self._unsent = memoryview(b"")
        self._to_send = 0  # Requests that are not begun.
        self._head = bytearray()
        self._missing = 0  # Of the answer whose head is there.
        self.in_flight = 0
        self.answers = 0
        self.received_bytes = 0

    def request(self, count: int) -> None:
        self._to_send += count
        self.in_flight += count
        self.send()

    def start(self) -> None:
        self.request(self._request.window)

    @property
    def has_data_to_send(self) -> bool:
        return bool(self._unsent or self._to_send)

    def send(self) -> None:
        with suppress(BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            while self._unsent or self._to_send:
                if not self._unsent:  # Small ones go out together, as a client would have them.
                    count = self._to_send if len(self._request.frame) * self._to_send < SCRATCH_BYTES else 1
                    self._unsent = memoryview(self._request.frame * count)
                    self._to_send -= count
                self._unsent = self._unsent[self.socket.send(self._unsent) :]

    def receive(self, scratch: memoryview) -> int:
        """How many answers are whole."""
        whole = 0
        with suppress(BlockingIOError, ssl.SSLWantReadError):
            while size := self.socket.recv_into(scratch):
                self.received_bytes += size
                whole += self._take(scratch[:size])
                if size < len(scratch) and not isinstance(self.socket, ssl.SSLSocket):
                    return whole
            raise LoadFailed("the broker closed a connection")
        return whole

    def _take(self, data: memoryview) -> int:
        whole = 0
        while data:
            if not self._missing:
                need = HEAD_BYTES - len(self._head)
                self._head += data[:need]
                data = data[need:]
                if len(self._head) < 4:
                    return whole
                size = int.from_bytes(self._head[:4]) + 4
                if len(self._head) < min(size, HEAD_BYTES):
                    return whole
                if size < len(self._head):  # Small answers, several at once.
                    data = memoryview(bytes(self._head[size:]) + bytes(data))
                    del self._head[size:]
                self._request.check(bytes(self._head))
                self._missing = size - len(self._head)
                self._head.clear()
            taken = min(self._missing, len(data))
            self._missing -= taken
            data = data[taken:]
            if not self._missing:
                whole += 1
        self.answers += whole
        self.in_flight -= whole
        return whole


class _Crowd:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._epoll = select.epoll()
        self._links = {}
        for number in range(plan.connections):
            link = Link(plan, number)
            self._links[link.socket.fileno()] = link
            self._epoll.register(link.socket, select.EPOLLIN)
        self._sending: set[int] = set()
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))

    def run(self, gate: Gate) -> Report:
        gc.disable()
        self._phase(self._plan.warmup_seconds)
        warm = self._sum()
        gate.wait()
        begun, cpu = clock()
        self._phase(self._plan.seconds)
        requests, received = self._sum()
        return Report(
            begun=begun,
            ended=time.monotonic(),
            requests=requests - warm[0],
            records=requests - warm[0],
            wire_bytes=received - warm[1],
            cpu_seconds=time.process_time() - cpu,
            total_records=requests,
        )

    def _sum(self) -> tuple[int, int]:
        links = self._links.values()
        return sum(link.answers for link in links), sum(link.received_bytes for link in links)

    def _phase(self, seconds: float) -> None:
        """Asks until the time is over, then waits for the last answers."""
        end = time.monotonic() + seconds
        for link in self._links.values():
            link.start()
            self._watch(link)
        while any(link.in_flight for link in self._links.values()):
            events = self._epoll.poll(TURN_SECONDS)
            now = time.monotonic()
            if now > end + SILENCE_SECONDS_MAX:
                raise LoadFailed("some requests were never answered")
            for descriptor, event in events:
                link = self._links[descriptor]
                if event & select.EPOLLOUT:
                    link.send()
                    self._watch(link)
                if event & ~select.EPOLLOUT:
                    whole = link.receive(self._scratch)
                    if whole and now < end:
                        link.request(whole)
                        self._watch(link)

    def _watch(self, link: Link) -> None:
        descriptor = link.socket.fileno()
        if link.has_data_to_send != (descriptor in self._sending):
            events = select.EPOLLIN | (select.EPOLLOUT if link.has_data_to_send else 0)
            self._epoll.modify(descriptor, events)
            (self._sending.add if link.has_data_to_send else self._sending.discard)(descriptor)


@dataclass
class Knocking:
    """Connects, shakes hands, asks for ApiVersions, reads the answer, and leaves; one after the other."""

    port: int
    context: ssl.SSLContext | None
    warmup_seconds: float
    seconds: float

    def work(self) -> Work:
        return self._run

    def _run(self, gate: Gate) -> Report:
        self._phase(self.warmup_seconds)
        gate.wait()
        begun, cpu = clock()
        done = self._phase(self.seconds)
        seconds = time.process_time() - cpu
        return Report(begun=begun, ended=time.monotonic(), requests=done, records=done, cpu_seconds=seconds)

    def _phase(self, seconds: float) -> int:
        frame = frames.whole(ApiVersionsRequest(), 0)
        end, done = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            with connected(self.port, self.context) as stream:
                stream.sendall(frame)
                if not stream.recv(4096):
                    raise LoadFailed("the broker closed a connection")
            done += 1
        return done


def produce_requests(topic: str, value_bytes: int, window: int, partitions: int) -> Callable[[int], RepeatedRequest]:
    """Requests of one record, acks=1, to partition n of n connections."""
    layout = frames.ack_layout(topic)
    data = frames.batch(value_bytes, 1).data

    def request_of(number: int) -> RepeatedRequest:
        return RepeatedRequest(
            frames.produce(topic, number % partitions, 1, data), window, lambda head: layout.check(head, 1)
        )

    return request_of


def fetch_requests(topic: str, unit_bytes: int, partitions: int) -> Callable[[int], RepeatedRequest]:
    """Fetches of the first batch, one on its way at a time."""
    layout = frames.fetch_layout(topic)

    def check(head: bytes) -> None:
        size = int.from_bytes(head[:4])
        if head[layout.error_at : layout.error_at + 2] != b"\0\0" or size < unit_bytes:
            raise LoadFailed(f"a fetch was answered with {size} bytes")

    def request_of(number: int) -> RepeatedRequest:
        return RepeatedRequest(bytes(frames.Fetching(topic, number % partitions).at(0)), 1, check)

    return request_of
