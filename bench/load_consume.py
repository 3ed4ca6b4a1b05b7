"""Fetch requests, one in flight on each connection, as Kafka's consumers have it; records are received, not parsed."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass

import frames
from load import Gate, LoadFailed, Report, Work

BUFFER_BYTES = 2 << 20
HEAD_BYTES = 256
SILENCE_SECONDS_MAX = 30


class Fetcher:
    """One connection that fetches one partition.  Raises LoadFailed for an error code in any answer."""

    def __init__(self, port: int, topic: str, partition: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), SILENCE_SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._fetching = frames.Fetching(topic, partition)
        self._layout = frames.fetch_layout(topic)
        self._view = memoryview(bytearray(BUFFER_BYTES))

    def fetch(self, offset: int) -> memoryview:
        """Records from the batch that holds `offset` on; valid until the next call."""
        self._socket.sendall(self._fetching.at(offset))
        view, filled = self._view, 0
        while filled < 4:
            filled += self._receive(view[filled:])
        size = int.from_bytes(view[:4]) + 4
        if size > BUFFER_BYTES:
            raise LoadFailed(f"an answer of {size} bytes")
        while filled < size:
            filled += self._receive(view[filled:size])
        layout = self._layout
        errors = bytes(view[layout.error_at : layout.error_at + 2]), bytes(view[13:15])
        if errors != (b"\0\0", b"\0\0"):
            raise LoadFailed(f"Fetch was answered with {errors}")
        records, start = frames.read_uvarint(view, layout.records_size_at)
        return view[start : start + max(records - 1, 0)]

    def _receive(self, view: memoryview) -> int:
        received = self._socket.recv_into(view)
        if not received:
            raise LoadFailed("the broker closed the connection")
        return received


@dataclass
class Plan:
    """One consumer.  The partition holds `units` batches of `unit_bytes` and `unit_records` each.

    It reads from batch `first` to the last again and again until `seconds` are over, or `passes` times, and no faster
    than `bytes_per_second`, if there is one.  One that `follows` knows no last batch, waits for what is not there yet,
    and goes on after the warmup where it was.  For the lower bound, where an offset is a byte position, unit_records
    equals unit_bytes and `verifies` is False.
    """

    port: int
    topic: str
    partition: int
    units: int
    unit_bytes: int
    unit_records: int
    verifies: bool
    warmup_seconds: float
    seconds: float
    passes: int = 1 << 30
    first: int = 0
    bytes_per_second: int = 0
    follows: bool = False

    def work(self) -> Work:
        return lambda gate: _Consumer(self).run(gate)


class _Consumer:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._fetcher = Fetcher(plan.port, plan.topic, plan.partition)
        self._first = plan.first

    def run(self, gate: Gate) -> Report:
        plan = self._plan
        if plan.warmup_seconds:
            self._phase(plan.warmup_seconds, plan.passes)
        gate.wait()
        begun, cpu = time.monotonic(), time.process_time()
        requests, units, received, latencies = self._phase(plan.seconds, plan.passes)
        return Report(
            begun=begun,
            ended=time.monotonic(),
            requests=requests,
            records=units * plan.unit_records,
            wire_bytes=received,
            cpu_seconds=time.process_time() - cpu,
            latencies=latencies,
        )

    def _phase(self, seconds: float, passes: int) -> tuple[int, int, int, list[tuple[float, int]]]:
        plan, fetch, monotonic = self._plan, self._fetcher.fetch, time.monotonic
        requests = units = received = done = 0
        at = self._first
        latencies: list[tuple[float, int]] = []
        start = now = monotonic()
        end = now + seconds
        while now < end and done < passes:
            records = fetch(at * plan.unit_records)
            if plan.verifies and records and int.from_bytes(records[:8]) != at * plan.unit_records:
                raise LoadFailed(f"asked for batch {at} and got offset {int.from_bytes(records[:8])}")
            whole = len(records) // plan.unit_bytes
            if not whole and not plan.follows:
                raise LoadFailed(f"{len(records)} bytes where batches have {plan.unit_bytes}")
            before, now = now, monotonic()
            latencies.append((now - before, 1))
            requests += 1
            units += whole
            received += len(records)
            at += whole
            if at >= plan.units and not plan.follows:
                at, done = plan.first, done + 1
            if plan.bytes_per_second:
                time.sleep(max(start + received / plan.bytes_per_second - monotonic(), 0))
        if plan.follows:
            self._first = at
        return requests, units, received, latencies
