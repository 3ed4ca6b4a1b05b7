"""An Apache Kafka broker that follows our leader, on one ZooKeeper: it has the same records, and leads later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka_zookeeper import OLD_KAFKA, V0, V3, OldKafka, ZooKeeper

from odradek.api.fetch.list_offsets import EARLIEST, LATEST
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from support.raw_client import RawClient
from support.serving import Serving
from support.waiting import SECONDS_MAX, until

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("shares a ZooKeeper with brokers of Apache Kafka")]

TOPIC = "flights"
OURS, THEIRS = 1, 2
RECORDS, DELETED = 2_000, 700
SESSION = {"zookeeper.session.timeout.ms": "18000"}  # No broker is killed while others wait for it.
RELEASES = {V3: "3.9", V0: "0.11.0"}  # With the inter.broker.protocol.version of both.
LOG = f"{0:020}.log"
AT = TopicPartition(TOPIC, 0)


class Pair(NamedTuple):
    ours: Serving
    theirs: OldKafka
    admin: AdminClient


@pytest.fixture(params=RELEASES)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """Start Kafka first, as the controller, and create a topic that we lead and it follows."""
    level = {"inter.broker.protocol.version": RELEASES[request.param]} | SESSION
    with ZooKeeper(tmp_path / "zookeeper") as zookeeper:
        connect = f"127.0.0.1:{zookeeper.port}/kafka"
        theirs = OldKafka(tmp_path / "theirs", request.param, {"broker.id": str(THEIRS)} | level, zookeeper=connect)
        (tmp_path / "ours").mkdir()
        own = {"broker.id": str(OURS), "listeners": "PLAINTEXT://127.0.0.1:0", "zookeeper.connect": connect}
        with theirs, Serving(tmp_path / "ours", **own, **level) as ours:
            admin = AdminClient({"bootstrap.servers": theirs.address, "log_level": 0})
            until(lambda: len(admin.list_topics(timeout=SECONDS_MAX).brokers) == 2)
            topic = NewTopic(TOPIC, num_partitions=1, replica_assignment=[[OURS, THEIRS]])
            admin.create_topics([topic])[TOPIC].result(SECONDS_MAX)
            until(lambda: leader(admin) == OURS)
            yield Pair(ours, theirs, admin)
            theirs.kill()  # It would wait for another leader in its place.


def leader(admin: AdminClient) -> int:
    topic = admin.list_topics(TOPIC, timeout=SECONDS_MAX).topics[TOPIC]
    return topic.partitions[0].leader if topic.partitions else -1


def produced(address: str, values: list[bytes]) -> None:
    """Produce with acks=all, which waits for the follower."""
    failed: list[object] = []
    settings = {"bootstrap.servers": address, "acks": "all", "enable.idempotence": True, "log_level": 0}
    producer = Producer(settings)
    for value in values:
        producer.produce(TOPIC, value, partition=0, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(SECONDS_MAX) == 0
    assert failed == [None] * len(values)


def values(address: str, begin: int, end: int) -> list[bytes | None]:
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "nobody", "enable.auto.commit": False, "log_level": 0}
    )
    consumer.assign([TopicPartition(TOPIC, 0, begin)])
    found: list[bytes | None] = []
    while len(found) < end - begin:
        some = consumer.consume(end - begin - len(found), SECONDS_MAX)
        assert some, f"{len(found)} of {end - begin}"
        found += [message.value() for message in some]
    consumer.close()
    return found


def beginning(address: str) -> int:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "nobody", "log_level": 0})
    low, _ = consumer.get_watermark_offsets(AT, SECONDS_MAX)
    consumer.close()
    return low


def test_kafka_leads_with_our_acknowledged_records(pair: Pair) -> None:
    ours, theirs, admin = pair
    sent = [b"%d" % number * 20 for number in range(RECORDS)]
    produced(ours.address, sent[: RECORDS // 2])
    for value in sent[RECORDS // 2 : RECORDS // 2 + 3]:
        produced(ours.address, [value])  # Each waits for a fetch that finds nothing at first.
    produced(ours.address, sent[RECORDS // 2 + 3 :])
    assert values(ours.address, 0, RECORDS) == sent
    logs = [folder / f"{TOPIC}-0" / LOG for folder in (ours.directory / "data", theirs.data)]
    assert logs[0].read_bytes() == logs[1].read_bytes(), "what is acknowledged is there, byte for byte"

    deleted = admin.delete_records([TopicPartition(TOPIC, 0, DELETED)])[AT].result(SECONDS_MAX)
    assert deleted.low_watermark == DELETED
    assert ours.stop() == 0
    until(lambda: leader(admin) == THEIRS)
    assert beginning(theirs.address) == DELETED, "it was told before the answer"
    assert values(theirs.address, DELETED, RECORDS) == sent[DELETED:]
    produced(theirs.address, [b"goes on"])


# Offset, last fetched epoch and current leader epoch, of a log from 2 to 5 in epoch 0.
POSITIONS = [(offset, last, current) for offset in (-1, 1, 2, 3, 5, 9) for last in (-1, 0, 7) for current in (-1, 0, 5)]
CONSUMER, STRANGER, DEBUGGING = -1, 5, -2


def answers(port: int) -> dict[tuple[int, ...], tuple[object, ...]]:
    """Return a leader's responses for the partition, by kind of requester and requested position."""
    responses: dict[tuple[int, ...], tuple[object, ...]] = {}
    with RawClient(port) as client:
        for replica in (CONSUMER, STRANGER):
            for position in POSITIONS:
                (part,) = client.request(fetch(replica, *position), 12, FetchResponse).responses[0].partitions
                parted = part.diverging_epoch.epoch, part.diverging_epoch.end_offset
                ends = part.high_watermark, part.last_stable_offset, part.log_start_offset
                records = len(part.records or b"")  # type: ignore[arg-type]  # What was received is bytes.
                responses[replica, *position] = part.error_code, parted, ends, records, part.aborted_transactions
        for replica in (CONSUMER, STRANGER, DEBUGGING):
            for timestamp in (LATEST, EARLIEST):
                (one,) = client.request(offset_of(replica, timestamp), 6, ListOffsetsResponse).topics[0].partitions
                responses[replica, timestamp] = one.error_code, one.offset, one.leader_epoch
    return responses


def fetch(replica: int, offset: int, last_fetched: int, current: int) -> FetchRequest:
    part = FetchPartition(
        partition=0,
        current_leader_epoch=current,
        fetch_offset=offset,
        last_fetched_epoch=last_fetched,
        partition_max_bytes=1 << 20,
    )
    topics = [FetchTopic(topic=TOPIC, partitions=[part])]
    return FetchRequest(replica_id=replica, max_wait_ms=0, min_bytes=1, topics=topics, forgotten_topics_data=[])


def offset_of(replica: int, timestamp: int) -> ListOffsetsRequest:
    part = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    return ListOffsetsRequest(replica_id=replica, topics=[ListOffsetsTopic(name=TOPIC, partitions=[part])])


def prepared(address: str, port: int) -> dict[tuple[int, ...], tuple[object, ...]]:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(SECONDS_MAX)
    for number in range(5):
        produced(address, [b"%d" % number])
    admin.delete_records([TopicPartition(TOPIC, 0, 2)])[AT].result(SECONDS_MAX)
    return answers(port)


def test_errors_have_kafkas_precedence(tmp_path: Path) -> None:
    """First, whether the requester is a replica, then where logs diverge, then out-of-range offsets."""
    (tmp_path / "ours").mkdir()
    with OldKafka(tmp_path / "theirs", V3, SESSION) as theirs:
        expected = prepared(theirs.address, theirs.port)
    with Serving(tmp_path / "ours", listeners="PLAINTEXT://127.0.0.1:0") as ours:
        assert prepared(ours.address, ours.port) == expected
