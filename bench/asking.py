"""One client that asks one thing after the other, and what the broker and the client spend on each request."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from types import TracebackType

import measure
from brokers import Broker

WARMUP_SECONDS = 0.3
REQUEST_SECONDS_MAX = 60
FOREVER = 1 << 62

Frame = bytes | bytearray


class RequestClient:
    """A connection with one request under way."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), REQUEST_SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb", buffering=1 << 17)

    def __enter__(self) -> RequestClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()
        self._socket.close()

    def request(self, frame: Frame) -> bytes:
        """Returns the answer with its length, as it is on the wire."""
        self.send(frame)
        return self.receive()

    def send(self, frame: Frame) -> None:
        self._socket.sendall(frame)

    def receive(self) -> bytes:
        head: bytes = self._file.read(4)
        return head + self._file.read(int.from_bytes(head))


def measure_requests(
    broker: Broker, requests: Iterator[Frame], seconds: float, *, warmup: int = 0, count_max: int = FOREVER
) -> dict[str, float]:
    """Asks for so many seconds, after at least `warmup` requests; returns microseconds of a request.

    cpu_us is the broker's processor time; the others are what the client waits.
    """
    samples: list[tuple[float, int]] = []
    with RequestClient(broker.port) as client:
        started, number = time.monotonic(), 0
        while number < warmup or (warmup and time.monotonic() < started + WARMUP_SECONDS):
            client.request(next(requests))
            number += 1
        cpu, started = broker.cpu_seconds(), time.monotonic()
        while time.monotonic() < started + seconds and len(samples) < count_max:
            frame = next(requests)
            sent = time.monotonic()
            client.request(frame)
            samples.append((time.monotonic() - sent, 1))
        spent = broker.cpu_seconds() - cpu
    found = measure.quantiles(samples)
    return {"cpu_us": round(spent / len(samples) * 1e6, 1), "p50_us": found["p50"], "p99_us": found["p99"]}
