"""The least that serving consumers takes: `lower_bound.py`, a process for each, in the place of three brokers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import frames
import load_consume
import load_produce
from brokers import LowerBound, new_topic
from clusters import BROKERS
from load import Report, Work, loaded, measured
from replicas_cases import BATCH_BYTES, FILLED_BYTES, Case
from replicas_topics import FILL_SECONDS_MAX, IN_FLIGHT


class Bound:
    """As long as it is started each process keeps the bytes of one partition."""

    def __init__(self, folder: Path) -> None:
        self._movers = [LowerBound(folder / str(number)) for number in BROKERS]
        self._topic = new_topic()

    def start(self) -> None:
        for mover in self._movers:
            mover.start()

    def close(self) -> None:
        for mover in self._movers:
            mover.stop()

    def rate(self, case: Case, seconds: float, warmup_seconds: float) -> tuple[list[Report], float]:
        """Loads it as a case of consumers alone says; returns what they saw, and the processor time for it, in s."""
        batch = frames.batch(case.value_bytes, BATCH_BYTES)
        frame = frames.produce(self._topic, 0, 1, batch.data)
        units = FILLED_BYTES // len(frame) // case.consumers
        movers = self._movers[: case.consumers]
        for mover in movers:
            mover.create(self._topic, 1, {})
        loaded(
            [
                load_produce.filling(mover.port, self._topic, frame, 1, units, IN_FLIGHT, FILL_SECONDS_MAX)
                for mover in movers
            ]
        )
        works = [self._consumer(mover.port, len(frame), units, seconds, warmup_seconds) for mover in movers]
        reports, cpu = measured(works, lambda: sum(mover.cpu_seconds() for mover in movers))
        return [replace(one, records=one.wire_bytes // len(frame) * batch.records) for one in reports], cpu

    def _consumer(self, port: int, unit_bytes: int, units: int, seconds: float, warmup_seconds: float) -> Work:
        return load_consume.Plan(
            port=port,
            topic=self._topic,
            partition=0,
            units=units,
            unit_bytes=unit_bytes,
            unit_records=unit_bytes,
            verifies=False,
            warmup_seconds=warmup_seconds,
            seconds=seconds,
        ).work()
