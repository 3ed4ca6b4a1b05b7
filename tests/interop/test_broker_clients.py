"""The broker as the clients of others find it: librdkafka, kafka-python, aiokafka; many of them, and slow ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar, cast
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-untyped]  # Has no types.
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer as RdConsumer
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka import Producer as RdProducer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # Its stubs do not export what it does.
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer  # type: ignore[import-untyped]  # Has no types.
from kafka import TopicPartition as PyTopicPartition

from support.serving import Serving, serving

SECONDS_MAX = 30
NOW_MS = time.time_ns() // 1_000_000

Result = TypeVar("Result")


class Sent(NamedTuple):
    """One record as it went in, and as it must come out."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp: int = NOW_MS


RECORDS = [
    Sent(b"key", b"value"),
    Sent(None, b"no key"),
    Sent(b"no value", None),
    Sent(None, None),
    Sent(b"", b""),
    Sent(b"h", b"with headers", (("one", b"1"), ("two", b""), ("one", b"again"))),
    Sent(b"old", b"of another time", (), 1_000_000_000_000),
    Sent(b"large", b"x" * 100_000),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("clients")) as running:
        yield running
        assert "Traceback" not in running.errors()


@pytest.fixture(scope="module")
def admin(broker: Serving) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.address, "log_level": 0})  # It outlives the broker, and complains.


@pytest.fixture
def topic(admin: AdminClient) -> str:
    return new_topic(admin)


def new_topic(admin: AdminClient, partitions: int = 1, **configs: str) -> str:
    name = f"clients-{uuid4().hex[:12]}"
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    made = admin.create_topics([NewTopic(name, partitions, 1, config=settings)])
    made[name].result(SECONDS_MAX)
    return name


# The three clients, each as "send these" and "read so many".


def rd_produce(address: str, topic: str, codec: str, records: list[Sent]) -> None:
    producer = RdProducer(
        {
            "bootstrap.servers": address,
            "compression.type": codec,
            "acks": "all",
            "linger.ms": 5,
            "message.max.bytes": 10_000_000,
        }
    )
    failures: list[KafkaError] = []
    for record in records:
        producer.produce(
            topic,
            record.value,
            record.key,
            0,
            on_delivery=lambda error, _: failures.append(error) if error else None,
            timestamp=record.timestamp,
            headers=list(record.headers),
        )
    assert producer.flush(SECONDS_MAX) == 0
    assert not failures, [failure.name() for failure in failures]


def rd_consumer(address: str, **settings: object) -> RdConsumer:
    return RdConsumer(
        {
            "bootstrap.servers": address,
            "group.id": "none",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )


def rd_consume(address: str, topic: str, count: int) -> list[Sent]:
    consumer = rd_consumer(address)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Sent] = []
    while len(found) < count:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None and message.error() is None
        headers = cast("list[tuple[str, bytes]]", message.headers() or [])
        found.append(Sent(message.key(), message.value(), tuple(headers), message.timestamp()[1]))
    consumer.close()
    return found


def py_produce(address: str, topic: str, codec: str, records: list[Sent]) -> None:
    producer = KafkaProducer(
        bootstrap_servers=address,
        compression_type=None if codec == "none" else codec,
        acks="all",
        enable_idempotence=False,
        linger_ms=5,
    )
    sent = [
        producer.send(topic, record.value, record.key, list(record.headers), 0, record.timestamp) for record in records
    ]
    for future in sent:
        future.get(SECONDS_MAX)
    producer.close()


def py_consume(address: str, topic: str, count: int) -> list[Sent]:
    consumer = KafkaConsumer(bootstrap_servers=address, group_id=None, consumer_timeout_ms=SECONDS_MAX * 1000)
    partition = PyTopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    found = [
        Sent(one.key, one.value, tuple((name, value) for name, value in one.headers), one.timestamp)
        for one in islice(consumer, count)
    ]
    consumer.close()
    return found


def aio_produce(address: str, topic: str, codec: str, records: list[Sent]) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=address, compression_type=None if codec == "none" else codec, acks="all", linger_ms=5
        )
        await producer.start()
        try:
            sent = [
                await producer.send(topic, one.value, one.key, 0, one.timestamp, list(one.headers)) for one in records
            ]
            await asyncio.gather(*sent)
        finally:
            await producer.stop()

    run_for_some_time(run())


def aio_consume(address: str, topic: str, count: int) -> list[Sent]:
    async def run() -> list[Sent]:
        consumer = AIOKafkaConsumer(bootstrap_servers=address, group_id=None, enable_auto_commit=False)
        await consumer.start()
        try:
            partition = AioTopicPartition(topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            found = [await consumer.getone() for _ in range(count)]
            return [Sent(one.key, one.value, tuple(one.headers), one.timestamp) for one in found]
        finally:
            await consumer.stop()

    return run_for_some_time(run())


def run_for_some_time(work: Coroutine[None, None, Result]) -> Result:
    return asyncio.run(asyncio.wait_for(work, SECONDS_MAX))


CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PRODUCERS = [
    *(pytest.param(rd_produce, codec, id=f"librdkafka-{codec}") for codec in CODECS),
    *(pytest.param(aio_produce, codec, id=f"aiokafka-{codec}") for codec in CODECS),
    # Its other codecs need libraries that are not installed here.
    *(pytest.param(py_produce, codec, id=f"kafka-python-{codec}") for codec in CODECS[:2]),
]
Produce = Callable[[str, str, str, list[Sent]], None]


@pytest.mark.parametrize(("produce", "codec"), PRODUCERS)
def test_what_one_client_writes_every_client_reads(broker: Serving, topic: str, produce: Produce, codec: str) -> None:
    # The Python clients take no record without key and value.
    records = [one for one in RECORDS if produce is rd_produce or one.key is not None or one.value is not None]
    produce(broker.address, topic, codec, records)
    assert rd_consume(broker.address, topic, len(records)) == records
    assert aio_consume(broker.address, topic, len(records)) == records
    if codec in CODECS[:2]:
        assert py_consume(broker.address, topic, len(records)) == records


# Where reading starts.


def test_from_the_beginning_the_end_an_offset_and_a_time(broker: Serving, topic: str) -> None:
    times = [NOW_MS + 1000 * number for number in range(10)]
    rd_produce(broker.address, topic, "none", [Sent(None, str(at).encode(), (), at) for at in times])
    consumer = rd_consumer(broker.address)
    partition = TopicPartition(topic, 0)
    assert consumer.get_watermark_offsets(partition, SECONDS_MAX) == (0, 10)

    def first_from(offset: int) -> int:
        consumer.assign([TopicPartition(topic, 0, offset)])
        message = consumer.poll(SECONDS_MAX)
        assert message is not None and message.error() is None
        found = message.offset()
        assert found is not None
        return found

    assert first_from(0) == 0
    assert first_from(-2) == 0  # OFFSET_BEGINNING
    assert first_from(7) == 7
    for wanted, found in ((times[0] - 1, 0), (times[3], 3), (times[3] + 1, 4), (times[9], 9)):
        (place,) = consumer.offsets_for_times([TopicPartition(topic, 0, wanted)], SECONDS_MAX)
        assert place.offset == found
    (place,) = consumer.offsets_for_times([TopicPartition(topic, 0, times[9] + 1)], SECONDS_MAX)
    assert place.offset == -1  # OFFSET_END
    consumer.assign([TopicPartition(topic, 0, -1)])
    assert consumer.poll(0.3) is None
    rd_produce(broker.address, topic, "none", [Sent(None, b"the next")])
    message = consumer.poll(SECONDS_MAX)
    assert message is not None and message.value() == b"the next"
    consumer.close()


def test_kafka_python_finds_offsets_too(broker: Serving, topic: str) -> None:
    rd_produce(broker.address, topic, "none", [Sent(None, b"v", (), NOW_MS + number) for number in range(5)])
    consumer = KafkaConsumer(bootstrap_servers=broker.address, group_id=None)
    partition = PyTopicPartition(topic, 0)
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 5}
    assert consumer.offsets_for_times({partition: NOW_MS + 3})[partition].offset == 3
    assert consumer.partitions_for_topic(topic) == {0}
    consumer.close()


def test_an_offset_that_is_not_there(broker: Serving, topic: str) -> None:
    rd_produce(broker.address, topic, "none", RECORDS[:2])
    consumer = rd_consumer(broker.address, auto_offset_reset="error")
    consumer.assign([TopicPartition(topic, 0, 99)])
    message = consumer.poll(SECONDS_MAX)
    assert message is not None
    error = message.error()
    assert error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET
    consumer.close()
    again = rd_consumer(broker.address, auto_offset_reset="earliest")
    again.assign([TopicPartition(topic, 0, 99)])
    message = again.poll(SECONDS_MAX)
    assert message is not None and message.offset() == 0
    again.close()


# How large a record may be.


def test_a_megabyte_fits_and_more_does_not(broker: Serving, topic: str) -> None:
    rd_produce(broker.address, topic, "none", [Sent(None, b"x" * 1_000_000)])
    assert len(rd_consume(broker.address, topic, 1)[0].value or b"") == 1_000_000
    with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
        rd_produce(broker.address, topic, "none", [Sent(None, b"x" * 1_100_000)])


def test_a_topic_may_have_bounds_of_its_own(broker: Serving, admin: AdminClient) -> None:
    large = new_topic(admin, max_message_bytes="5000000")
    rd_produce(broker.address, large, "none", [Sent(None, b"x" * 4_000_000)])
    consumer = rd_consumer(broker.address, max_partition_fetch_bytes=1000)
    consumer.assign([TopicPartition(large, 0, 0)])
    message = consumer.poll(SECONDS_MAX)  # Larger than was asked for, and sent all the same: a reader must get on.
    assert message is not None and len(message.value() or b"") == 4_000_000
    consumer.close()


# Administration.


def test_topics_with_librdkafka(broker: Serving, admin: AdminClient) -> None:
    topic = new_topic(admin, 2, retention_ms="123456")
    described = admin.list_topics(timeout=SECONDS_MAX)
    assert len(described.topics[topic].partitions) == 2
    assert described.brokers[described.controller_id].port == broker.port
    resource = ConfigResource(ResourceType.TOPIC, topic)
    configs = admin.describe_configs([resource])[resource].result(SECONDS_MAX)
    assert configs["retention.ms"].value == "123456"
    assert not configs["retention.ms"].is_default
    assert configs["segment.bytes"].is_default
    (grown,) = admin.create_partitions([NewPartitions(topic, 5)]).values()
    grown.result(SECONDS_MAX)
    assert len(admin.list_topics(topic, SECONDS_MAX).topics[topic].partitions) == 5
    cluster = admin.describe_cluster(request_timeout=SECONDS_MAX).result()
    assert [node.port for node in cluster.nodes] == [broker.port]
    (exists,) = admin.create_topics([NewTopic(topic, 1, 1)]).values()
    with pytest.raises(KafkaException) as refused:
        exists.result(SECONDS_MAX)
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    (deleted,) = admin.delete_topics([topic]).values()
    deleted.result(SECONDS_MAX)
    assert topic not in admin.list_topics(timeout=SECONDS_MAX).topics


def test_topics_with_kafka_python(broker: Serving) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    topic = f"clients-{uuid4().hex[:12]}"
    admin.create_topics({topic: {"num_partitions": 2, "replication_factor": 1}})
    assert topic in admin.list_topics()
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 2
    assert admin.describe_cluster()["cluster_id"]
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    admin.close()


def test_a_topic_is_there_when_it_was_first_asked_for(broker: Serving) -> None:
    topic = f"clients-{uuid4().hex[:12]}"
    rd_produce(broker.address, topic, "none", RECORDS[:1])
    assert rd_consume(broker.address, topic, 1) == RECORDS[:1]
