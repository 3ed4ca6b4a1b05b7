"""One record at a time, on a schedule, and how long its acknowledgement took.

An answer so late that the next record had to wait is counted from when that record was due.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass

import frames
from load import Gate, Latencies, LoadFailed, Report, Work, one_at_a_time
from load_latency import BROKER_SECONDS_MAX


@dataclass
class Plan:
    port: int
    topic: str
    frame: bytes
    rate_per_second: int
    warmup_seconds: float
    seconds: float

    def work(self) -> Work:
        return self._run

    def _run(self, gate: Gate) -> Report:
        self._socket = socket.create_connection(("127.0.0.1", self.port), BROKER_SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._layout = frames.ack_layout(self.topic)
        return one_at_a_time(gate, self.frame, (self.warmup_seconds, self.seconds), self._send)

    def _send(self, seconds: float) -> Latencies:
        found: Latencies = []
        start = answered = time.monotonic()
        for number in range(int(seconds * self.rate_per_second)):
            due = start + number / self.rate_per_second
            # Nobody spins until then: that would keep a core from a broker that still has other work.
            time.sleep(max(due - time.monotonic(), 0))
            since = due if answered > due else time.monotonic()
            self._socket.sendall(self.frame)
            self._receive()
            answered = time.monotonic()
            found.append((answered - since, 1))
        return found

    def _receive(self) -> None:
        response = b""
        while len(response) < self._layout.size_bytes:
            data = self._socket.recv(1 << 16)
            if not data:
                raise LoadFailed("the broker closed the connection")
            response += data
        self._layout.check(response, 1)
