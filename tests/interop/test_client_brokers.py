"""The client with real brokers, Odradek and Apache Kafka, and with librdkafka and kafka-python as its counterparts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
from client_peers import BROKERS, STARTERS, quick_config
from confluent_kafka import Message
from confluent_kafka import Producer as RdProducer
from kafka import KafkaConsumer  # type: ignore[import-untyped]  # Has no types.
from kafka import TopicPartition as PyTopicPartition

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID
from odradek.client.admin.admin import (
    NewTopic,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_topic_configs,
    describe_topics,
)
from odradek.client.admin.metadata_propagation import wait_until_seen
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_config import READ_COMMITTED
from odradek.client.connection.client_errors import ErrorResponse, OffsetOutOfRange, TopicRecreated, UnknownTopic
from odradek.client.consumer.fetcher import EARLIEST, LATEST, MAX_TIMESTAMP, Fetcher, list_offsets
from odradek.client.producer.delivery import ACKS_ALL, ACKS_LEADER, ACKS_NONE, produce
from odradek.client.producer.producer import Producer
from odradek.record.builder import encode_batch
from odradek.record.compression import Codec
from odradek.record.records import Record, decode

CODECS = list(Codec)
SECONDS_MAX = 120


@pytest.fixture(params=BROKERS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(quick_config(STARTERS[request.param]())) as connected:
        yield connected.connect()


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"client-{uuid4().hex[:12]}"
    create_topics(cluster, [NewTopic(name, partitions=3, replication_factor=1)])
    # Metadata may name a leader before it leads; a request with acks=0 would then be lost silently.
    list_offsets(cluster, dict.fromkeys(cluster.partitions([name]), LATEST))
    return name


def at(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), partition)


def read_all(cluster: Cluster, topic: str) -> dict[int, list[Record]]:
    partitions = cluster.partitions([topic])
    ends = {each: end.offset for each, end in list_offsets(cluster, dict.fromkeys(partitions, LATEST)).items()}
    found: dict[int, list[Record]] = {each.partition: [] for each in partitions}
    fetcher = Fetcher(cluster, dict.fromkeys(partitions, 0), until=ends)
    while not fetcher.is_done:
        for fetched in fetcher.poll(10_000):
            records = [record for batch in fetched.batches() for record in decode(batch)]
            found[fetched.partition.partition] += [each for each in records if each.offset >= fetched.fetch_offset]
    return found


def test_topics_are_created_grown_and_deleted(cluster: Cluster) -> None:
    name = f"client-{uuid4().hex[:12]}"
    (created,) = create_topics(
        cluster, [NewTopic(name, partitions=2, replication_factor=1, configs={"retention.ms": "123456"})]
    )
    assert (created.name, created.partitions, created.replication_factor) == (name, 2, 1)
    assert wait_until_seen(cluster, name, 2)
    (topic,) = describe_topics(cluster, [name])
    assert topic.id != ZERO_UUID
    (broker,) = cluster.metadata.brokers
    assert [(each.index, each.leader, each.isr) for each in topic.partitions] == [
        (index, broker, (broker,)) for index in range(2)
    ]
    own = {entry.name: entry.value for entry in describe_topic_configs(cluster, [name])[name] if entry.is_set_on_topic}
    assert own["retention.ms"] == "123456"
    create_partitions(cluster, {name: 5})
    assert wait_until_seen(cluster, name, 5)
    assert len(describe_topics(cluster, [name])[0].partitions) == 5
    assert name in [each.name for each in cluster.topics()]
    delete_topics(cluster, [name])
    assert wait_until_seen(cluster, name, 0)
    assert name not in [each.name for each in cluster.topics()]
    with pytest.raises(UnknownTopic):
        describe_topics(cluster, [name])


def test_the_cluster_is_described(cluster: Cluster) -> None:
    described = describe_cluster(cluster)
    assert described.cluster_id == cluster.metadata.cluster_id
    assert [broker.address for broker in described.brokers] == list(cluster.config.addresses)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("a/b", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("..", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("x" * 250, 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("client-bad", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("client-bad", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("client-bad", 1, 1, {"no.such.config": "1"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("client-bad", 1, 1, {"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
    ],
    ids=lambda value: value.name if isinstance(value, ErrorCode) else None,
)
def test_an_invalid_topic_is_refused_with_a_reason(cluster: Cluster, topic: NewTopic, code: ErrorCode) -> None:
    with pytest.raises(ErrorResponse) as raised:
        create_topics(cluster, [topic])
    assert raised.value.code == code
    assert raised.value.detail, "the broker says why"


def test_an_existing_topic_is_not_created_again(cluster: Cluster, topic: str) -> None:
    with pytest.raises(ErrorResponse) as raised:
        create_topics(cluster, [NewTopic(topic, 1, 1)])
    assert raised.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(ErrorResponse) as raised:
        create_partitions(cluster, {topic: 2})
    assert raised.value.code == ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_produced_records_are_fetched(cluster: Cluster, topic: str, codec: Codec) -> None:
    headers = (("h", b"\x00"), ("h", None))
    with Producer(cluster, codec=codec) as producer:
        for number in range(500):
            producer.send(topic, b"v%d" % number, key=b"k%d" % number, headers=headers, timestamp=1_000 + number)
        producer.send(topic, None, key=b"tombstone", partition=2)
    found = read_all(cluster, topic)
    assert sorted(record.timestamp for records in found.values() for record in records)[:500] == list(range(1000, 1500))
    for records in found.values():
        assert [record.offset for record in records] == list(range(len(records)))
        assert all(record.headers == headers for record in records if record.value is not None)
    assert found[2][-1][2:4] == (b"tombstone", None)


@pytest.mark.parametrize("acks", [ACKS_NONE, ACKS_LEADER, ACKS_ALL])
def test_records_are_produced_with_every_kind_of_acks(cluster: Cluster, topic: str, acks: int) -> None:
    batch = encode_batch([(None, b"x", (), 1_000), (None, b"y", (), 1_000)])
    landed = produce(cluster, {at(topic, 0): batch, at(topic, 2): batch}, acks=acks)
    assert {each.partition: where.base_offset for each, where in landed.items()} == dict.fromkeys(
        (0, 2), -1 if acks == ACKS_NONE else 0
    )
    deadline = time.monotonic() + SECONDS_MAX
    while sum(map(len, read_all(cluster, topic).values())) < 4:
        assert time.monotonic() < deadline


def test_keys_go_to_the_partitions_that_librdkafka_chooses(cluster: Cluster, topic: str) -> None:
    keys = [b"key-%d" % number for number in range(200)]
    theirs: dict[bytes, int] = {}

    def on_delivery(error: object, sent: Message) -> None:
        key, partition = sent.key(), sent.partition()
        assert isinstance(key, bytes)
        assert partition is not None
        theirs[key] = partition

    producer = RdProducer({"bootstrap.servers": cluster.config.bootstrap_servers, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce(topic, b"theirs", key, callback=on_delivery)
    producer.flush(SECONDS_MAX)
    with Producer(cluster) as ours:
        for key in keys:
            ours.send(topic, b"ours", key=key)
    for partition, records in read_all(cluster, topic).items():
        for record in records:
            assert record.key is not None
            assert theirs[record.key] == partition


def test_kafka_python_reads_our_records(cluster: Cluster, topic: str) -> None:
    with Producer(cluster, codec=Codec.GZIP) as producer:
        for number in range(300):
            text = b"%d" % number
            producer.send(topic, b"v" + text, partition=1, headers=[("n", text)], timestamp=5_000 + number)
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.config.bootstrap_servers, consumer_timeout_ms=SECONDS_MAX * 1_000
    )
    try:
        consumer.assign([PyTopicPartition(topic, 1)])
        consumer.seek_to_beginning()
        got = [(each.value, each.headers, each.timestamp) for _, each in zip(range(300), consumer, strict=False)]
    finally:
        consumer.close()
    assert [(value, list(map(tuple, headers)), timestamp) for value, headers, timestamp in got] == [
        (b"v%d" % number, [("n", b"%d" % number)], 5_000 + number) for number in range(300)
    ]


def test_offsets_are_found_by_time(cluster: Cluster, topic: str) -> None:
    for moment in (1_000, 2_000, 3_000):
        produce(cluster, {at(topic, 0): encode_batch([(None, b"x", (), moment), (None, b"x", (), moment + 500)])})
    partition = at(topic, 0)

    def offset(when: int) -> int:
        return list_offsets(cluster, {partition: when})[partition].offset

    assert [offset(EARLIEST), offset(LATEST)] == [0, 6]
    assert [offset(0), offset(1_500), offset(1_501), offset(3_500), offset(3_501)] == [0, 1, 2, 5, -1]
    assert list_offsets(cluster, {partition: MAX_TIMESTAMP})[partition][:2] == (5, 3_500)
    assert list_offsets(cluster, {at(topic, 1): LATEST, at(topic, 2): EARLIEST})[at(topic, 1)].offset == 0


def test_a_fetch_may_start_in_the_middle_of_a_batch(cluster: Cluster, topic: str) -> None:
    produce(cluster, {at(topic, 0): encode_batch([(None, b"%d" % number, (), 0) for number in range(100)])})
    fetcher = Fetcher(cluster, {at(topic, 0): 60}, until={at(topic, 0): 100})
    (fetched,) = fetcher.poll(60_000)
    (batch,) = fetched.batches()
    assert (batch.base_offset, fetched.fetch_offset, fetched.next_offset, fetcher.is_done) == (0, 60, 100, True)


def test_offsets_outside_the_log_are_refused(cluster: Cluster, topic: str) -> None:
    produce(cluster, {at(topic, 0): encode_batch([(None, b"x", (), 0)])})
    for outside in (2, 10**12):
        fetcher = Fetcher(cluster, {at(topic, 0): outside})
        with pytest.raises(OffsetOutOfRange):
            for _ in range(3):
                fetcher.poll(10_000)


def test_a_long_poll_returns_new_records(cluster: Cluster, topic: str) -> None:
    partition = at(topic, 0)
    fetcher = Fetcher(cluster, {partition: 0})
    assert fetcher.poll(100) == []
    for number in range(5):
        produce(cluster, {partition: encode_batch([(None, b"x", (), 0)])})
        started = time.monotonic()
        (fetched,) = fetcher.poll(60_000)
        assert [record.offset for batch in fetched.batches() for record in decode(batch)] == [number]
        # The fetch was in flight before the record: Kafka may have read its high watermark before, too.
        assert fetched.fetch_offset == number <= fetched.high_watermark <= number + 1
        assert time.monotonic() - started < 30


def test_many_partitions_are_read_in_bounded_responses(cluster: Cluster) -> None:
    name = f"client-{uuid4().hex[:12]}"
    create_topics(cluster, [NewTopic(name, partitions=20, replication_factor=1)])
    cluster.topic(name)
    value = bytes(50_000)
    for _ in range(3):
        produce(cluster, {each: encode_batch([(None, value, (), 0)] * 4) for each in cluster.partitions([name])})
    small = quick_config(cluster.config.bootstrap_servers, fetch_max_bytes=300_000, max_partition_fetch_bytes=210_000)
    with Cluster(small) as limited:
        found = read_all(limited, name)
    assert {partition: len(records) for partition, records in found.items()} == dict.fromkeys(range(20), 12)


def test_a_batch_too_large_for_its_topic_is_split(cluster: Cluster) -> None:
    name = f"client-{uuid4().hex[:12]}"
    create_topics(cluster, [NewTopic(name, 1, 1, {"max.message.bytes": "2000"})])
    values = [b"%03d" % number + bytes(97) for number in range(100)]
    with Producer(cluster) as producer:
        for value in values:
            producer.send(name, value)
    assert [record.value for record in read_all(cluster, name)[0]] == values
    with pytest.raises(ErrorResponse, match=r"max\.message\.bytes"), Producer(cluster) as producer:
        producer.send(name, bytes(3_000))


def test_a_flipped_bit_is_refused_and_the_connection_lives(cluster: Cluster, topic: str) -> None:
    batch = encode_batch([(None, b"x" * 100, (), 0)])
    batch[-1] ^= 1
    with pytest.raises(ErrorResponse) as raised:
        produce(cluster, {at(topic, 0): batch}, timeout_ms=300)
    assert raised.value.code == ErrorCode.CORRUPT_MESSAGE
    batch[-1] ^= 1
    assert produce(cluster, {at(topic, 0): batch})[at(topic, 0)].base_offset == 0


def test_a_reader_notices_a_recreated_topic(cluster: Cluster, topic: str) -> None:
    produce(cluster, {at(topic, 0): encode_batch([(None, b"x", (), 0)])})
    fetcher = Fetcher(cluster, {at(topic, 0): 0})
    assert fetcher.poll(10_000)
    delete_topics(cluster, [topic])
    assert wait_until_seen(cluster, topic, 0)
    create_topics(cluster, [NewTopic(topic, 3, 1)])
    with pytest.raises(TopicRecreated):
        for _ in range(20):
            fetcher.poll(1_000)


def test_read_committed_returns_committed_records_only(cluster: Cluster, topic: str) -> None:
    producer = RdProducer({"bootstrap.servers": cluster.config.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(SECONDS_MAX)
    expected = []
    for number in range(6):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, b"%d" % number, partition=0)
        producer.flush(SECONDS_MAX)
        if number % 2:
            producer.abort_transaction(SECONDS_MAX)
        else:
            producer.commit_transaction(SECONDS_MAX)
            expected += [b"%d" % number] * 3
    committed = quick_config(cluster.config.bootstrap_servers, isolation_level=READ_COMMITTED)
    with Cluster(committed) as reader:
        assert [record.value for record in read_all(reader, topic)[0]] == expected
    assert len(read_all(cluster, topic)[0]) == 18
