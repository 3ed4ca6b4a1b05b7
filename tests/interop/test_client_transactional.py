"""The client's transactions on real brokers, read by librdkafka and mixed with librdkafka's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from client_peers import BROKERS, STARTERS, quick_config
from confluent_kafka import Consumer
from confluent_kafka import Producer as RdProducer
from kafka_peer import REAL_KAFKA, KafkaBroker, run_tool

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.client.admin.admin import NewTopic, create_topics
from odradek.client.admin.transaction_admin import describe_transactions
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_config import READ_COMMITTED
from odradek.client.connection.client_errors import ErrorResponse
from odradek.client.consumer.fetcher import Fetched, Fetcher
from odradek.client.consumer.group_consumer import GroupConsumer
from odradek.client.consumer.group_member import GroupMember
from odradek.client.consumer.group_offsets import Committed, Membership, fetch_offsets
from odradek.client.consumer.offset_lookup import EARLIEST, LATEST, list_offsets
from odradek.client.producer.transactional import State, TransactionalProducer
from odradek.record.records import decode
from odradek.testing import Broker
from support.waiting import SECONDS_MAX, until

FEATURES = "org.apache.kafka.tools.FeatureCommand"


@pytest.fixture(params=BROKERS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(quick_config(STARTERS[request.param]())) as connected:
        yield connected.connect()


def fresh_topic(cluster: Cluster) -> str:
    name = f"txn-{uuid4().hex[:12]}"
    create_topics(cluster, [NewTopic(name, partitions=3, replication_factor=1)])
    list_offsets(cluster, dict.fromkeys(cluster.partitions([name]), LATEST))
    return name


@pytest.fixture
def topic(cluster: Cluster) -> str:
    return fresh_topic(cluster)


def at(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(TopicName(topic), partition)


def committed_values(cluster: Cluster, topic: str) -> list[bytes]:
    """Return the values that read_committed shows, sorted."""
    config = quick_config(cluster.config.bootstrap_servers, isolation_level=READ_COMMITTED)
    with Cluster(config) as reader:
        partitions = reader.partitions([topic])
        ends = {each: end.offset for each, end in list_offsets(reader, dict.fromkeys(partitions, LATEST)).items()}
        fetcher = Fetcher(reader, dict.fromkeys(partitions, 0), until=ends)
        found = []
        while not fetcher.is_done:
            for fetched in fetcher.poll(1_000):
                found += [record.value or b"" for batch in fetched.batches() for record in decode(batch)]
        return sorted(found)


def settles(cluster: Cluster, topic: str, expected: list[bytes]) -> None:
    """Wait for the committed values: a commit is answered before its markers are written."""
    until(lambda: committed_values(cluster, topic) == sorted(expected))


def stable_offsets(cluster: Cluster, topic: str) -> dict[TopicPartition, int]:
    """Return the committed offsets of the group named like the topic, by partition.

    With require_stable a broker leaves out offsets that an ending transaction has committed.
    """
    found = fetch_offsets(cluster, {topic: cluster.partitions([topic])}, require_stable=True)[topic]
    return {partition: committed.offset for partition, committed in found.items()}


def some(cluster: Cluster, topic: str, transactional_id: str) -> list[bytes]:
    """Commit and abort transactions in turn; return the committed values."""
    producer = TransactionalProducer(cluster, transactional_id)
    expected = []
    for number in range(8):
        producer.begin_transaction()
        values = [b"%d-%d" % (number, each) for each in range(50)]
        for value in values:
            producer.send(topic, value, key=value)
        if number % 3 == 1:
            producer.abort()
        else:
            producer.commit()
            expected += values
    return expected


def test_a_transaction_is_visible_whole_or_not_at_all(cluster: Cluster, topic: str) -> None:
    expected = some(cluster, topic, topic)
    settles(cluster, topic, expected)
    consumer = Consumer(
        {"bootstrap.servers": cluster.config.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    theirs: list[bytes] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(theirs) < len(expected) and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            theirs.append(message.value() or b"")
    consumer.close()
    assert sorted(theirs) == sorted(expected)


def test_offsets_are_committed_with_the_transaction(cluster: Cluster, topic: str) -> None:
    offsets_of_three_transactions(cluster, topic)


def offsets_of_three_transactions(cluster: Cluster, topic: str) -> None:
    producer = TransactionalProducer(cluster, topic)
    with producer.transaction():
        producer.send(topic, b"x")
        producer.send_offsets(topic, {at(topic): Committed(1)})
    with pytest.raises(KeyError), producer.transaction():
        producer.send_offsets(topic, {at(topic): Committed(2)})
        raise KeyError
    with producer.transaction():
        producer.send_offsets(topic, {at(topic, 1): Committed(7, metadata="m")})
    assert stable_offsets(cluster, topic) == {at(topic): 1, at(topic, 1): 7}


def test_a_former_member_cannot_commit_offsets(cluster: Cluster, topic: str) -> None:
    """KIP-447: membership in the group decides, whatever the transactional id."""
    member = GroupMember(cluster, topic, [topic])
    member.keep_alive()
    producer = TransactionalProducer(cluster, topic)
    with producer.transaction():
        producer.send_offsets(topic, {at(topic): Committed(1)}, Membership(member.generation, member.member_id))
    for stale in (Membership(member.generation - 1, member.member_id), Membership(member.generation, "somebody else")):
        with pytest.raises(ErrorResponse) as refused, producer.transaction():
            producer.send_offsets(topic, {at(topic): Committed(2)}, stale)
        assert refused.value.code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)
    member.leave()
    assert stable_offsets(cluster, topic) == {at(topic): 1}


def copy(producer: TransactionalProducer, fetched: Fetched, target: str) -> None:
    for batch in fetched.batches():
        for record in decode(batch):
            if record.offset >= fetched.fetch_offset:
                producer.send(target, record.value, key=record.key)


def test_consume_transform_produce_copies_each_record_once(cluster: Cluster, topic: str) -> None:
    target = fresh_topic(cluster)
    source = some(cluster, topic, f"{topic}-source")
    settles(cluster, topic, source)
    config = quick_config(cluster.config.bootstrap_servers, isolation_level=READ_COMMITTED)
    with Cluster(config) as reading:
        member = GroupMember(reading, topic, [topic])
        consumer = GroupConsumer(
            reading,
            member,
            start=lambda those: {
                each: found.offset for each, found in list_offsets(reading, dict.fromkeys(those, EARLIEST)).items()
            },
            follows=False,
        )
        producer = TransactionalProducer(cluster, f"{topic}-copier")
        while not consumer.is_done:
            for number, fetched in enumerate(consumer.poll(1_000)):
                producer.begin_transaction()
                copy(producer, fetched, target)
                if number % 2 == 1:
                    producer.abort()  # And once more.
                    producer.begin_transaction()
                    copy(producer, fetched, target)
                membership = Membership(member.generation, member.member_id)
                producer.send_offsets(topic, {fetched.partition: Committed(fetched.next_offset)}, membership)
                producer.commit()
                consumer.processed(fetched.partition, fetched.next_offset)
        consumer.close()
    settles(cluster, target, source)


def test_a_newer_producer_fences_the_older(cluster: Cluster, topic: str) -> None:
    one_after_the_other(cluster, topic)


def one_after_the_other(cluster: Cluster, topic: str) -> None:
    older = TransactionalProducer(cluster, topic)
    older.begin_transaction()
    older.send(topic, b"zombie")
    older.flush()
    newer = TransactionalProducer(cluster, topic)
    with pytest.raises(ErrorResponse):
        older.commit()
    with pytest.raises(ErrorResponse, match="PRODUCER_FENCED"):
        older.abort()
    assert older.state is State.FENCED
    with newer.transaction():
        newer.send(topic, b"alive")
    settles(cluster, topic, [b"alive"])


def test_librdkafka_takes_over_a_transactional_id(cluster: Cluster, topic: str) -> None:
    ours = TransactionalProducer(cluster, topic)
    with ours.transaction():
        ours.send(topic, b"ours")
    theirs = RdProducer({"bootstrap.servers": cluster.config.bootstrap_servers, "transactional.id": topic})
    theirs.init_transactions(SECONDS_MAX)
    theirs.begin_transaction()
    theirs.produce(topic, b"theirs")
    theirs.commit_transaction(SECONDS_MAX)
    with pytest.raises(ErrorResponse), ours.transaction():
        ours.send(topic, b"ours again")
    settles(cluster, topic, [b"ours", b"theirs"])


def test_a_producer_continues_after_its_transaction_timed_out(cluster: Cluster, topic: str) -> None:
    producer = TransactionalProducer(cluster, topic, timeout_ms=1_000)
    producer.begin_transaction()
    producer.send(topic, b"late")
    producer.flush()

    def is_over() -> bool:
        found = describe_transactions(cluster, [topic])[topic]
        return getattr(found, "state", "") == "CompleteAbort"

    until(is_over)
    with pytest.raises(ErrorResponse, match="INVALID_TXN_STATE"):
        producer.commit()
    producer.abort()
    with producer.transaction():
        producer.send(topic, b"in time")
    settles(cluster, topic, [b"in time"])


def test_a_batch_too_large_for_its_topic_is_split(cluster: Cluster) -> None:
    topic = f"txn-{uuid4().hex[:12]}"
    create_topics(cluster, [NewTopic(topic, 1, 1, {"max.message.bytes": "2000"})])
    values = [b"%03d" % number + bytes(97) for number in range(60)]
    producer = TransactionalProducer(cluster, topic)
    with producer.transaction():
        for value in values:
            producer.send(topic, value)
    with pytest.raises(ErrorResponse, match=r"max\.message\.bytes"), producer.transaction():
        producer.send(topic, bytes(3_000))
    with producer.transaction():
        producer.send(topic, b"last")
    settles(cluster, topic, [*values, b"last"])


@pytest.mark.share(2)
@pytest.mark.java
@pytest.mark.skipif(REAL_KAFKA[1].args[0], reason="needs Apache Kafka")
@pytest.mark.parametrize("version", [0, 1])
def test_transactions_work_with_the_older_protocol(tmp_path: Path, version: int) -> None:
    """Partitions must be added first and the epoch stays, as in Apache Kafka before 4.0 or after a downgrade."""
    with KafkaBroker(tmp_path / "kafka") as broker:
        feature = f"transaction.version={version}"
        run_tool(tmp_path, FEATURES, "--bootstrap-server", broker.address, "downgrade", "--feature", feature)
        with Cluster(quick_config(broker.address)) as cluster:
            topic = fresh_topic(cluster)
            settles(cluster, topic, some(cluster, topic, topic))
            offsets_of_three_transactions(cluster, fresh_topic(cluster))
            one_after_the_other(cluster, fresh_topic(cluster))


@pytest.mark.parametrize("decision", ["commit", "abort"])
def test_a_prepared_transaction_outlives_its_producer(decision: str) -> None:
    """KIP-939. Only Odradek: Apache Kafka 4.3.0 refuses two-phase commit."""
    with Broker(transaction_two_phase_commit_enable=True) as broker, Cluster(quick_config(broker.address)) as cluster:
        topic = fresh_topic(cluster)
        producer = TransactionalProducer(cluster, topic, two_phase=True)
        producer.begin_transaction()
        producer.send(topic, b"prepared")
        prepared = producer.prepare()
        successor = TransactionalProducer(cluster, topic, two_phase=True, keep_prepared=True)
        assert successor.prepared == prepared
        assert committed_values(cluster, topic) == []
        decided = prepared if decision == "commit" else None
        assert successor.complete(decided) == (decision == "commit")
        with successor.transaction():
            successor.send(topic, b"next")
        settles(cluster, topic, [b"next"] + ([b"prepared"] if decided else []))
        with pytest.raises(ErrorResponse):
            producer.commit()
