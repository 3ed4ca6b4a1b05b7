"""Ids for topics created before Kafka 2.8, assigned by the next controller that supports them, as by Kafka 3.9.1."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka_zookeeper import OLD_KAFKA, V3, OldKafka, ZooKeeper

from odradek.base.units import TopicName
from odradek.base.uuids import ZERO_UUID, Uuid, from_text
from odradek.coordination import tree_layout as layout
from odradek.coordination.zookeeper import open_zookeeper
from odradek.core.kernel.cluster_view import TopicAssignment
from support.serving import Serving
from support.waiting import SECONDS_MAX, until

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("shares a ZooKeeper with brokers of Apache Kafka")]

TOPIC, PARTITIONS = TopicName("flights"), 2
VALUE = b"LIS"
LEVELS = ("2.7", "3.9")
Start = Callable[[str], AbstractContextManager[Serving | OldKafka]]  # By inter.broker.protocol.version.


class Seen(NamedTuple):
    """State at one version: the znode without its id, and whether the znode and each log have an id."""

    assignment: TopicAssignment
    version: int
    has_id: bool
    logs_have_it: bool
    retention: str


def assignment(connect: str) -> tuple[TopicAssignment, int]:
    tree = open_zookeeper(connect)
    try:
        data, stat = tree.get(layout.topic(TOPIC))
        return layout.decode_topic(data), stat.version
    finally:
        tree.close()


def ids_of_logs(data: Path) -> set[Uuid | None]:
    found: set[Uuid | None] = set()
    for index in range(PARTITIONS):
        path = data / f"{TOPIC}-{index}" / "partition.metadata"
        match = re.search(r"topic_id: (\S+)", path.read_text()) if path.exists() else None
        found.add(None if match is None else from_text(match[1]))
    return found


def used(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    topic = NewTopic(TOPIC, PARTITIONS, 1, config={"retention.ms": "1000000"})
    admin.create_topics([topic])[TOPIC].result(SECONDS_MAX)
    producer = Producer({"bootstrap.servers": address, "log_level": 0})
    for index in range(PARTITIONS):
        producer.produce(TOPIC, VALUE, partition=index)
    assert producer.flush(SECONDS_MAX) == 0


def values(address: str) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "nobody", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    found = [message.value() for message in consumer.consume(PARTITIONS, SECONDS_MAX)]
    consumer.close()
    return found


def retention(connect: str) -> str:
    tree = open_zookeeper(connect)
    try:
        return layout.decode_config(tree.get(layout.config(layout.TOPIC_CONFIGS, TOPIC))[0])["retention.ms"]
    finally:
        tree.close()


def raised(start: Start, connect: str, data: Path) -> Iterator[Seen]:
    """Yield the state before and after the version is raised."""
    for level in LEVELS:
        with start(level) as broker:
            if level == LEVELS[0]:
                used(broker.address)
            else:
                until(lambda: assignment(connect)[0].topic_id != ZERO_UUID)
                until(lambda: ids_of_logs(data) == {assignment(connect)[0].topic_id})
            assert values(broker.address) == [VALUE] * PARTITIONS
            found, version = assignment(connect)
            logs_have_it = ids_of_logs(data) == {found.topic_id}
            has_id = found.topic_id != ZERO_UUID
            yield Seen(found._replace(topic_id=ZERO_UUID), version, has_id, logs_have_it, retention(connect))


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


def test_topic_ids_are_assigned_as_by_kafkas_controller(tmp_path: Path, zookeeper: ZooKeeper) -> None:
    settings = {"broker.id": "1", "zookeeper.session.timeout.ms": "18000"}
    connect = f"127.0.0.1:{zookeeper.port}"

    def theirs(level: str) -> OldKafka:
        version = {"inter.broker.protocol.version": level}
        return OldKafka(tmp_path / "theirs", V3, settings | version, zookeeper=f"{connect}/theirs")

    def ours(level: str) -> Serving:
        folder = tmp_path / "ours"
        folder.mkdir(exist_ok=True)
        own = {"listeners": "PLAINTEXT://127.0.0.1:0", "zookeeper.connect": f"{connect}/ours"}
        return Serving(folder, **settings, **own, **{"inter.broker.protocol.version": level})

    expected = list(raised(theirs, f"{connect}/theirs", tmp_path / "theirs" / "data"))
    assert [(seen.has_id, seen.logs_have_it) for seen in expected] == [(False, False), (True, True)]
    assert list(raised(ours, f"{connect}/ours", tmp_path / "ours" / "data")) == expected


def test_records_stay_if_the_broker_was_killed_before(tmp_path: Path, zookeeper: ZooKeeper) -> None:
    """A log without an id could belong to an earlier topic of that name, and does not."""
    connect = f"127.0.0.1:{zookeeper.port}/killed"
    own = {"listeners": "PLAINTEXT://127.0.0.1:0", "zookeeper.connect": connect, "zookeeper.session.timeout.ms": "2000"}
    with Serving(tmp_path, **own, **{"inter.broker.protocol.version": LEVELS[0]}) as broker:
        used(broker.address)
        broker.kill()
        broker.start({"inter.broker.protocol.version": LEVELS[1]})
        until(lambda: ids_of_logs(tmp_path / "data") == {assignment(connect)[0].topic_id})
        assert values(broker.address) == [VALUE] * PARTITIONS
        assert not list((tmp_path / "data").glob("*-stray"))
