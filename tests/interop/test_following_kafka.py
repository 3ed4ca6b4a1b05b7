"""An Odradek broker that follows Apache Kafka leaders: its logs are equal byte for byte, and it is in sync."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka_zookeeper import OLD_KAFKA, V0, V3, OldKafka, ZooKeeper

from support.serving import Serving
from support.waiting import SECONDS_MAX, until

pytestmark = OLD_KAFKA

TOPIC, PARTITIONS, THEIRS, OURS = "flights", 3, 1, 2
SESSION_MS = "6000"
LEVELS = {V3: "3.9", V0: "0.11.0"}


def in_sync(admin: AdminClient) -> list[list[int]]:
    topic = admin.list_topics(TOPIC, timeout=SECONDS_MAX).topics[TOPIC]
    return [sorted(partition.isrs) for _, partition in sorted(topic.partitions.items())]


def files(data: Path) -> Iterator[tuple[str, bytes]]:
    """Return the records of each partition, and the start of each leader epoch."""
    for index in range(PARTITIONS):
        for name in ("00000000000000000000.log", "leader-epoch-checkpoint"):
            path = data / f"{TOPIC}-{index}" / name
            yield f"{index} {name}", path.read_bytes() if path.exists() else b""


def produced(address: str, first: int, count: int, codec: str) -> None:
    """Write each number once, to all in-sync replicas, in several batches."""
    producer = Producer(
        {"bootstrap.servers": address, "acks": "all", "compression.type": codec, "linger.ms": 5, "log_level": 0}
    )
    failures = []
    for number in range(first, first + count):
        producer.produce(
            TOPIC,
            b"%d" % number * 20,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        if number % 97 == 0:
            producer.flush(SECONDS_MAX)
    assert producer.flush(SECONDS_MAX) == 0
    assert not failures


@pytest.mark.nightly
@pytest.mark.parametrize("version", [V3, V0])
def test_a_followers_logs_equal_kafkas(tmp_path: Path, version: str) -> None:
    with ZooKeeper(tmp_path / "zookeeper") as zookeeper:
        connect = f"127.0.0.1:{zookeeper.port}/kafka"
        settings = {"broker.id": str(THEIRS), "zookeeper.session.timeout.ms": SESSION_MS}
        with OldKafka(tmp_path / "kafka", version, settings, zookeeper=connect) as kafka:
            (tmp_path / "ours").mkdir()
            ours = Serving(
                tmp_path / "ours",
                **{
                    "broker.id": str(OURS),
                    "listeners": "PLAINTEXT://127.0.0.1:0",
                    "zookeeper.connect": connect,
                    "zookeeper.session.timeout.ms": SESSION_MS,
                    "inter.broker.protocol.version": LEVELS[version],
                },
            )
            admin = AdminClient({"bootstrap.servers": kafka.address, "log_level": 0})
            with ours:
                topic = NewTopic(TOPIC, PARTITIONS, replica_assignment=[[THEIRS, OURS]] * PARTITIONS)
                admin.create_topics([topic])[TOPIC].result(SECONDS_MAX)
                produced(kafka.address, 0, 500, "none")
                assert in_sync(admin) == [[THEIRS, OURS]] * PARTITIONS
                produced(kafka.address, 500, 500, "gzip")
            produced(kafka.address, 1000, 500, "none")  # The session has to end first.
            assert in_sync(admin) == [[THEIRS]] * PARTITIONS
            with ours:
                until(lambda: in_sync(admin) == [[THEIRS, OURS]] * PARTITIONS)
                produced(kafka.address, 1500, 500, "none")
                theirs, found = dict(files(kafka.data)), dict(files(tmp_path / "ours" / "data"))
                assert found == theirs
                assert all(len(data) > 100 for name, data in found.items() if name.endswith(".log"))
            assert "Traceback" not in ours.errors()
