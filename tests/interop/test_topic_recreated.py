"""A topic deleted while one of its brokers is down, and created again with other partitions, repeatedly."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka_zookeeper import OLD_KAFKA, ZooKeeper
from test_cluster_zookeeper import BROKERS, broker, servers

from odradek.base.units import BrokerId, TopicName
from odradek.base.uuids import to_text
from odradek.coordination import tree_layout as layout
from odradek.coordination.tree import Tree
from odradek.coordination.zookeeper import open_zookeeper
from support.serving import Serving
from support.tree_controller import controller_in
from support.waiting import SECONDS_MAX, until

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("kills brokers on a ZooKeeper of its own")]

TOPIC = "t"
DONE, TAKEN = "done", "TOPIC_ALREADY_EXISTS"
PARTITIONS = (3, 1, 4, 2, 5, 1, 6, 3, 1, 2)
PER_PARTITION = 20
ROUNDS = [1, pytest.param(10, marks=pytest.mark.soak)]


class Case:
    """Three brokers that take turns in being down while the topic is deleted."""

    def __init__(self, connect: str, brokers: dict[int, Serving]) -> None:
        self.brokers = brokers
        self._connect = connect

    def make(self, partitions: int, replicas: int = len(BROKERS)) -> str:
        """Create the topic and return the response."""
        admin = self._admin()
        topic = NewTopic(TOPIC, partitions, replicas)
        return _answer(admin.create_topics([topic], request_timeout=30)[TOPIC])

    def delete(self) -> str:
        admin = self._admin()
        return _answer(admin.delete_topics([TOPIC], operation_timeout=0, request_timeout=30)[TOPIC])

    def _admin(self) -> AdminClient:
        """Return a client that knows the controller: it would wait long for one that is down."""
        admin = AdminClient({"bootstrap.servers": servers(self.brokers), "log_level": 0})
        up = {number for number, one in self.brokers.items() if not one.has_ended}
        until(lambda: admin.list_topics(timeout=SECONDS_MAX).controller_id in up)
        return admin

    def write(self, partitions: int, generation: int) -> None:
        failures: list[KafkaError] = []
        producer = Producer({"bootstrap.servers": servers(self.brokers), "enable.idempotence": True, "log_level": 0})
        for number in range(partitions * PER_PARTITION):
            producer.produce(
                TOPIC,
                b"%d" % generation,
                partition=number % partitions,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        assert producer.flush(SECONDS_MAX) == 0
        assert not failures

    def tree(self) -> closing[Tree]:
        return closing(open_zookeeper(self._connect))

    def next_down(self, generation: int) -> int:
        """Return the controller every other time, else another broker."""
        with self.tree() as tree:
            until(lambda: controller_in(tree) in BROKERS)
            controller = controller_in(tree)
        return controller if generation % 2 else BROKERS[controller % len(BROKERS)]

    def is_registered(self, number: int) -> bool:
        with self.tree() as tree:
            return tree.exists(layout.broker(BrokerId(number))) is not None

    def topic_id(self) -> str:
        with self.tree() as tree:
            topic_id = layout.decode_topic(tree.get(layout.topic(TopicName(TOPIC)))[0]).topic_id
        assert topic_id is not None
        return to_text(topic_id)

    def folders(self, number: int) -> list[Path]:
        """Return all folders of the topic on a broker, with any suffix."""
        return sorted((self.brokers[number].directory / "data").glob(f"{TOPIC}-*"))

    def has_just(self, number: int, partitions: int, beside: str = "/") -> bool:
        """Return whether a broker has exactly the newest topic's partitions, besides marked ones."""
        folders = [folder for folder in self.folders(number) if not folder.name.endswith(beside)]
        if [folder.name for folder in folders] != [f"{TOPIC}-{index}" for index in range(partitions)]:
            return False
        try:
            texts = [(folder / "partition.metadata").read_text() for folder in folders]
        except FileNotFoundError:  # It was renamed just then, or is being created.
            return False
        newest = f"topic_id: {self.topic_id()}"
        return all(newest in text.splitlines() for text in texts)

    def read_at(self, number: int, partitions: int) -> set[bytes]:
        """Return the topic's values as read by a client that gets its metadata from one broker."""
        consumer = Consumer({"bootstrap.servers": self.brokers[number].address, "group.id": "all", "log_level": 0})
        consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(partitions)])
        found = consumer.consume(partitions * PER_PARTITION, SECONDS_MAX)
        assert len(found) == partitions * PER_PARTITION
        consumer.close()
        return {message.value() or b"" for message in found}


def _answer(future: Future[None]) -> str:
    try:
        future.result(SECONDS_MAX)
    except KafkaException as failed:
        return str(failed.args[0].name())
    return DONE


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    with ExitStack() as stack:
        ensemble = stack.enter_context(ZooKeeper(tmp_path / "zookeeper"))
        connect = f"127.0.0.1:{ensemble.port}/kafka"
        settings = {
            "zookeeper.session.timeout.ms": "2000",
            "auto.create.topics.enable": "false",
            "log.segment.delete.delay.ms": "0",
        }
        brokers = {number: stack.enter_context(broker(tmp_path, number, connect, settings)) for number in BROKERS}
        yield Case(connect, brokers)
    for one in brokers.values():
        assert "Traceback" not in one.errors()


@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_returning_broker_has_the_newest_topic_only(case: Case, rounds: int, tmp_path: Path) -> None:
    old = tmp_path / "old"
    for generation, partitions in enumerate(PARTITIONS * rounds):
        until(lambda: case.make(partitions) == DONE)  # noqa: B023  # It is over when the loop goes on.
        case.write(partitions, generation)
        down = case.next_down(generation)
        until(lambda: all(case.has_just(number, partitions) for number in BROKERS))  # noqa: B023
        assert case.read_at(down, partitions) == {b"%d" % generation}
        case.brokers[down].kill()
        if generation == 0:
            for folder in case.folders(down):
                shutil.copytree(folder, old / folder.name)
        if generation % 2:  # Otherwise it is still registered when the topic is deleted.
            until(lambda: not case.is_registered(down))  # noqa: B023
        until(lambda: case.delete() in (DONE, "UNKNOWN_TOPIC_OR_PART"))
        assert case.make(partitions + 1, 1) == TAKEN, "one of its brokers has something of it"
        case.brokers[down].start()
        until(lambda: not any(case.folders(number) for number in BROKERS))
    # One returns with its data of the first topic, as from a copy of its disk.
    until(lambda: case.make(2) == DONE)
    case.write(2, -1)
    case.brokers[1].kill()
    for folder in case.folders(1):
        shutil.rmtree(folder)
    for folder in old.iterdir():
        shutil.copytree(folder, case.brokers[1].directory / "data" / folder.name)
    case.brokers[1].start()
    until(lambda: case.has_just(1, 2, beside="-stray"))
    assert len(case.folders(1)) == 2 + PARTITIONS[0], "nothing is deleted that nobody has asked for"
    assert case.read_at(1, 2) == {b"-1"}
