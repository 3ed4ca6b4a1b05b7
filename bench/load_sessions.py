"""One consumer with a fetch session (KIP-227) of some partitions."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

import frames
from load import Gate, Latencies, LoadFailed, Report, Work

SILENCE_SECONDS_MAX = 30


class _Consumer:
    """`send` a request of the session, `receive` its answer."""

    def __init__(self, port: int, topic: str, offsets: list[int]) -> None:
        self._socket = connected(port)
        self._socket.sendall(frames.session_begin(topic, offsets))
        response = self.receive()
        self._requests = frames.SessionRequests(topic, frames.session_of(response))

    def send(self, *, partition: int | None = None, offset: int = 0, max_wait_ms: int = frames.LONG_POLL_MS) -> None:
        """It names one partition, or none."""
        self._socket.sendall(self._requests.next(partition, offset, max_wait_ms))

    def receive(self) -> bytes:
        data = frame_of(self._socket)
        if frames.session_error(data):
            raise LoadFailed(f"a fetch of a session was answered with error {frames.session_error(data)}")
        return data


def connected(port: int) -> socket.socket:
    one = socket.create_connection(("127.0.0.1", port), SILENCE_SECONDS_MAX)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one


def frame_of(one: socket.socket) -> bytes:
    """The next one, from its length on; nothing comes behind it."""
    data = one.recv(1 << 16)
    while len(data) < 4 or len(data) < int.from_bytes(data[:4]) + 4:
        more = one.recv(1 << 16)
        if not more:
            raise LoadFailed("the broker closed a connection")
        data += more
    return data


@dataclass
class Plan:
    """`offsets` are the ends of all partitions of the topic, which the session has.

    With `unit`, what one record is in the log, a producer sends that to any of them when the consumer has the one
    before, and the time is from before its `send` to after the consumer's `recv`.  Without, the consumer asks again and
    again, without waiting, and there is nothing.
    """

    port: int
    topic: str
    offsets: list[int]
    unit: bytes
    warmup_seconds: float
    seconds: float

    def work(self) -> Work:
        return self._run

    def _run(self, gate: Gate) -> Report:
        consumer = _Consumer(self.port, self.topic, self.offsets)
        once = self._delivery(consumer) if self.unit else _nothing(consumer)
        warm = _repeated(once, self.warmup_seconds)
        gate.wait()
        begun, cpu = time.monotonic(), time.process_time()
        latencies = _repeated(once, self.seconds)
        return Report(
            begun=begun,
            ended=time.monotonic(),
            requests=len(latencies),
            records=len(latencies),
            cpu_seconds=time.process_time() - cpu,
            latencies=latencies,
            total_records=len(warm) + len(latencies) if self.unit else 0,
        )

    def _delivery(self, consumer: _Consumer) -> Callable[[], float]:
        producer = connected(self.port)
        offsets, draw = self.offsets, random.Random(1)
        produced = [frames.produce(self.topic, index, 1, self.unit) for index in range(len(offsets))]
        layout, ack = frames.fetch_layout(self.topic), frames.ack_layout(self.topic)
        consumer.send()

        def once() -> float:
            index = draw.randrange(len(offsets))
            since = time.monotonic()
            producer.sendall(produced[index])
            response = consumer.receive()
            while not frames.has_topics(response):  # Nothing came for as long as it was to wait.
                consumer.send()
                response = consumer.receive()
            seconds = time.monotonic() - since
            if frames.records_of_one(response, layout) != (index, offsets[index]):
                raise LoadFailed(f"got other records than those from {offsets[index]} on of partition {index}")
            offsets[index] += 1
            ack.check(frame_of(producer), 1)
            consumer.send(partition=index, offset=offsets[index])
            return seconds

        return once


def _nothing(consumer: _Consumer) -> Callable[[], float]:
    consumer.send(max_wait_ms=0)
    consumer.receive()  # With what is left to tell.

    def once() -> float:
        since = time.monotonic()
        consumer.send(max_wait_ms=0)
        if frames.has_topics(consumer.receive()):
            raise LoadFailed("there is something where nothing was")
        return time.monotonic() - since

    return once


def _repeated(once: Callable[[], float], seconds: float) -> Latencies:
    latencies: Latencies = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        latencies.append((once(), 1))
    return latencies
