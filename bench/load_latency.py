"""From producer to consumer at a steady rate: one sends a record every so often, the other long-polls for it.

The producer marks when it sent the n-th record, the consumer when an answer first held it; the difference is computed
by whoever started both.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from dataclasses import dataclass

import frames
from load import Gate, LoadFailed, Report, Work
from load_consume import Fetcher

START_DELAY_SECONDS = 0.05  # Until the consumer's first fetch is waiting.
SPIN_SECONDS = 0.0002  # sleep() oversleeps by about this much.
BROKER_SECONDS_MAX = 30


@dataclass
class Plan:
    """Both sides of one measurement; `unit` as in load_consume."""

    port: int
    topic: str
    frame: bytes
    unit_bytes: int
    unit_records: int
    rate_per_second: int
    warmup_seconds: float
    seconds: float

    @property
    def warm_count(self) -> int:
        return int(self.warmup_seconds * self.rate_per_second)

    @property
    def count(self) -> int:
        return int(self.seconds * self.rate_per_second)

    def works(self) -> list[Work]:
        return [self._produce, self._consume]

    def _produce(self, gate: Gate) -> Report:
        connection = socket.create_connection(("127.0.0.1", self.port), BROKER_SECONDS_MAX)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sender = _Sender(connection, self.frame, frames.ack_layout(self.topic))
        sender.send(self.warm_count, self.rate_per_second)
        gate.wait()
        begun, cpu = time.monotonic(), time.process_time()
        marks = sender.send(self.count, self.rate_per_second)
        return Report(
            begun=begun,
            ended=time.monotonic(),
            requests=self.count,
            cpu_seconds=time.process_time() - cpu,
            marks=marks,
            total_records=self.warm_count + self.count,
        )

    def _consume(self, gate: Gate) -> Report:
        fetcher = Fetcher(self.port, self.topic, 0)
        self._receive(fetcher, 0, self.warm_count)
        gate.wait()
        begun, cpu = time.monotonic(), time.process_time()
        marks = self._receive(fetcher, self.warm_count, self.count)
        return Report(
            begun=begun,
            ended=time.monotonic(),
            records=self.count,
            cpu_seconds=time.process_time() - cpu,
            marks=marks,
        )

    def _receive(self, fetcher: Fetcher, first: int, count: int) -> list[tuple[int, float]]:
        """(records there, when) for each answer that brought some."""
        marks: list[tuple[int, float]] = []
        there = 0
        deadline = time.monotonic() + count / self.rate_per_second + BROKER_SECONDS_MAX
        while there < count:
            whole = len(fetcher.fetch((first + there) * self.unit_records)) // self.unit_bytes
            now = time.monotonic()
            if whole:
                there += whole
                marks.append((there, now))
            elif now > deadline:
                raise LoadFailed(f"{count - there} records never came")
        return marks


class _Sender:
    def __init__(self, connection: socket.socket, frame: bytes, layout: frames.AckLayout) -> None:
        self._socket = connection
        self._frame = frame
        self._layout = layout
        self._rest = b""

    def send(self, count: int, rate_per_second: int) -> list[tuple[int, float]]:
        """(number, when sent); the schedule does not wait for answers."""
        start = time.monotonic() + START_DELAY_SECONDS
        marks: list[tuple[int, float]] = []
        answered = 0
        for number in range(count):
            sleep_until(start + number / rate_per_second)
            marks.append((number, time.monotonic()))
            self._socket.sendall(self._frame)
            answered += self._answers(0)
        while answered < count:
            answered += self._answers(BROKER_SECONDS_MAX)
        return marks

    def _answers(self, timeout_seconds: float) -> int:
        readable, _, _ = select.select([self._socket], [], [], timeout_seconds)
        if not readable:
            if timeout_seconds:
                raise LoadFailed("no acknowledgement in time")
            return 0
        data = b""
        with contextlib.suppress(BlockingIOError):
            data = self._socket.recv(1 << 16)
        if not data:
            raise LoadFailed("the broker closed the connection")
        data = self._rest + data
        count = len(data) // self._layout.size_bytes
        self._layout.check(data, count)
        self._rest = data[count * self._layout.size_bytes :]
        return count


def sleep_until(when: float) -> None:
    remaining = when - time.monotonic()
    if remaining > SPIN_SECONDS:
        time.sleep(remaining - SPIN_SECONDS)
    while time.monotonic() < when:
        pass


def delays(sent: list[tuple[int, float]], received: list[tuple[int, float]]) -> list[tuple[float, int]]:
    """Seconds from sending to receiving of each record."""
    found: list[tuple[float, int]] = []
    answers = iter(received)
    there, when = next(answers)
    for number, at in sent:
        while number >= there:
            there, when = next(answers)
        found.append((when - at, 1))
    return found
