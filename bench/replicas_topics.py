"""A topic of one case, whose partitions are led by one broker after the other."""

from __future__ import annotations

import time
from contextlib import suppress
from types import TracebackType

import frames
import load_produce
from brokers import new_topic
from clusters import BROKERS, Cluster, until
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from load import loaded

SECONDS_MAX = 120
FILL_SECONDS_MAX = 60
IN_FLIGHT = 5
DELETION_SECONDS = 0.5  # Until the files are away, and the replicas with them.


class Topic:
    """Exists within `with`; all replicas are in sync when that begins."""

    def __init__(self, cluster: Cluster, partitions: int, replicas: int) -> None:
        self.name = new_topic()
        self.partitions = partitions
        self._cluster = cluster
        self._assignment = [
            [BROKERS[(partition + further) % len(BROKERS)] for further in range(replicas)]
            for partition in range(partitions)
        ]
        self.address = ",".join(f"127.0.0.1:{cluster.port(broker)}" for broker in BROKERS)
        self._admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    def __enter__(self) -> Topic:
        topic = NewTopic(self.name, self.partitions, replica_assignment=self._assignment)
        self._admin.create_topics([topic])[self.name].result(SECONDS_MAX)
        until(lambda: self.in_sync() == [set(replicas) for replicas in self._assignment] and self._is_led())
        until(lambda: self.end() == 0)  # The leaders know it, too, and not only who was asked.
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._admin.delete_topics([self.name])[self.name].result(SECONDS_MAX)
        time.sleep(DELETION_SECONDS)

    def port(self, partition: int) -> int:
        """Of the broker that leads it from the beginning on."""
        return self._cluster.port(self._assignment[partition][0])

    def in_sync(self) -> list[set[int]]:
        found = self._admin.list_topics(self.name, timeout=SECONDS_MAX).topics[self.name].partitions
        return [set(found[partition].isrs) for partition in sorted(found)]

    def _is_led(self) -> bool:
        found = self._admin.list_topics(self.name, timeout=SECONDS_MAX).topics[self.name].partitions
        return all(found[index].leader == replicas[0] for index, replicas in enumerate(self._assignment))

    def end(self) -> int:
        """Returns how many records the partitions hold together."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "bench", "log_level": 0})
        ends: dict[int, int] = {}

        def read_ends() -> bool:
            with suppress(KafkaException):  # Of a broker, say, that has not heard of the topic yet.
                for partition in range(self.partitions):
                    one = TopicPartition(self.name, partition)
                    ends[partition] = consumer.get_watermark_offsets(one, timeout=SECONDS_MAX)[1]
                return True
            return False

        try:
            until(read_ends)
            return sum(ends.values())
        finally:
            consumer.close()

    def verify(self, records: int) -> None:
        try:
            until(lambda: self.end() == records)  # What was sent with acks=1 is there when the others have it.
        except RuntimeError:
            raise RuntimeError(f"{self.name} has {self.end()} records instead of {records}") from None

    def fill(self, size: int, value_bytes: int) -> int:
        """Puts so many bytes more into the partitions together; returns how many batches each has of them."""
        data, records = frames.batch(value_bytes, 16384)
        units = max(size // len(data) // self.partitions, 1)
        before = self.end()
        works = [
            load_produce.filling(
                self.port(partition),
                self.name,
                frames.produce(self.name, partition, 1, data),
                records,
                units,
                IN_FLIGHT,
                FILL_SECONDS_MAX,
            )
            for partition in range(self.partitions)
        ]
        loaded(works)
        self.verify(before + units * records * self.partitions)
        return units
