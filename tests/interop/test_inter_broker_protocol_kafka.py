"""Requests and records of each inter.broker.protocol.version, compared with those of Kafka 3.9.1."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from struct import unpack_from
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka_peer import printed
from kafka_zookeeper import OLD_KAFKA, V3, OldKafka, ZooKeeper, old_jars

from odradek.coordination import tree_layout as layout
from odradek.coordination.tree import Tree, children_if_there
from odradek.coordination.zookeeper import open_zookeeper
from odradek.core.kernel.metadata_version import METADATA_VERSIONS, NEWEST, OLDEST, metadata_version
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.schema.api_keys import ApiKey
from support.kafka_versions import KAFKAS, line_of
from support.raw_client import RawClient
from support.serving import Serving
from support.waiting import SECONDS_MAX

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("asks a running Apache Kafka the same as this broker")]

PROGRAM = Path(__file__).parent / "java" / "MetadataVersions.java"
TEXTS = (
    "0.11",
    "0.11.0",
    "0.11.0.3",
    "0.11.0-IV3",
    "1.0.0",
    "2",
    "2.8",
    "2.8.2",
    "2.8-IV0",
    "2.8-IV",
    "3.9.1",
    "3.9-IV1",
)
OFTEN = ("0.11.0", "2.8", "3.9")
LEVELS = [
    pytest.param(level, marks=() if level in OFTEN else (pytest.mark.soak,))
    for level in ("0.11.0", "2.1-IV0", "2.1", "2.3", "2.7", "2.8", "3.2", "3.9")
]
STATE_TOPICS = ("__consumer_offsets", "__transaction_state")
SETTINGS = {
    "broker.id": "1",
    "zookeeper.session.timeout.ms": "18000",  # No session returns here.
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
# Values that differ from broker to broker, and from second to second.
_OWN = [
    (rb'"(timestamp|topic_id)":"[^"]*"', rb'"\1":"-"'),
    (rb'"port":\d+', b'"port":0'),
    (rb"127\.0\.0\.1:\d+", b"127.0.0.1:0"),
]
# Newer ones require features that no cluster with a ZooKeeper has.
OF_TRANSACTIONS = (ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN, ApiKey.INIT_PRODUCER_ID)


class Seen(NamedTuple):
    """Contents of znodes without values of one broker; versions of state records by the type of their key.

    Kafka writes the fields of znodes in the order of a hash table.
    """

    znodes: dict[str, object]
    records: dict[str, set[tuple[int, int]]]
    versions: dict[int, int]
    features: list[str]


def used(port: int) -> None:
    """Create a topic, a transaction and a group with a member and an offset."""
    address = f"127.0.0.1:{port}"
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    topic = NewTopic("flights", 2, 1, config={"retention.ms": "1000000"})
    admin.create_topics([topic])["flights"].result(SECONDS_MAX)
    producer = Producer({"bootstrap.servers": address, "transactional.id": "t", "log_level": 0})
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce("flights", b"LIS", partition=0)
    producer.commit_transaction(SECONDS_MAX)
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe(["flights"])
    (message,) = consumer.consume(1, SECONDS_MAX)
    assert message.error() is None
    consumer.commit(message, asynchronous=False)
    consumer.close()


def kinds(port: int, topic: str) -> set[tuple[int, int]]:
    """Return the types of a state topic's keys, each with the versions of its values."""
    consumer = Consumer(
        {"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "nobody", "enable.partition.eof": True, "log_level": 0}
        | {"enable.auto.commit": False, "isolation.level": "read_uncommitted"}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = set()
    while True:
        (message,) = consumer.consume(1, SECONDS_MAX)
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            consumer.close()
            return found
        if message.value() is not None:
            found.add((unpack_from(">h", message.key())[0], unpack_from(">h", message.value())[0]))


def znodes(tree: Tree, path: str) -> Iterator[tuple[str, object]]:
    data = tree.get(path)[0]
    for pattern, text in _OWN:
        data = re.sub(pattern, text, data)
    yield path, json.loads(data) if data else None
    for name in children_if_there(tree, path):
        yield from znodes(tree, f"{path}/{name}")


def seen(port: int, connect: str) -> Seen:
    used(port)
    records = {topic: kinds(port, topic) for topic in STATE_TOPICS}
    client = RawClient(port)
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    answer = client.request(request, 3, ApiVersionsResponse)
    client.socket.close()
    tree = open_zookeeper(connect)
    try:
        found = {
            path: data for top in ("/brokers/ids", "/brokers/topics", "/controller") for path, data in znodes(tree, top)
        }
        for topic in ("flights", *STATE_TOPICS):
            found |= dict(znodes(tree, f"/config/topics/{topic}"))
    finally:
        tree.close()
    versions = {one.api_key: one.max_version for one in answer.api_keys if one.api_key in OF_TRANSACTIONS}
    return Seen(found, records, versions, [one.name for one in answer.finalized_features])


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.mark.parametrize("level", LEVELS)
def test_requests_and_records_have_kafkas_versions(tmp_path: Path, zookeeper: ZooKeeper, level: str) -> None:
    settings = SETTINGS | {"inter.broker.protocol.version": level}
    connect = f"127.0.0.1:{zookeeper.port}/{level}"
    with OldKafka(tmp_path / "theirs", V3, settings, zookeeper=f"{connect}/theirs") as kafka:
        theirs = seen(kafka.port, f"{connect}/theirs")
        kafka.kill()  # A clean stop would only take time.
    (tmp_path / "ours").mkdir()
    listening = {"listeners": "PLAINTEXT://127.0.0.1:0", "zookeeper.connect": f"{connect}/ours"}
    with Serving(tmp_path / "ours", **settings, **listening) as broker:
        ours = seen(broker.port, f"{connect}/ours")
        tree = open_zookeeper(f"{connect}/ours")
        assert tree.exists(layout.FEATURE) is None, "brokers of Kafka 2.7 to 3.9 end themselves"
        tree.close()
    assert ours == theirs
    assert not ours.features


def test_metadata_versions_equal_kafkas() -> None:
    lines = printed(["java", "-cp", f"{old_jars(V3)}/*", str(PROGRAM), *TEXTS]).splitlines()
    theirs = {line.partition(" ")[0]: line for line in lines if line[:1].isdigit() and " = " not in line}
    names = list(theirs)
    names = names[names.index(OLDEST.name) : names.index(NEWEST.name) + 1]
    assert names == [version.name for version in METADATA_VERSIONS]
    assert [theirs[name] for name in names] == list(map(line_of, METADATA_VERSIONS)) == KAFKAS
    named = dict(line.split(" = ") for line in lines if " = " in line)
    assert named.keys() == set(TEXTS)
    for text, name in named.items():
        found = metadata_version(text)
        assert (found.name if found else "-") == name
