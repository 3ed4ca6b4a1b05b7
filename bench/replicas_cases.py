"""The cases of replicas.py, and what their clients do."""

from __future__ import annotations

from typing import NamedTuple

import frames
import load_consume
import load_produce
from control import Control
from load import Work
from replicas_topics import IN_FLIGHT, Topic
from sequences import Sequenced

BATCH_BYTES = 16384
PRODUCED_BYTES_MAX = 3 << 30  # By all producers of a case; each replica has as much.
FILLED_BYTES = 512 << 20
LEADER, ALL = 1, -1


class Case(NamedTuple):
    """`seconds` are in the place of those that the command says."""

    name: str
    value_bytes: int = 100
    producers: int = 1
    acks: int = ALL
    replicas: int = 3
    codec: str = "none"
    has_sequences: bool = False
    consumers: int = 0
    follows: bool = False  # The consumers read what the producers send, and not what was there before.
    seconds: float | None = None

    @property
    def partitions(self) -> int:
        return max(self.producers, self.consumers)

    def works(self, topic: Topic, filled: int | None, seconds: float, warmup_seconds: float) -> list[Work]:
        seconds = self.seconds or seconds
        producers = [self._producer(topic, number, seconds, warmup_seconds) for number in range(self.producers)]
        consumers = [
            self._consumer(topic, number, filled or 0, seconds, warmup_seconds) for number in range(self.consumers)
        ]
        return producers + consumers

    def _producer(self, topic: Topic, partition: int, seconds: float, warmup_seconds: float) -> Work:
        batch = frames.batch(self.value_bytes, BATCH_BYTES, self.codec)
        return load_produce.Plan(
            port=topic.port(partition),
            topic=topic.name,
            ring=self._ring(topic, partition, batch),
            records_per_request=batch.records,
            window=IN_FLIGHT,
            warmup_seconds=warmup_seconds,
            seconds=seconds,
            requests_max=PRODUCED_BYTES_MAX // len(batch.data) // self.producers,
        ).work()

    def _ring(self, topic: Topic, partition: int, batch: frames.Batches) -> load_produce.Frames:
        if not self.has_sequences:
            return load_produce.Ring([frames.produce(topic.name, partition, self.acks, batch.data)], IN_FLIGHT)
        producer = Control(topic.port(partition)).new_producer()
        return Sequenced(topic.name, self.acks, batch, producer, IN_FLIGHT, partition=partition)

    def _consumer(self, topic: Topic, partition: int, units: int, seconds: float, warmup_seconds: float) -> Work:
        batch = frames.batch(self.value_bytes, BATCH_BYTES)
        return load_consume.Plan(
            port=topic.port(partition),
            topic=topic.name,
            partition=partition,
            units=units,
            unit_bytes=len(batch.data),
            unit_records=batch.records,
            verifies=True,
            follows=self.follows,
            warmup_seconds=warmup_seconds,
            seconds=seconds,
        ).work()


def _matrix() -> list[Case]:
    return [
        Case(
            f"{size}, {producers} {'producer' if producers == 1 else 'producers'}"
            + (", sequences" if has_sequences else "")
            + (", lz4" if codec != "none" else ""),
            value_bytes,
            producers,
            codec=codec,
            has_sequences=has_sequences,
        )
        for size, value_bytes in (("100 B", 100), ("1 KiB", 1024))
        for producers in (1, 6)
        for has_sequences in (False, True)
        for codec in ("none", "lz4")
    ]


CASES = (
    Case("LinkedIn: one producer, one replica", acks=LEADER, replicas=1),
    Case("LinkedIn: one producer, three replicas, acks=1", acks=LEADER),
    Case("LinkedIn: one producer, three replicas, acks=all"),
    Case("LinkedIn: three producers, three replicas, acks=1", producers=3, acks=LEADER),
    Case("LinkedIn: one consumer", producers=0, consumers=1),
    Case("LinkedIn: three consumers", producers=0, consumers=3),
    Case("LinkedIn: a producer and its consumer", acks=LEADER, consumers=1, follows=True),
    Case("a producer, and a consumer of what is old", acks=LEADER, consumers=1),
    *_matrix(),
)
