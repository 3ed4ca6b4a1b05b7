"""The same work through confluent-kafka, that is librdkafka with Python around it, with its default settings but one:
a consumer with 100,000 records in its queue fetches again as soon as there is room, not a second later.

Here the client may well be what is measured: the broker's processor time says more than the rate.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from load import Gate, LoadFailed, Report, Work

FLUSH_SECONDS_MAX = 60
POLL_SECONDS_MAX = 10
CHUNK = 1000


@dataclass
class Plan:
    """A producer or a consumer of one topic of one partition, which holds `records` for the consumer."""

    port: int
    topic: str
    value: bytes
    acks: int
    codec: str
    records: int
    warmup_seconds: float
    seconds: float
    is_idempotent: bool = False

    def producer(self) -> Work:
        return self._produce

    def consumer(self) -> Work:
        return self._consume

    def _produce(self, gate: Gate) -> Report:
        from confluent_kafka import Producer

        settings = {
            "bootstrap.servers": f"127.0.0.1:{self.port}",
            "acks": self.acks,
            "compression.type": self.codec,
            "enable.idempotence": self.is_idempotent,
        }
        source = _Source(Producer(settings), self.topic, self.value)
        warm = source.send(self.warmup_seconds)
        gate.wait()
        begun, cpu = time.monotonic(), time.process_time()
        count = source.send(self.seconds)
        return Report(
            begun=begun,
            ended=time.monotonic(),
            records=count,
            wire_bytes=count * len(self.value),
            failures=source.failures,
            cpu_seconds=time.process_time() - cpu,
            total_records=warm + count,
        )

    def _consume(self, gate: Gate) -> Report:
        from confluent_kafka import Consumer, TopicPartition

        settings = {
            "bootstrap.servers": f"127.0.0.1:{self.port}",
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.queue.backoff.ms": 0,
        }
        consumer = Consumer(settings)
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        if not consumer.consume(1, POLL_SECONDS_MAX):
            raise LoadFailed("nothing came")
        gate.wait()
        begun, cpu = time.monotonic(), time.process_time()
        count = self._read(consumer, begun + self.seconds)
        ended, cpu = time.monotonic(), time.process_time() - cpu
        consumer.close()
        return Report(begun=begun, ended=ended, records=count, wire_bytes=count * len(self.value), cpu_seconds=cpu)

    def _read(self, consumer, end: float) -> int:  # type: ignore[no-untyped-def]
        count = 1
        while count < self.records and time.monotonic() < end:
            messages = consumer.consume(min(CHUNK, self.records - count), POLL_SECONDS_MAX)  # It waits for all.
            if not messages or messages[-1].error():
                raise LoadFailed(f"after {count}: {messages and messages[-1].error()}")
            if messages[-1].offset() != count + len(messages) - 1:
                raise LoadFailed(f"offset {messages[-1].offset()} after {count} records")
            count += len(messages)
        return count - 1


class _Source:
    def __init__(self, producer, topic: str, value: bytes) -> None:  # type: ignore[no-untyped-def]
        self._producer = producer
        self._topic = topic
        self._value = value
        self.failures = 0

    def send(self, seconds: float) -> int:
        """Records delivered; every delivery is waited for."""
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            for _ in range(CHUNK):
                self._put()
            count += CHUNK
            self._producer.poll(0)
        self.failures += self._producer.flush(FLUSH_SECONDS_MAX)
        return count

    def _put(self) -> None:
        while True:
            try:
                self._producer.produce(self._topic, self._value, partition=0, on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(0.01)
            else:
                return

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self.failures += 1
