"""Produce requests, sent as blocks of bytes made beforehand; acknowledgements are counted by their fixed size."""

from __future__ import annotations

import socket
import time
from collections import deque
from dataclasses import dataclass
from typing import Protocol

import frames
from load import Gate, LoadFailed, Report, Work

RECEIVE_BYTES = 1 << 16
SILENCE_SECONDS_MAX = 30


class Frames(Protocol):
    """What is sent: `count` requests of one size, again and again."""

    frame_bytes: int
    count: int

    def slice(self, at: int, count: int) -> memoryview:
        """`count` of them back to back, counted from the first ever sent."""
        ...


class Ring:
    """Frames of one size, back to back, so often that any `window` of them in a row is one slice."""

    def __init__(self, requests: list[bytes], window: int) -> None:
        self.frame_bytes = len(requests[0])
        assert all(len(request) == self.frame_bytes for request in requests), "frames of one ring have one size"
        self.count = len(requests)
        self._view = memoryview(b"".join(requests[at % self.count] for at in range(self.count + window)))

    def slice(self, at: int, count: int) -> memoryview:
        start = at % self.count * self.frame_bytes
        return self._view[start : start + count * self.frame_bytes]


@dataclass
class Plan:
    """One producer on one connection.  It ends after `seconds` or `requests_max`, whichever comes first.

    Warm-up is as long as it has to be to send each request of the ring once, if there is any.
    """

    port: int
    topic: str
    ring: Frames
    records_per_request: int
    window: int
    warmup_seconds: float
    seconds: float
    requests_max: int
    partitions_named: int = 1  # By each request.

    def work(self) -> Work:
        return lambda gate: _Producer(self).run(gate)


def filling(  # noqa: PLR0917
    port: int, topic: str, frame: bytes, records: int, requests: int, window: int, seconds_max: float
) -> Work:
    """Returns the work of sending one frame, of so many records, so many times."""
    return Plan(
        port=port,
        topic=topic,
        ring=Ring([frame], window),
        records_per_request=records,
        window=window,
        warmup_seconds=0,
        seconds=seconds_max,
        requests_max=requests,
    ).work()


class _Producer:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._layout = frames.ack_layout(plan.topic, plan.partitions_named)
        self._socket = socket.create_connection(("127.0.0.1", plan.port), SILENCE_SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._next = 0
        self._rest = b""

    def run(self, gate: Gate) -> Report:
        plan = self._plan
        warm = 0
        if plan.warmup_seconds:  # Half of the bound: the warm-up of a fast broker must not fill the disk either.
            warm, _ = self._phase(plan.warmup_seconds, max(plan.requests_max // 2, 1), plan.ring.count)
        gate.wait()
        begun, cpu = time.monotonic(), time.process_time()
        acknowledged, latencies = self._phase(plan.seconds, plan.requests_max)
        return Report(
            begun=begun,
            ended=time.monotonic(),
            requests=acknowledged,
            records=acknowledged * plan.records_per_request,
            wire_bytes=acknowledged * plan.ring.frame_bytes,
            cpu_seconds=time.process_time() - cpu,
            latencies=latencies,
            total_records=(warm + acknowledged) * plan.records_per_request,
        )

    def _phase(self, seconds: float, requests_max: int, requests_min: int = 0) -> tuple[int, list[tuple[float, int]]]:
        """Keeps exactly `window` requests in flight until the end, then waits for the last answers."""
        now, monotonic, latencies = time.monotonic(), time.monotonic, []
        end = now + seconds
        window = min(self._plan.window, requests_max)
        sent = self._send(window)
        in_flight = deque([(now, window)])
        acknowledged = 0
        while acknowledged < sent:
            count = self._receive()
            now = monotonic()
            acknowledged += count
            more = min(count, requests_max - sent) if now < end or sent < requests_min else 0
            while count:
                since, block = in_flight.popleft()
                if block > count:
                    in_flight.appendleft((since, block - count))
                    block = count
                latencies.append((now - since, block))
                count -= block
            if more:
                in_flight.append((monotonic(), more))
                sent += self._send(more)
        return acknowledged, latencies

    def _send(self, count: int) -> int:
        self._socket.sendall(self._plan.ring.slice(self._next, count))
        self._next += count
        return count

    def _receive(self) -> int:
        """How many more acknowledgements came; LoadFailed if any of them is an error."""
        data = self._socket.recv(RECEIVE_BYTES)
        if not data:
            raise LoadFailed("the broker closed the connection")
        if self._rest:
            data = self._rest + data
        count, rest = divmod(len(data), self._layout.size_bytes)
        self._layout.check(data, count)
        self._rest = data[len(data) - rest :] if rest else b""
        return count
