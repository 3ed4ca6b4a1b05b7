"""Planned stops of one of three brokers: clients with acks=all and three replicas notice only new leaders.

Each broker in turn is stopped (SIGTERM) and restarted, under producers and consumer groups of librdkafka and Java; each
time the preferred replicas are elected automatically.
"""

from __future__ import annotations

import json
import re
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka_peer import REAL_KAFKA
from kafka_tools import CONSOLE_CONSUMER, VERIFIABLE_PRODUCER, ran

from support.serving_cluster import ServingCluster
from support.waiting import SECONDS_MAX, until

pytestmark = [*REAL_KAFKA, pytest.mark.nightly]

BROKERS = (1, 2, 3)
LIBRDKAFKA, JAVA = "librdkafka", "java"
PARTITIONS = 6
PAUSE_SECONDS = 0.002
SETTINGS = {
    "leader.imbalance.check.interval.seconds": "1",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
}


class Writer:
    """A librdkafka producer in a thread; `failures` and `fatal` stay empty."""

    def __init__(self, address: str) -> None:
        self.failures: list[KafkaError] = []
        self.fatal: list[KafkaError] = []
        self.sent = 0
        self._is_over = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "linger.ms": 5,
                "error_cb": lambda error: self.fatal.append(error) if error.fatal() else None,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.failures.append(error)

    def _run(self) -> None:
        while not self._is_over.is_set():
            value = b"%d" % self.sent
            self._producer.produce(LIBRDKAFKA, value, partition=self.sent % PARTITIONS, on_delivery=self._delivered)
            self.sent += 1
            self._producer.poll(PAUSE_SECONDS)

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()
        assert self._producer.flush(SECONDS_MAX) == 0


class Reader:
    """A librdkafka consumer in a group, in a thread; `failures` stays empty."""

    def __init__(self, address: str) -> None:
        self.found: list[int] = []
        self.failures: list[KafkaError] = []
        self._is_over = threading.Event()
        self._address = address
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._address,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        consumer.subscribe([LIBRDKAFKA])
        while not self._is_over.is_set():
            message = consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                self.failures.append(error)
            else:
                self.found.append(int(message.value() or b""))
        consumer.close()

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()


def are_led_as_preferred(admin: AdminClient) -> bool:
    """Return whether all replicas are in sync, and the first replica of each partition leads it."""
    topics = admin.list_topics(timeout=SECONDS_MAX).topics.values()
    partitions = [partition for topic in topics for partition in topic.partitions.values()]
    return all(one.leader == one.replicas[0] and sorted(one.isrs) == list(BROKERS) for one in partitions)


def restart_each(cluster: ServingCluster, admin: AdminClient) -> None:
    for broker in BROKERS:
        ready = len(cluster.lines)
        cluster.signal(broker, signal.SIGTERM)
        until(lambda: len(cluster.lines) > ready)  # noqa: B023  # It is over when the loop goes on.
        until(lambda: are_led_as_preferred(admin))


def test_planned_restarts_cause_no_client_errors(tmp_path: Path) -> None:
    properties = tmp_path / "producer.properties"
    properties.write_text("enable.idempotence=true\nretries=2147483647\n")
    with ServingCluster(tmp_path, configs=SETTINGS) as cluster, ThreadPoolExecutor(2) as javas:
        admin = AdminClient({"bootstrap.servers": cluster.address, "log_level": 0})
        topics = [NewTopic(name, PARTITIONS, 3, config={"min.insync.replicas": "2"}) for name in (LIBRDKAFKA, JAVA)]
        for made in admin.create_topics(topics).values():
            made.result(SECONDS_MAX)
        at = ("--bootstrap-server", cluster.address, "--topic", JAVA)
        count = 10_000
        limits = ("--max-messages", str(count), "--throughput", "500", "--acks", "-1")
        java_writes = javas.submit(ran, VERIFIABLE_PRODUCER, *at, *limits, "--command-config", str(properties))
        java_reads = javas.submit(ran, CONSOLE_CONSUMER, *at, "--from-beginning", "--max-messages", str(count))
        writer, reader = Writer(cluster.address), Reader(cluster.address)
        until(lambda: len(reader.found) > 100)
        restart_each(cluster, admin)
        writer.close()
        until(lambda: len(reader.found) >= writer.sent)
        reader.close()
        assert (writer.failures, writer.fatal, reader.failures) == ([], [], [])
        assert sorted(reader.found) == list(range(writer.sent))
        output = java_writes.result()
        assert "producer_send_error" not in output
        lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        assert sum(line["name"] == "producer_send_success" for line in lines) == count
        found = re.findall(r"^\d+$", java_reads.result(), re.MULTILINE)
        assert sorted(map(int, found)) == list(range(count))
    assert "Traceback" not in cluster.errors()
