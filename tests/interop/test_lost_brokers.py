"""Three brokers on a ZooKeeper: two or all are killed (kill -9), and start again in another order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka_zookeeper import OLD_KAFKA, ZooKeeper
from test_cluster_zookeeper import BROKERS, broker, servers

from support.asking import leaders
from support.serving import Serving
from support.waiting import SECONDS_MAX, until

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("kills brokers on a ZooKeeper of its own")]

PARTITIONS = 3
STRICT, LENIENT = "strict", "lenient"  # min.insync.replicas is 2, and 1.
COUNT = 300


class Case:
    """Three brokers with both topics, and the records that they acknowledged."""

    def __init__(self, brokers: dict[int, Serving]) -> None:
        self.brokers = brokers
        self.kept: dict[str, set[bytes]] = {STRICT: set(), LENIENT: set()}
        self._sent = 0
        admin = AdminClient({"bootstrap.servers": servers(brokers), "log_level": 0})
        topics = [
            NewTopic(name, PARTITIONS, len(BROKERS), config={"min.insync.replicas": least})
            for name, least in ((STRICT, "2"), (LENIENT, "1"))
        ]
        for made in admin.create_topics(topics).values():
            made.result(SECONDS_MAX)

    def write(self, topic: str, acks: str = "all") -> set[str]:
        """Send some records, each once; return the responses, and note acknowledged records."""
        answers: set[str] = set()
        producer = Producer({"bootstrap.servers": servers(self.brokers), "acks": acks, "retries": 0, "log_level": 0})
        for _ in range(COUNT):
            value = b"%d" % self._sent
            self._sent += 1

            def on_delivery(error: KafkaError | None, _: object, value: bytes = value) -> None:
                answers.add("acknowledged" if error is None else error.name())
                if error is None:
                    self.kept[topic].add(value)

            producer.produce(topic, value, partition=self._sent % PARTITIONS, on_delivery=on_delivery)
        assert producer.flush(SECONDS_MAX) == 0
        return answers

    def until_in_sync(self, *numbers: int) -> None:
        """Wait until exactly these brokers are in sync and lead, as each of them knows it."""
        for number in numbers:
            admin = AdminClient({"bootstrap.servers": self.brokers[number].address, "log_level": 0})

            def condition(admin: AdminClient = admin) -> bool:
                topics = admin.list_topics(timeout=SECONDS_MAX).topics
                states = [one for name in self.kept for one in topics[name].partitions.values()]
                return all(sorted(one.isrs) == sorted(numbers) and one.leader in numbers for one in states)

            until(condition)

    def check(self) -> None:
        """Check that all replicas are in sync and equal, and contain every acknowledged record once."""
        self.until_in_sync(*BROKERS)
        for topic, kept in self.kept.items():
            until(lambda: len({tuple(self._logs(number, topic)) for number in BROKERS}) == 1)  # noqa: B023  # At once.
            found = self._read(topic)
            assert len(found) == len(set(found))
            assert kept <= set(found)

    def _logs(self, number: int, topic: str) -> Iterator[bytes]:
        for partition in range(PARTITIONS):
            folder = self.brokers[number].directory / "data" / f"{topic}-{partition}"
            yield b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))

    def _read(self, topic: str) -> list[bytes]:
        consumer = Consumer({"bootstrap.servers": servers(self.brokers), "group.id": "all", "log_level": 0})
        places = [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
        ends = [consumer.get_watermark_offsets(place, timeout=SECONDS_MAX)[1] for place in places]
        consumer.assign(places)
        found = [message.value() or b"" for message in consumer.consume(sum(ends), SECONDS_MAX)]
        consumer.close()
        return found


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    with ExitStack() as stack:
        ensemble = stack.enter_context(ZooKeeper(tmp_path / "zookeeper"))
        connect = f"127.0.0.1:{ensemble.port}/kafka"
        brokers = {number: stack.enter_context(broker(tmp_path, number, connect)) for number in BROKERS}
        yield Case(brokers)
    for one in brokers.values():
        assert "Traceback" not in one.errors()


def test_two_of_three_brokers_are_killed_and_restart(case: Case) -> None:
    assert case.write(STRICT) == case.write(LENIENT) == {"acknowledged"}
    for number in (1, 2):
        case.brokers[number].kill()
    case.until_in_sync(3)
    assert case.write(STRICT) == {"NOT_ENOUGH_REPLICAS"}
    assert case.write(STRICT, acks="1") == case.write(LENIENT) == {"acknowledged"}
    for number in (2, 1):
        case.brokers[number].start()
    case.check()
    assert case.write(STRICT) == {"acknowledged"}
    case.check()


def test_the_last_in_sync_broker_starts_last(case: Case) -> None:
    """No broker leads before it is back: the others lack records that it alone acknowledged."""
    assert case.write(STRICT) == case.write(LENIENT) == {"acknowledged"}
    for number in (2, 3):
        case.brokers[number].kill()
    case.until_in_sync(1)
    assert case.write(LENIENT) == {"acknowledged"}
    case.brokers[1].kill()
    for number in (3, 2):
        case.brokers[number].start()
    for number in (3, 2):
        until(lambda: set(leaders(case.brokers[number].address, LENIENT).values()) == {-1})  # noqa: B023  # At once.
    case.brokers[1].start()
    case.check()


def test_all_brokers_are_killed_and_restart_in_another_order(case: Case) -> None:
    assert case.write(STRICT) == case.write(LENIENT) == {"acknowledged"}
    for one in case.brokers.values():
        one.kill()
    for number in (3, 1, 2):
        case.brokers[number].start()
    case.check()
    assert case.write(STRICT) == case.write(LENIENT) == {"acknowledged"}
    case.check()
