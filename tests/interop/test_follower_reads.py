"""Consumers that read from a replica in their rack (KIP-392): Odradek and Apache Kafka redirect to each other."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka_tools import CONSOLE_CONSUMER, ran
from kafka_zookeeper import OLD_KAFKA, V3, OldKafka, ZooKeeper

from odradek.base.errors import ErrorCode
from odradek.core.partition.replica_selector import RACK_AWARE_SELECTOR
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from support.ports import free_port
from support.raw_client import RawClient
from support.serving import Serving
from support.waiting import SECONDS_MAX, until

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("shares a ZooKeeper with brokers of Apache Kafka")]

TOPIC = "flights"
SESSION_MS = "4000"
VALUE_BYTES, COUNT = 1000, 2000
SELECTS = {"replica.selector.class": RACK_AWARE_SELECTOR}


@contextmanager
def ours(folder: Path, number: int, rack: str, connect: str) -> Iterator[Serving]:
    directory = folder / str(number)
    directory.mkdir()
    configs = {
        "broker.id": str(number),
        "broker.rack": rack,
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "metrics.listener": f"127.0.0.1:{free_port()}",
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": SESSION_MS,
        **SELECTS,
    }
    with Serving(directory, **configs) as serving:
        yield serving
    assert "Traceback" not in serving.errors()


def bytes_out(serving: Serving) -> float:
    """Return the bytes sent to clients, and to followers."""
    with urlopen(f"http://{serving._overrides['metrics.listener']}/metrics", timeout=SECONDS_MAX) as page:
        lines = page.read().decode().splitlines()
    name = "kafka_server_socket_server_metrics_outgoing_byte_total"
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def made(address: str, topic: str, replicas: list[int]) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, replica_assignment=[replicas])])[topic].result(SECONDS_MAX)
    until(lambda: sorted(admin.list_topics(topic, timeout=SECONDS_MAX).topics[topic].partitions[0].isrs) == replicas)


def produced(address: str, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 5, "log_level": 0})
    failures = []
    for number in range(first, first + count):
        value = (b"%d " % number).ljust(VALUE_BYTES, b".")
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, _: failures.append(error) if error else None
        )
    assert producer.flush(SECONDS_MAX) == 0
    assert not failures


class Reader:
    """A consumer of librdkafka in a rack, and the broker that it reads from."""

    def __init__(self, address: str, topic: str, rack: str) -> None:
        self._topic = topic
        self._statistics: dict[str, Any] = {}
        configs = {
            "bootstrap.servers": address,
            "group.id": "readers",
            "client.rack": rack,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "statistics.interval.ms": 50,
            "stats_cb": self._on_statistics,
            "topic.metadata.refresh.interval.ms": 500,
            "log_level": 0,
        }
        self._consumer = Consumer(configs)  # type: ignore[arg-type]
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self.found: list[int] = []

    def _on_statistics(self, text: str) -> None:
        self._statistics = json.loads(text)

    def _poll(self, seconds: float) -> None:
        message = self._consumer.poll(seconds)
        if message is not None and message.error() is None:
            self.found.append(int((message.value() or b"").split()[0]))

    def read(self, count: int) -> None:
        """Read until there are so many records."""
        deadline = time.monotonic() + SECONDS_MAX
        while len(self.found) < count:
            self._poll(1)
            assert time.monotonic() < deadline

    def source(self) -> int:
        """Return the broker that the consumer fetches from now."""
        self._poll(0.05)
        topics = self._statistics.get("topics", {})
        return int(topics[self._topic]["partitions"]["0"]["broker"]) if self._topic in topics else -1

    def close(self) -> None:
        self._consumer.close()


def test_a_consumer_reads_in_its_rack_and_falls_back_to_the_leader(tmp_path: Path) -> None:
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeper(tmp_path / "zookeeper"))
        connect = f"127.0.0.1:{zookeeper.port}/ours"
        racks = {1: "a", 2: "b", 3: "c"}
        brokers = {one: stack.enter_context(ours(tmp_path, one, rack, connect)) for one, rack in racks.items()}
        servers = ",".join(one.address for one in brokers.values())
        made(servers, TOPIC, [1, 2, 3])
        produced(servers, TOPIC, 0, COUNT)
        reader = Reader(servers, TOPIC, "b")
        stack.callback(reader.close)
        reader.read(1)
        until(lambda: reader.source() == 2)
        before = {one: bytes_out(serving) for one, serving in brokers.items()}
        produced(servers, TOPIC, COUNT, COUNT)
        reader.read(2 * COUNT)
        sent = {one: bytes_out(serving) - before[one] for one, serving in brokers.items()}
        assert sent[2] >= COUNT * VALUE_BYTES, "all that was new came from its rack"
        brokers[2].kill()
        produced(servers, TOPIC, 2 * COUNT, 100)
        reader.read(2 * COUNT + 100)
        assert reader.found == [*range(2 * COUNT + 100)], "each once, in order"
        until(lambda: reader.source() == 1)


def answers(port: int, topic: str, end: int) -> list[tuple[int, int, int, bool]]:
    """Return a replica's responses for one partition: error, high watermark, log start, and if it has records."""
    with RawClient(port) as client:
        found = []
        for version in (10, 11, 12):
            for offset in (0, end - 1, end, end + 1, -1):
                for epoch in (-1, 0, 7):
                    part = FetchPartition(
                        partition=0, fetch_offset=offset, partition_max_bytes=1, current_leader_epoch=epoch
                    )
                    topics = [FetchTopic(topic=topic, partitions=[part])]
                    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1, topics=topics)
                    answer = client.request(request, version, FetchResponse)
                    (fetched,) = answer.responses[0].partitions
                    found.append(
                        (fetched.error_code, fetched.high_watermark, fetched.log_start_offset, bool(fetched.records))
                    )
    return found


def console(address: str, topic: str, rack: str, folder: Path) -> list[int]:
    """Return the records that Java's consumer reads in a rack."""
    config = folder / "consumer.properties"
    config.write_text(f"client.rack={rack}\nfetch.max.wait.ms=100\nmax.partition.fetch.bytes=100000\n")
    place = ("--bootstrap-server", address, "--topic", topic, "--partition", "0", "--offset", "earliest")
    text = ran(CONSOLE_CONSUMER, *place, "--command-config", str(config), "--max-messages", str(COUNT))
    return [int(line.split()[0]) for line in text.splitlines() if line.endswith("..")]


def test_kafka_and_odradek_redirect_consumers_to_each_other(tmp_path: Path) -> None:
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeper(tmp_path / "zookeeper"))
        connect = f"127.0.0.1:{zookeeper.port}/both"
        settings: Mapping[str, str] = {"broker.rack": "a", "zookeeper.session.timeout.ms": SESSION_MS, **SELECTS}
        kafka = stack.enter_context(OldKafka(tmp_path / "kafka", V3, settings, zookeeper=connect))
        serving = stack.enter_context(ours(tmp_path, 2, "b", connect))
        servers = f"{kafka.address},{serving.address}"
        for topic, replicas in (("theirs", [1, 2]), ("our", [2, 1])):
            admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
            admin.create_topics([NewTopic(topic, 1, replica_assignment=[replicas])])[topic].result(SECONDS_MAX)
            produced(servers, topic, 0, COUNT)
        before = bytes_out(serving)
        for topic, rack, source in (("theirs", "b", 2), ("our", "a", 1), ("our", "b", 2), ("theirs", "a", 1)):
            reader = Reader(servers, topic, rack)
            reader.read(1)
            until(lambda: reader.source() == source)  # noqa: B023  # It is called here alone.
            reader.read(COUNT)
            assert reader.found == [*range(COUNT)]
            reader.close()
        assert bytes_out(serving) - before >= COUNT * VALUE_BYTES
        before = bytes_out(serving)
        assert console(servers, "theirs", "b", tmp_path) == [*range(COUNT)]
        assert bytes_out(serving) - before >= COUNT * VALUE_BYTES * 0.8, "but for what came before it was sent here"
        # A Kafka follower and an Odradek follower with all records return the same.
        at_ours = answers(serving.port, "theirs", COUNT)
        assert at_ours == answers(kafka.port, "our", COUNT)
        assert {code for code, *_ in at_ours} == {
            ErrorCode.NONE,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
        }
