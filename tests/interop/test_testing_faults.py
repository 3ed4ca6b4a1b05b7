"""Injected faults as real clients see them: librdkafka, kafka-python, aiokafka, and a raw client."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer  # type: ignore[import-untyped]  # Has no types.
from kafka import TopicPartition as PyTopicPartition
from kafka.errors import MessageSizeTooLargeError  # type: ignore[import-untyped]

from odradek.base.errors import ErrorCode
from odradek.base.uuids import ZERO_UUID
from odradek.record.builder import encode_batch
from odradek.testing import Broker
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from odradek.wire.schema.api_keys import ApiKey
from support.raw_client import Closed, RawClient, frame

SECONDS_MAX = 120
DELAY_SECONDS = 0.2


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(shared: Broker) -> Iterator[Broker]:
    for name in ("orders", "other"):
        shared.create_topic(name)
    yield shared
    shared.faults.clear()
    for name in ("orders", "other"):
        shared.delete_topic(name)


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.port) as connected:
        yield connected


class Sent:
    """Outcomes of the records of one librdkafka producer, with a flush after each."""

    def __init__(self, broker: Broker, **settings: object) -> None:
        self.producer = Producer({"bootstrap.servers": broker.address, "retry.backoff.ms": 10, **settings})
        self.errors: list[KafkaError | None] = []
        self.offsets: list[int] = []

    def send(self, *values: bytes, topic: str = "orders") -> Sent:
        for value in values:
            self.producer.produce(topic, value, partition=0, on_delivery=self._delivered)
            assert self.producer.flush(SECONDS_MAX) == 0
        return self

    def _delivered(self, error: KafkaError | None, message: object) -> None:
        self.errors.append(error)
        self.offsets.append(message.offset())  # type: ignore[attr-defined]


def values(broker: Broker, topic: str = "orders") -> list[bytes]:
    """Return every record of partition 0."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while True:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF
            consumer.close()
            return found
        found.append(message.value())


# Error responses.


def test_a_producer_retries_a_retriable_error(broker: Broker) -> None:
    fault = broker.faults.answer("Produce", error="NOT_LEADER_OR_FOLLOWER", times=2)
    sent = Sent(broker).send(b"one")
    assert (sent.errors, sent.offsets) == ([None], [0])
    assert fault.count == 2
    assert [(one.api, one.topics) for one in broker.faults.seen[-2:]] == [("Produce", ("orders",))] * 2
    assert values(broker) == [b"one"], "an answer that was an error has written nothing"


def test_a_producer_reports_a_fatal_error(broker: Broker) -> None:
    broker.faults.answer("Produce", error="MESSAGE_TOO_LARGE")
    sent = Sent(broker).send(b"one", b"two")
    assert sent.errors[0] is not None
    assert sent.errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert sent.errors[1] is None
    assert values(broker) == [b"two"]


def test_kafka_python_gets_the_error(broker: Broker) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.address, enable_idempotence=False, retries=0)
    fault = broker.faults.answer("Produce", error="MESSAGE_TOO_LARGE", topic="orders")
    with pytest.raises(MessageSizeTooLargeError):
        producer.send("orders", b"one").get(SECONDS_MAX)
    assert producer.send("orders", b"two").get(SECONDS_MAX).offset == 0
    assert fault.count == 1
    producer.close()


def test_aiokafka_gets_the_error(broker: Broker) -> None:
    async def story() -> int:
        producer = AIOKafkaProducer(bootstrap_servers=broker.address, acks="all", retry_backoff_ms=10)
        await producer.start()
        broker.faults.answer("Produce", error="NOT_ENOUGH_REPLICAS", times=3)
        offset = (await producer.send_and_wait("orders", b"one", partition=0)).offset
        await producer.stop()
        return int(offset)

    assert asyncio.run(story()) == 0
    assert [one.api for one in broker.faults.seen[-3:]] == ["Produce"] * 3


def produced(client: RawClient, *topics: str, acks: int = -1) -> dict[str, int]:
    """Produce to the topics; return the error codes by topic."""
    data = [
        TopicProduceData(
            name=topic, partition_data=[PartitionProduceData(index=0, records=encode_batch([(None, b"v", (), 0)]))]
        )
        for topic in topics
    ]
    answer = client.request(ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=data), 9, ProduceResponse)
    return {topic.name: topic.partition_responses[0].error_code for topic in answer.responses}


@pytest.mark.parametrize("acks", [1, -1])
def test_the_other_topics_of_a_request_are_served(broker: Broker, client: RawClient, acks: int) -> None:
    fault = broker.faults.answer("Produce", error="KAFKA_STORAGE_ERROR", topic="orders")
    assert produced(client, "other", acks=acks) == {"other": 0}
    assert fault.count == 0
    assert produced(client, "orders", "other", acks=acks) == {"orders": ErrorCode.KAFKA_STORAGE_ERROR, "other": 0}
    assert produced(client, "orders", "other", acks=acks) == {"orders": 0, "other": 0}
    assert (len(values(broker)), len(values(broker, "other"))) == (1, 3)


def test_an_error_without_acks_closes_the_connection(broker: Broker) -> None:
    """A real error does the same."""
    fault = broker.faults.answer("Produce", error="NOT_LEADER_OR_FOLLOWER")
    sent = Sent(broker, acks=0).send(b"lost")
    fault.wait()
    while not (found := values(broker)):
        sent.send(b"kept")  # The first may go to the connection that is being closed.
    assert b"lost" not in found


def test_a_consumer_gets_offset_out_of_range(broker: Broker) -> None:
    Sent(broker).send(b"one", b"two")
    settings = {"bootstrap.servers": broker.address, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "error"})
    fault = broker.faults.answer("Fetch", error="OFFSET_OUT_OF_RANGE", topic="orders")
    consumer.assign([TopicPartition("orders", 0, 0)])
    with pytest.raises(KafkaException) as raised:
        _first_value(consumer)
    assert raised.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET
    assert fault.count == 1
    consumer.assign([TopicPartition("orders", 0, 0)])
    assert _first_value(consumer) == b"one"
    consumer.close()


def _first_value(consumer: Consumer) -> bytes:
    message = consumer.poll(SECONDS_MAX)
    assert message is not None
    if message.error():
        raise KafkaException(message.error())
    value: bytes = message.value()
    return value


def test_a_fetch_session_goes_on_after_an_error(broker: Broker) -> None:
    """kafka-python uses a session, and the partition with the error stays in it."""
    consumer = KafkaConsumer(bootstrap_servers=broker.address, group_id=None, consumer_timeout_ms=SECONDS_MAX * 1000)
    partitions = [PyTopicPartition("orders", 0), PyTopicPartition("other", 0)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    sent = Sent(broker).send(b"one").send(b"uno", topic="other")
    assert {next(consumer).value for _ in range(2)} == {b"one", b"uno"}
    fault = broker.faults.answer("Fetch", error="NOT_LEADER_OR_FOLLOWER", topic="orders", times=2)
    sent.send(b"dos", topic="other").send(b"two")
    assert {next(consumer).value for _ in range(2)} == {b"two", b"dos"}
    assert fault.count == 2
    consumer.close()


def fetched(client: RawClient, session_id: int, epoch: int, *topics: str) -> FetchResponse:
    parts = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
    return client.request(
        FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            session_id=session_id,
            session_epoch=epoch,
            topics=[FetchTopic(topic=topic, partitions=parts) for topic in topics],
        ),
        12,
        FetchResponse,
    )


def test_a_fault_applies_to_a_topic_of_a_fetch_session(broker: Broker, client: RawClient) -> None:
    session_id = fetched(client, 0, 0, "orders", "other").session_id
    broker.faults.answer("Fetch", error="KAFKA_STORAGE_ERROR", topic="other")
    (topic,) = fetched(client, session_id, 1).responses
    assert (topic.topic, topic.partitions[0].error_code) == ("other", ErrorCode.KAFKA_STORAGE_ERROR)
    broker.faults.answer("Fetch", error="FETCH_SESSION_ID_NOT_FOUND")
    assert fetched(client, session_id, 2).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert fetched(client, session_id, 2).error_code == 0, "it was not handled"


def test_an_error_ends_a_long_poll(broker: Broker, client: RawClient) -> None:
    broker.faults.answer("Fetch", error="UNKNOWN_TOPIC_OR_PARTITION")
    parts = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
    topics = [FetchTopic(topic="orders", partitions=parts)]
    answer = client.request(FetchRequest(max_wait_ms=600_000, min_bytes=1, topics=topics), 12, FetchResponse)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_metadata_keeps_its_brokers(broker: Broker, client: RawClient) -> None:
    broker.faults.answer("Metadata", error="LEADER_NOT_AVAILABLE", topic="orders")
    topics = [MetadataRequestTopic(name="orders"), MetadataRequestTopic(name="other")]
    answer = client.request(MetadataRequest(topics=topics), 12, MetadataResponse)
    assert len(answer.brokers) == 1
    found = {topic.name: (topic.error_code, len(topic.partitions)) for topic in answer.topics}
    assert found == {"orders": (ErrorCode.LEADER_NOT_AVAILABLE, 0), "other": (0, 1)}


def test_a_producer_waits_for_a_leader(broker: Broker) -> None:
    fault = broker.faults.answer("Metadata", error="LEADER_NOT_AVAILABLE", topic="orders", times=3)
    assert Sent(broker, **{"topic.metadata.refresh.fast.interval.ms": 10}).send(b"one").errors == [None]
    assert fault.count == 3


def test_an_error_applies_to_one_topic_of_listoffsets(broker: Broker, client: RawClient) -> None:
    broker.faults.answer("ListOffsets", error="LEADER_NOT_AVAILABLE", topic="orders")
    parts = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
    topics = [ListOffsetsTopic(name=name, partitions=parts) for name in ("orders", "other")]
    answer = client.request(ListOffsetsRequest(replica_id=-1, topics=topics), 7, ListOffsetsResponse)
    found = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
    assert found == {"orders": ErrorCode.LEADER_NOT_AVAILABLE, "other": 0}


def test_refused_topic_changes_are_not_made(broker: Broker, client: RawClient) -> None:
    """Other changes in the same request are made."""
    broker.faults.answer("CreateTopics", error="POLICY_VIOLATION", topic="no")
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for name in ("yes", "no")
    ]
    created = client.request(CreateTopicsRequest(topics=topics), 7, CreateTopicsResponse).topics
    assert {topic.name: topic.error_code for topic in created} == {"yes": 0, "no": ErrorCode.POLICY_VIOLATION}
    assert broker.topics() == ["orders", "other", "yes"]
    broker.faults.answer("DeleteTopics", error="TOPIC_AUTHORIZATION_FAILED", topic="orders")
    doomed = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in ("yes", "orders")]
    deleted = client.request(DeleteTopicsRequest(topics=doomed, timeout_ms=5_000), 6, DeleteTopicsResponse).responses
    assert {topic.name: topic.error_code for topic in deleted} == {
        "yes": 0,
        "orders": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    assert broker.topics() == ["orders", "other"]


def test_an_admin_client_is_refused(broker: Broker) -> None:
    broker.faults.answer("create_topics", error="TopicAuthorizationFailed")
    admin = AdminClient({"bootstrap.servers": broker.address})
    with pytest.raises(KafkaException) as raised:
        admin.create_topics([NewTopic("new", 1, 1)])["new"].result(SECONDS_MAX)
    assert raised.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert "new" not in broker.topics()


# Delays.


@pytest.mark.parametrize("acks", ["1", "all"])
def test_a_delayed_response_is_complete(broker: Broker, acks: str) -> None:
    sent = Sent(broker, acks=acks).send(b"one")
    fault = broker.faults.delay("Produce", seconds=DELAY_SECONDS)
    began = time.monotonic()
    sent.send(b"two")
    assert time.monotonic() - began >= DELAY_SECONDS
    assert (sent.errors, sent.offsets, fault.count) == ([None, None], [0, 1], 1)


def test_a_delay_applies_to_the_response_only(broker: Broker, client: RawClient) -> None:
    broker.faults.delay("Produce", seconds=600)
    writing = threading.Thread(target=unanswered, args=(client,))
    writing.start()
    while not values(broker):
        pass
    assert writing.is_alive(), "there is no answer yet"
    client.end_of_sending()
    writing.join(SECONDS_MAX)
    assert not writing.is_alive()


def unanswered(client: RawClient) -> None:
    with pytest.raises(Closed):
        produced(client, "orders")


def test_a_producer_that_times_out_writes_a_duplicate(broker: Broker) -> None:
    """This is why a producer should be idempotent."""
    broker.faults.delay("Produce", seconds=600)
    sent = Sent(broker, **{"socket.timeout.ms": 300}).send(b"one")
    assert sent.errors == [None]
    assert values(broker) == [b"one", b"one"]


def test_a_delay_applies_to_a_long_poll(broker: Broker, client: RawClient) -> None:
    """The poll is woken as usual, and its response is delayed afterwards."""
    fault = broker.faults.delay("Fetch", seconds=DELAY_SECONDS)
    parts = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
    topics = [FetchTopic(topic="orders", partitions=parts)]
    found: list[FetchResponse] = []
    request = FetchRequest(max_wait_ms=600_000, min_bytes=1, topics=topics)
    polling = threading.Thread(target=lambda: found.append(client.request(request, 12, FetchResponse)))
    polling.start()
    fault.wait()
    began = time.monotonic()
    Sent(broker).send(b"one")
    polling.join(SECONDS_MAX)
    assert time.monotonic() - began >= DELAY_SECONDS
    assert found[0].responses[0].partitions[0].records


def test_answers_keep_their_order(broker: Broker, client: RawClient) -> None:
    broker.faults.delay("Metadata", seconds=DELAY_SECONDS)
    client.send(frame(MetadataRequest(topics=[]), 12, 1) + frame(ApiVersionsRequest(), 0, 2))
    answers = [client.read_frame(), client.read_frame()]
    assert [int.from_bytes(answer[:4], "big") for answer in answers] == [1, 2]


def test_delayed_responses_are_sent_when_the_broker_stops() -> None:
    with Broker() as broker, RawClient(broker.port) as client:
        fault = broker.faults.delay("ApiVersions", seconds=600)
        pinging = threading.Thread(target=client.ping)
        pinging.start()
        fault.wait()
        broker.stop()
        pinging.join(SECONDS_MAX)
        assert not pinging.is_alive()


# Dropped connections.


def test_a_request_is_dropped_before_it_is_handled(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    fault = broker.faults.drop("Produce")
    sent = Sent(broker).send(b"one")
    assert (sent.errors, sent.offsets, fault.count) == ([None], [0], 1)
    assert values(broker) == [b"one"]
    assert any("a test drops Produce" in record.message for record in caplog.records)
    assert max(record.levelno for record in caplog.records) == logging.WARNING


@pytest.mark.parametrize("acks", ["1", "all"])
def test_a_request_is_dropped_after_it_was_handled(broker: Broker, acks: str) -> None:
    fault = broker.faults.drop("Produce", after=True)
    sent = Sent(broker, acks=acks).send(b"one")
    assert (sent.errors, sent.offsets, fault.count) == ([None], [1], 1)
    assert values(broker) == [b"one", b"one"], "the answer to the first was lost, so it was sent again"


def test_requests_before_a_dropped_one_are_answered(broker: Broker, client: RawClient) -> None:
    broker.faults.drop("Metadata")
    client.send(frame(ApiVersionsRequest(), 0, 1) + frame(MetadataRequest(topics=[]), 12, 2))
    assert client.read_frame()
    with pytest.raises(Closed):
        client.read_frame()


def test_a_broker_may_drop_all_requests(broker: Broker) -> None:
    with broker.faults.drop("ApiVersions", times=None) as fault:
        admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=1)
        assert fault.count >= 1
    assert "orders" in AdminClient({"bootstrap.servers": broker.address}).list_topics(timeout=SECONDS_MAX).topics


# Which requests.


def versions(broker: Broker) -> int:
    with RawClient(broker.port) as client:
        return client.request(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code


def test_a_fault_applies_to_one_client(broker: Broker) -> None:
    error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    for client_id in ("raw", lambda client_id: client_id.startswith("ra")):
        with broker.faults.answer("ApiVersions", error=error, times=None, client_id=client_id) as fault:
            assert versions(broker) == error
            assert fault.count == 1
            assert broker.faults.seen[-1].client_id == "raw"
    for client_id in ("rawer", lambda client_id: False):
        with broker.faults.answer("ApiVersions", error=error, times=None, client_id=client_id):
            assert versions(broker) == 0


def test_faults_apply_in_order(broker: Broker) -> None:
    first = broker.faults.answer(ApiKey.API_VERSIONS, error=ErrorCode.ILLEGAL_SASL_STATE)
    second = broker.faults.answer("API_VERSIONS", error="cluster_authorization_failed", times=2)
    assert [versions(broker) for _ in range(4)] == [first.error, second.error, second.error, 0]


def test_a_fault_applies_until_it_is_cleared(broker: Broker) -> None:
    with broker.faults.answer("ApiVersions", error="UNKNOWN_SERVER_ERROR", times=None) as fault:
        assert [versions(broker) for _ in range(3)] == [-1, -1, -1]
    assert versions(broker) == 0
    assert fault.count == 3
    broker.faults.answer("ApiVersions", error="UNKNOWN_SERVER_ERROR", times=None)
    broker.faults.clear()
    assert versions(broker) == 0


def test_a_test_waits_for_a_fault(broker: Broker) -> None:
    fault = broker.faults.delay("ApiVersions", seconds=0, times=2)
    with pytest.raises(TimeoutError, match="0 times"):
        fault.wait(0.01)
    threading.Thread(target=lambda: [versions(broker) for _ in range(2)]).start()
    fault.wait()
    assert fault.count == 2


def test_faults_outlive_a_restart() -> None:
    with Broker() as broker:
        broker.faults.answer("ApiVersions", error="UNKNOWN_SERVER_ERROR")
        broker.restart()
        assert versions(broker) == -1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda faults: faults.answer("Produse", error="NOT_COORDINATOR"),
            "unknown API 'Produse'; the APIs are Produce, Fetch",
        ),
        (
            lambda faults: faults.delay("DescribeQuorum", seconds=1),
            "not supported by this broker.*the APIs are Produce",
        ),
        (lambda faults: faults.answer("Fetch", error="NOT_LEADER"), "NOT_LEADER_OR_FOLLOWER"),
        (lambda faults: faults.answer("Fetch", error="xyz"), "the names are UNKNOWN_SERVER_ERROR"),
        (lambda faults: faults.answer("Fetch", error="NONE"), "NONE is not an error"),
        (lambda faults: faults.drop("Fetch", times=0), "times=0"),
        (lambda faults: faults.delay("Fetch", seconds=-1), "seconds=-1"),
        (lambda faults: faults.drop("ApiVersions", topic="orders"), "contain no topics"),
    ],
)
def test_unknown_names_are_refused(broker: Broker, change: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        change(broker.faults)  # type: ignore[operator]
