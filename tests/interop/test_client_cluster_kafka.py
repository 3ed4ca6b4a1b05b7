"""The client while the brokers of a cluster are killed and restarted, one after the other: every record once."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from client_peers import quick_config
from kafka_cluster import NODES, KafkaCluster
from kafka_peer import REAL_KAFKA

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicPartition
from odradek.client.admin.admin import NewTopic, create_topics, delete_topics
from odradek.client.admin.metadata_propagation import wait_until_seen
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_errors import ErrorResponse
from odradek.client.consumer.fetcher import EARLIEST, list_offsets
from odradek.client.consumer.group_consumer import GroupConsumer
from odradek.client.consumer.group_member import GroupMember
from odradek.client.consumer.group_offsets import Committed, Membership
from odradek.client.producer.transactional import TransactionalProducer
from odradek.record.records import decode

pytestmark = [
    *REAL_KAFKA,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.own_peer("commands against brokers of Apache Kafka"),
]

ODRADEK = [sys.executable, "-m", "odradek"]
PARTITIONS = 6
LAST = b"last"


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaCluster]:
    with KafkaCluster(tmp_path / "kafka") as cluster:
        yield cluster


class Numbers:
    """A run of `odradek produce` that writes rising numbers into a topic until it is stopped."""

    def __init__(self, addresses: str, topic: str) -> None:
        command = [*ODRADEK, "produce", topic, "-b", addresses]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE)
        self._is_over = threading.Event()
        self.count = 0

    def write(self) -> None:
        assert self._process.stdin is not None
        while not self._is_over.wait(0.01):
            self._process.stdin.write(b"%d\n" % self.count)
            self._process.stdin.flush()
            self.count += 1
        self._process.stdin.close()
        assert self._process.wait() == 0

    def stop(self) -> None:
        self._is_over.set()


def copy(addresses: str, source: str, sink: str, name: str, is_over: threading.Event) -> int:
    """Copy records as a group member, each in a transaction with its offset; return their number."""
    copied = 0
    with Cluster(quick_config(addresses)) as cluster:
        producer = TransactionalProducer(cluster, name)
        member = GroupMember(cluster, "copiers", [source], session_timeout_ms=10_000, heartbeat_interval_ms=500)
        consumer = GroupConsumer(cluster, member, start=partial(beginning, cluster))
        while not is_over.is_set():
            arrived = [each for each in consumer.poll(500) if consumer.owns(each.partition)]
            if arrived:
                with producer.transaction():
                    for each in arrived:
                        for record in (record for batch in each.batches() for record in decode(batch)):
                            if record.offset >= each.fetch_offset:
                                producer.send(sink, record.value, partition=each.partition.partition)
                                copied += 1
                    offsets = {each.partition: Committed(each.next_offset) for each in arrived}
                    producer.send_offsets("copiers", offsets, Membership(member.generation, member.member_id))
        member.leave()
    return copied


def beginning(cluster: Cluster, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    return {at: found.offset for at, found in list_offsets(cluster, dict.fromkeys(partitions, EARLIEST)).items()}


def create_and_delete_topics(addresses: str, is_over: threading.Event) -> int:
    """Create and delete topics while the controller changes; return their number."""
    count = 0
    with Cluster(quick_config(addresses)) as cluster:
        while not is_over.is_set():
            name = f"passing-{count}"
            try:
                create_topics(cluster, [NewTopic(name, 2, 2)])
            except ErrorResponse as error:  # No other client creates it.
                assert error.code == ErrorCode.TOPIC_ALREADY_EXISTS and "an earlier response was lost" in str(error)
            assert wait_until_seen(cluster, name, 2)
            delete_topics(cluster, [name])
            assert wait_until_seen(cluster, name, 0)
            count += 1
            is_over.wait(0.3)
    return count


@pytest.mark.soak
def test_every_record_once_while_brokers_are_killed(kafka: KafkaCluster) -> None:
    with Cluster(quick_config(kafka.addresses)) as cluster:
        create_topics(cluster, [NewTopic("source", PARTITIONS, 3), NewTopic("sink", PARTITIONS, 3)])
    numbers, is_over = Numbers(kafka.addresses, "source"), threading.Event()
    with ThreadPoolExecutor(4) as threads:
        written = threads.submit(numbers.write)
        copied = [threads.submit(copy, kafka.addresses, "source", "sink", f"c{n}", is_over) for n in range(2)]
        passed = threads.submit(create_and_delete_topics, kafka.addresses, is_over)
        running: list[Future[Any]] = [written, passed, *copied]
        try:
            for node in NODES[:2]:  # More often than not, one of them is or was the controller.
                kafka[node].kill()
                kafka.start(node)
                for each in running:
                    assert not each.done(), each.exception()
            numbers.stop()
            written.result()
            expected = Counter(b"%d" % number for number in range(numbers.count))
            assert consumed(kafka, "source") == expected
            while sum(consumed(kafka, "sink", "--committed").values()) < numbers.count:
                assert not any(each.done() for each in copied)
        finally:
            numbers.stop()
            is_over.set()
        assert sum(each.result() for each in copied) >= numbers.count
        assert consumed(kafka, "sink", "--committed") == expected
        assert passed.result() > 0


def consumed(kafka: KafkaCluster, topic: str, *options: str) -> Counter[bytes]:
    command = [*ODRADEK, "consume", topic, "-b", kafka.addresses, *options]
    return Counter(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.split())
