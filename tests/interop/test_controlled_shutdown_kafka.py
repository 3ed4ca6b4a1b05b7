"""Controlled shutdown of Odradek brokers with replicated topics: they hand over, and never wait in vain.

The topics are written into the tree, as old administration tools wrote them.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka_zookeeper import OLD_KAFKA, V3, OldKafka, ZooKeeper

from odradek.base.units import BrokerId, TopicName
from odradek.base.uuids import Uuid
from odradek.coordination import tree_layout as layout
from odradek.coordination.sqlite import METADATA_FILE, SqliteTree
from odradek.coordination.tree import Create, Tree, ensure_paths
from odradek.coordination.znodes import PartitionState
from odradek.coordination.zookeeper import open_zookeeper
from odradek.core.kernel.cluster_view import TopicAssignment
from support.asking import leaders
from support.serving import Serving
from support.serving_cluster import ServingCluster
from support.tree_controller import controller_in
from support.waiting import SECONDS_MAX, until

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("shares a ZooKeeper with brokers of Apache Kafka")]

TOPIC = TopicName("flights")
RETRIED = "controlled shutdown attempt failed"


def create(tree: Tree, *replicas: tuple[int, ...]) -> None:
    partitions = {index: tuple(map(BrokerId, brokers)) for index, brokers in enumerate(replicas)}
    assignment = layout.encode_topic(TopicAssignment(partitions, Uuid(b"flights---------")))
    ensure_paths(tree, [layout.config(layout.TOPIC_CONFIGS, TOPIC)])
    tree.multi([Create(layout.topic(TOPIC), assignment)])


def state(tree: Tree, index: int = 0) -> PartitionState | None:
    path = layout.partition_state(TOPIC, index)
    return None if tree.exists(path) is None else layout.decode_partition_state(tree.get(path)[0])


def isr(tree: Tree, index: int = 0) -> tuple[int, ...]:
    found = state(tree, index)
    return () if found is None else found.isr


def written(address: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": address, "acks": "all", "log_level": 0})
    ends: list[object] = []
    for value in values:
        producer.produce(TOPIC, value, partition=0, on_delivery=lambda error, _: ends.append(error))
    assert producer.flush(SECONDS_MAX) == 0
    assert ends == [None] * len(values)


def read(address: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False, "log_level": 0})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found = [message.value() for message in consumer.consume(count, SECONDS_MAX)]
    consumer.close()
    return found


def test_a_stopping_controller_hands_over_its_leaderships(tmp_path: Path) -> None:
    """Afterwards a broker of Apache Kafka leads and becomes the controller."""
    with ZooKeeper(tmp_path / "zookeeper") as zookeeper:
        connect = f"127.0.0.1:{zookeeper.port}/kafka"
        (tmp_path / "1").mkdir()
        timeout = {"zookeeper.session.timeout.ms": "18000"}
        own = {"broker.id": "1", "listeners": "PLAINTEXT://127.0.0.1:0", "zookeeper.connect": connect, **timeout}
        with (
            Serving(tmp_path / "1", **own) as ours,
            OldKafka(tmp_path / "2", V3, {"broker.id": "2", **timeout}, zookeeper=connect) as theirs,
            closing(open_zookeeper(connect)) as tree,
        ):
            assert controller_in(tree) == 1
            create(tree, (1, 2))
            until(lambda: isr(tree) == (1, 2))
            until(
                lambda: leaders(ours.address, TOPIC) == {0: 1}
            )  # The broker learns of it a moment after it is in the tree.
            assert ours.stop() == 0
            until(lambda: tree.exists(layout.CONTROLLER) is not None)
            assert controller_in(tree) == 2
            led = state(tree)
            assert led is not None and (led.leader, led.isr) == (2, (2,))
            assert led.controller_epoch == 1, "it was elected before the stop, and not because of it"
            assert RETRIED not in ours.errors() and "Traceback" not in ours.errors()
            written(theirs.address, [b"LIS"])
            assert read(theirs.address, 1) == [b"LIS"]
            admin = AdminClient({"bootstrap.servers": theirs.address, "log_level": 0})
            assert admin.list_topics(timeout=SECONDS_MAX).controller_id == 2


def test_brokers_stopped_together_do_not_wait_for_each_other(tmp_path: Path) -> None:
    retries = {"controlled.shutdown.retry.backoff.ms": str(10 * SECONDS_MAX * 1000)}
    with ServingCluster(tmp_path, configs=retries) as cluster:
        tree = SqliteTree(tmp_path / "data" / METADATA_FILE)
        create(tree, (1, 2), (2, 3), (3, 1), (1, 2, 3))
        until(lambda: [sorted(isr(tree, index)) for index in range(4)] == [[1, 2], [2, 3], [1, 3], [1, 2, 3]])
        tree.close()
        assert cluster.stop() == 0
    assert "Traceback" not in cluster.errors()
