"""One producer, one transaction after the other, each of 100 records, through one of three clients.

frames: a Produce request with a batch for each partition and EndTxn, as clients of 4.0 and later have it; nothing else.
librdkafka: confluent-kafka with its default settings.
java: load_java.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from load import Gate, Report, Work
from transacting import Transacting

from odradek.record.builder import encode_batch

RECORDS = 100
ANSWER_SECONDS_MAX = 30

Transact = Callable[[], None]


@dataclass
class Plan:
    """With a `group`, each transaction commits one offset of it, too."""

    port: int
    topic: str
    partitions: int
    transactional_id: str
    group: str | None
    values: list[bytes]
    warmup_seconds: float
    seconds: float

    @property
    def value_bytes(self) -> int:
        """Of one transaction."""
        return sum(map(len, self.values))

    def work(self, client: str) -> Work:
        begin = {"frames": self._with_frames, "librdkafka": self._with_librdkafka}[client]
        return lambda gate: self._run(begin(), gate)

    def _run(self, transact: Transact, gate: Gate) -> Report:
        warm = len(_repeat(transact, self.warmup_seconds))
        gate.wait()
        begun, cpu = time.monotonic(), time.process_time()
        latencies = _repeat(transact, self.seconds)
        return Report(
            begun=begun,
            ended=time.monotonic(),
            requests=len(latencies),
            records=len(latencies) * RECORDS,
            wire_bytes=len(latencies) * self.value_bytes,
            cpu_seconds=time.process_time() - cpu,
            latencies=latencies,
            total_records=(warm + len(latencies)) * RECORDS,
        )

    def _with_frames(self) -> Transact:
        now = time.time_ns() // 1_000_000
        each = [self.values[at :: self.partitions] for at in range(self.partitions)]
        batches = [bytes(encode_batch((None, value, (), now) for value in values)) for values in each]
        return Transacting(self.port, self.topic, self.transactional_id, batches).transact

    def _with_librdkafka(self) -> Transact:
        from confluent_kafka import Consumer, Producer, TopicPartition

        address = {"bootstrap.servers": f"127.0.0.1:{self.port}"}
        producer = Producer({**address, "transactional.id": self.transactional_id})
        producer.init_transactions(ANSWER_SECONDS_MAX)
        consumer = Consumer({**address, "group.id": self.group}) if self.group else None
        placed = [(value, number % self.partitions) for number, value in enumerate(self.values)]
        position = 0

        def transact() -> None:
            nonlocal position
            producer.begin_transaction()
            for value, partition in placed:
                producer.produce(self.topic, value, partition=partition)
            if consumer is not None:
                position += RECORDS
                offsets = [TopicPartition(self.topic, 0, position)]
                producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), ANSWER_SECONDS_MAX)
            producer.commit_transaction(ANSWER_SECONDS_MAX)

        return transact


def _repeat(transact: Transact, seconds: float) -> list[tuple[float, int]]:
    """How long each took; at least one is done."""
    found: list[tuple[float, int]] = []
    now = time.monotonic()
    end = now + seconds
    while not found or now < end:
        transact()
        before, now = now, time.monotonic()
        found.append((now - before, 1))
    return found
