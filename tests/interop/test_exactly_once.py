"""Consume, transform, produce: the sink has the source's records once and in order, whatever is killed."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from copiers.instances import Instances
from copiers.programs import PROGRAMS, Program
from workload.brokers import BROKERS, broker, create_topics
from workload.final import end_of
from workload.settings import Clients
from workload.worker import Partition

PARTITIONS = 4
RECORDS = 2_000
SOURCE, SINK, GROUP = "source", "sink", "copiers"
SECONDS_MAX = 120


@pytest.mark.share(5)
@pytest.mark.parametrize("program", PROGRAMS, ids=str)
@pytest.mark.parametrize("name", BROKERS)
def test_each_record_is_copied_once(tmp_path: Path, name: str, program: Program) -> None:
    with broker(name, tmp_path) as running:
        clients = Clients(running.address)
        create_topics(running.address, {SOURCE: PARTITIONS, SINK: PARTITIONS})
        expected = fill(clients)
        with (
            Instances(program, 2, tmp_path, address=running.address, group=GROUP, topics=(SOURCE, SINK)) as instances,
            Sink(clients) as sink,
        ):
            sink.read(RECORDS // 5, instances)
            instances.kill(0)
            sink.read(2 * RECORDS // 5, instances)
            running.kill()
            running.start()
            sink.read(3 * RECORDS // 5, instances)
            instances.kill(1)
            sink.read(RECORDS, instances)
        print(f"{instances.restarts} instances ended by themselves:\n{instances.output()}")
        with Sink(clients) as sink:
            sink.read_to_the_end()
        assert sink.values == expected
        assert committed(clients) == {number: len(values) for number, values in expected.items()}


def fill(clients: Clients) -> dict[int, list[int]]:
    """Write the source and return its values by partition."""
    producer = Producer(clients.producer())
    expected: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    for value in range(RECORDS):
        expected[value % PARTITIONS].append(value)
        producer.produce(SOURCE, str(value).encode(), partition=value % PARTITIONS)
    assert producer.flush(SECONDS_MAX) == 0
    return expected


def committed(clients: Clients) -> dict[int, int]:
    """Return the group's offsets in the source, by partition."""
    partitions = [TopicPartition(SOURCE, partition) for partition in range(PARTITIONS)]
    with closing(Consumer(clients.member(GROUP, "classic"))) as consumer:
        return {one.partition: one.offset for one in consumer.committed(partitions, SECONDS_MAX)}


class Sink:
    """A context with a reader of the sink's committed records, from its beginning."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._consumer = Consumer(clients.consumer() | {"enable.partition.eof": True})
        self._ends: dict[int, int] = {}  # Known ends of the sink, by partition.
        self.values: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}

    def __enter__(self) -> Sink:
        self._consumer.assign([TopicPartition(SINK, partition, 0) for partition in range(PARTITIONS)])
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read(self, count: int, instances: Instances) -> None:
        """Read at least so many records."""
        until = time.monotonic() + SECONDS_MAX
        while (copied := sum(map(len, self.values.values()))) < count:
            assert time.monotonic() < until, f"{copied} of {count}; {instances.restarts} ended: {instances.output()}"
            self._read()

    def read_to_the_end(self) -> None:
        until = time.monotonic() + SECONDS_MAX
        ends = {number: end_of(self._clients, Partition(SINK, number), until) for number in range(PARTITIONS)}
        while any(self._ends.get(number, -1) < end for number, end in ends.items()):
            assert time.monotonic() < until, f"{self._ends} of {ends}"
            self._read()

    def _read(self) -> None:
        message = self._consumer.poll(0.1)
        if message is None:
            return
        partition, error, value, offset = message.partition(), message.error(), message.value(), message.offset()
        assert partition is not None
        if error is None:
            assert value is not None
            self.values[partition].append(int(value))
        elif error.code() == KafkaError._PARTITION_EOF:
            assert offset is not None
            self._ends[partition] = offset
