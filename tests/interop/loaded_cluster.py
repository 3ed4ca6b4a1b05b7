"""Three brokers on a ZooKeeper with a topic of three replicas, a continuous producer, and the required contents."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka_zookeeper import ZooKeeper
from test_cluster_zookeeper import BROKERS, broker, servers

from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from support.faults import Faults
from support.raw_client import RawClient
from support.serving import Serving
from support.waiting import SECONDS_MAX, until

TOPIC, PARTITIONS = "t", 3
EACH_LEADS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
THE_FIRST_FOLLOWS = [[2, 3, 1], [3, 2, 1], [2, 1, 3]]
LAG_MS = 2_000
# Leadership stays where a test has moved it.
CONFIGS = {
    "replica.lag.time.max.ms": str(LAG_MS),
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.num.partitions": "3",
}


class Load:
    """An idempotent producer that writes to each partition in turn while the context is open."""

    def __init__(self, address: str, pause_seconds: float = 0.002) -> None:
        self._pause_seconds = pause_seconds
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "message.timeout.ms": SECONDS_MAX * 1000,
                "log_level": 0,
            }
        )
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent = 0
        self.errors: list[object] = []
        self.acknowledged = [0] * PARTITIONS

    def _run(self) -> None:
        while not self._ends.wait(self._pause_seconds):
            number, partition = self.sent, self.sent % PARTITIONS
            self._producer.produce(
                TOPIC, b"%d %s" % (number, bytes(1000)), partition=partition, on_delivery=self._delivered
            )
            self.sent += 1
            self._producer.poll(0)

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.acknowledged[message.partition()] += 1  # type: ignore[attr-defined]

    def wait_for_progress(self) -> None:
        """Wait until more records are acknowledged in each partition."""
        before = list(self.acknowledged)
        until(lambda: all(now > then + 10 for now, then in zip(self.acknowledged, before, strict=True)))

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        assert self._producer.flush(SECONDS_MAX) == 0
        assert not self.errors
        assert sum(self.acknowledged) == self.sent


class Cluster:
    """Three brokers, and a topic whose first partition one of them leads."""

    def __init__(self, brokers: dict[int, Serving], assignment: list[list[int]]) -> None:
        self.brokers = brokers
        self.connect = brokers[1]._overrides["zookeeper.connect"]
        self.address = servers(brokers)
        self.admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        topic = NewTopic(TOPIC, PARTITIONS, replica_assignment=assignment, config={"min.insync.replicas": "2"})
        self.admin.create_topics([topic])[TOPIC].result(SECONDS_MAX)
        self.until_in_sync(set(BROKERS))

    def states(self) -> list[tuple[int, set[int]]]:
        """Return each partition's leader and ISR according to broker 2, which has no faults."""
        with RawClient(self.brokers[2].port) as client:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
            (topic,) = client.request(request, 4, MetadataResponse).topics
        known = sorted(topic.partitions, key=lambda one: one.partition_index)
        return [(one.leader_id, set(one.isr_nodes)) for one in known]

    def until_in_sync(self, brokers: set[int]) -> None:
        until(lambda: all(isr == brokers and leader in brokers for leader, isr in self.states()))

    def check(self, load: Load) -> None:
        """Check that all acknowledged records are present once, and all replicas are equal."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "check", "enable.auto.commit": False})
        consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
        found: list[int] = []
        while len(found) < load.sent:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None
            assert message.error() is None
            found.append(int((message.value() or b"").partition(b" ")[0]))
        consumer.close()
        assert sorted(found) == list(range(load.sent))
        until(lambda: self._records(1) == self._records(2) == self._records(3))
        assert not any("Traceback" in one.errors() for one in self.brokers.values())

    def _records(self, number: int) -> list[bytes]:
        return [self._records_of(number, index) for index in range(PARTITIONS)]

    def _records_of(self, number: int, index: int) -> bytes:
        files = self.folder(number, index).glob("*.log")
        return b"".join(path.read_bytes() for path in sorted(files))

    def folder(self, number: int, index: int) -> Path:
        """Return the directory of a partition on a broker."""
        directories = map(Path, self.brokers[number]._overrides["log.dirs"].split(","))
        (folder,) = (one / f"{TOPIC}-{index}" for one in directories if (one / f"{TOPIC}-{index}").is_dir())
        return folder


@contextmanager
def cluster(
    folder: Path,
    of: Mapping[int, Mapping[str, str]] = {},
    faults: Faults | None = None,
    assignment: list[list[int]] = EACH_LEADS,
) -> Iterator[Cluster]:
    """Start the cluster; `of` has configs of single brokers, and `faults` are broker 1's."""
    with ExitStack() as stack:
        ensemble = stack.enter_context(ZooKeeper(folder / "zookeeper"))
        connect = f"127.0.0.1:{ensemble.port}/kafka"
        made = {number: broker(folder, number, connect, {**CONFIGS, **of.get(number, {})}) for number in BROKERS}
        if faults is not None:
            made[1].environment = faults.environment
        yield Cluster({number: stack.enter_context(one) for number, one in made.items()}, assignment)
