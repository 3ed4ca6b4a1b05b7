"""Groups whose members join, leave one by one and in numbers: how long until each has its share again."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass

import measure
from load import Gate, Report, Work
from members import Channel, Group
from members_classic import Classic
from members_consumer import ConsumerGroup

MANY = 50


@dataclass
class Plan:
    """One group after the other, until the time is over, but at least one; KIP-848's subscribe to `topic`."""

    port: int
    members: int
    is_consumer: bool
    topic: str
    partitions: int
    warmup_seconds: float
    seconds: float

    def work(self) -> Work:
        return self._run

    def _run(self, gate: Gate) -> Report:
        self._channels = [Channel(self.port) for _ in range(self.members)]
        self._rounds(self.warmup_seconds)
        gate.wait()
        begun, cpu = time.monotonic(), time.process_time()
        rounds = self._rounds(self.seconds)
        return Report(
            begun=begun,
            ended=time.monotonic(),
            requests=int(sum(numbers["requests"] for numbers in rounds)),
            records=len(rounds),
            cpu_seconds=time.process_time() - cpu,
            numbers=measure.medians(rounds),
        )

    def _rounds(self, seconds: float) -> list[dict[str, float]]:
        end = time.monotonic() + seconds
        found = [self._round()] if seconds else []
        while time.monotonic() < end:
            found.append(self._round())
        return found

    def _round(self) -> dict[str, float]:
        group = self._group(f"settling-{uuid.uuid4().hex}")
        numbers = {
            "joined_ms": group.join() * 1000,
            "one_left_ms": group.leave_together(1) * 1000,
            "many_left_ms": group.leave_together(min(MANY, self.members // 2)) * 1000,
        }
        numbers["requests"] = group.requests
        group.close()
        return numbers

    def _group(self, name: str) -> Group:
        if self.is_consumer:
            return ConsumerGroup(name, self._channels, self.topic, self.partitions)
        return Group(name, self._channels, Classic)
