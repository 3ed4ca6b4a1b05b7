from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_config import ClientConfig
from odradek.client.connection.client_errors import ErrorResponse, KafkaUnavailable, UnknownTopic
from odradek.client.producer.delivery import ACKS_LEADER, ACKS_NONE, Delivery, Produced, produce, split_in_half
from odradek.client.producer.partitioner import partition_of_key
from odradek.client.producer.producer import Producer
from odradek.record.builder import encode_batch
from odradek.record.compression import Codec
from odradek.record.record_batch import Batch
from odradek.record.records import Record, decode
from odradek.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.wire.schema.api_keys import ApiKey
from support.scripted_broker import HangUp, ScriptedBroker

pytestmark = pytest.mark.waits

T0, T1 = TopicPartition(TopicName("t"), 0), TopicPartition(TopicName("t"), 1)


class Log:
    """A leader's log of batches; `errors` are the next responses of a partition."""

    def __init__(self, batch_bytes_max: int = 1 << 30) -> None:
        self.records: dict[int, list[Record]] = {}
        self.batches: dict[int, list[int]] = {}
        self.errors: dict[int, list[ErrorCode]] = {}
        self.detail: str | None = None
        self.batch_bytes_max = batch_bytes_max

    def __call__(self, request: ProduceRequest, version: int) -> ProduceResponse | None:
        topics = [
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[self._append(part.index, part.records) for part in topic.partition_data],
            )
            for topic in request.topic_data
        ]
        return None if request.acks == ACKS_NONE else ProduceResponse(responses=topics)

    def _append(self, index: int, data: object) -> PartitionProduceResponse:
        assert isinstance(data, bytes | bytearray | memoryview)
        code = self.errors[index].pop(0) if self.errors.get(index) else ErrorCode.NONE
        if len(data) > self.batch_bytes_max:
            code = ErrorCode.MESSAGE_TOO_LARGE
        log = self.records.setdefault(index, [])
        base_offset = len(log)
        if code == ErrorCode.NONE:
            records = decode(Batch.checked(data))
            log += records
            self.batches.setdefault(index, []).append(len(records))
        errors = (
            [BatchIndexAndErrorMessage(batch_index=3, batch_index_error_message=self.detail)] if self.detail else []
        )
        return PartitionProduceResponse(
            index=index, error_code=code, base_offset=base_offset, log_start_offset=0, record_errors=errors
        )

    def values(self, index: int = 0) -> list[bytes | None]:
        return [record.value for record in self.records.get(index, [])]


def batch(*values: bytes) -> bytearray:
    return encode_batch([(None, value, (), 1_000) for value in values])


def cluster_of(broker: ScriptedBroker, **settings: int) -> Cluster:
    quick = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "api_timeout_ms": 1_000, "delivery_timeout_ms": 1_000}
    return Cluster(ClientConfig(broker.address, **(quick | settings)))  # type: ignore[arg-type]  # All ints.


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
def test_every_produce_version_is_supported(version: int) -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        broker.topics["t"] = 2
        broker.versions[ApiKey.PRODUCE] = (0, version)
        log = Log()
        broker.on(ProduceRequest, log)
        landed = produce(cluster, {T0: batch(b"a", b"b"), T1: batch(b"c")})
        assert landed[T0] == Produced(0, -1, 0 if version >= 5 else -1)
        assert produce(cluster, {T0: batch(b"d")})[T0].base_offset == 2
        assert (log.values(0), log.values(1)) == ([b"a", b"b", b"d"], [b"c"])
        assert len(broker.seen) == 2, "one request to one leader"


def test_topic_without_an_id_is_written_by_name() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        broker.topic_ids["t"] = ZERO_UUID
        broker.on(ProduceRequest, Log())
        produce(cluster, {T0: batch(b"a")})
        assert broker.seen[0].topic_data[0].name == "t"


def test_only_failed_batches_are_resent() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        broker.topics["t"] = 2
        log = Log()
        log.errors[1] = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS]
        broker.on(ProduceRequest, log)
        produce(cluster, {T0: batch(b"a"), T1: batch(b"b")})
        assert (log.values(0), log.values(1)) == ([b"a"], [b"b"])
        assert broker.metadata_requests == 3


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not authorized"),
        (ErrorCode.INVALID_RECORD, "record 3 of the batch: no key"),
        (ErrorCode.MESSAGE_TOO_LARGE, "max.message.bytes"),
    ],
)
def test_permanent_error_is_raised_immediately(code: ErrorCode, words: str) -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        log = Log()
        log.errors[0] = [code]
        log.detail = "no key"
        broker.on(ProduceRequest, log)
        with pytest.raises(ErrorResponse, match=words):
            produce(cluster, {T0: batch(b"a")})
        assert len(broker.seen) == 1


def test_retriable_error_is_raised_at_the_timeout() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        log = Log()
        log.errors[0] = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 100_000
        broker.on(ProduceRequest, log)
        with pytest.raises(ErrorResponse, match="leader changed"):
            produce(cluster, {T0: batch(b"a")}, timeout_ms=50)
        with pytest.raises(UnknownTopic):
            produce(cluster, {TopicPartition(TopicName("nix"), 0): batch(b"a")}, timeout_ms=50)


def test_batch_with_a_lost_response_is_resent() -> None:
    """Delivery is at least once: the broker had written the batch before."""
    log = Log()
    answered = 0

    def lose_first_response(request: ProduceRequest, version: int) -> ProduceResponse | None:
        nonlocal answered
        answered += 1
        answer = log(request, version)
        if answered == 1:
            raise HangUp
        return answer

    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        broker.on(ProduceRequest, lose_first_response)
        produce(cluster, {T0: batch(b"a")})
        assert log.values() == [b"a", b"a"]


def test_acks_0_does_not_wait_for_a_response() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        log = Log()
        broker.on(ProduceRequest, log)
        assert produce(cluster, {T0: batch(b"a")}, acks=ACKS_NONE) == {T0: Produced(-1)}
        produce(cluster, {T0: batch(b"b")}, acks=ACKS_LEADER)
        assert log.values() == [b"a", b"b"], "one connection, so the second answer proves the first arrived"


def test_too_large_batch_is_sent_in_ordered_halves() -> None:
    values = [b"%04d" % number + bytes(100) for number in range(40)]
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        log = Log(batch_bytes_max=1_500)
        broker.on(ProduceRequest, log)
        landed = produce(cluster, {T0: batch(*values)})
        assert landed[T0].base_offset == 0
        assert log.values() == values
        with pytest.raises(ErrorResponse, match=r"max\.message\.bytes"):
            produce(cluster, {T0: batch(bytes(2_000))})


def test_halves_keep_records_and_codec() -> None:
    records = [(b"k%d" % number, None, (("h", b"x"),), 1_000 + number) for number in range(5)]
    whole = encode_batch(records, Codec.ZSTD)
    halves = split_in_half(whole)
    assert [Batch.checked(half).codec for half in halves] == [Codec.ZSTD, Codec.ZSTD]
    found = [record for half in halves for record in decode(Batch.checked(half))]
    assert [(record.key, record.value, record.headers, record.timestamp) for record in found] == records
    assert split_in_half(batch(b"one")) == []


def test_producer_uses_kafkas_partitioner_and_keeps_order() -> None:
    with ScriptedBroker() as broker, cluster_of(broker, batch_bytes=500) as cluster:
        broker.topics["t"] = 3
        log = Log()
        broker.on(ProduceRequest, log)
        with Producer(cluster) as producer:
            for number in range(1_000):
                producer.send("t", b"%d" % number, key=b"%d" % (number % 17), timestamp=number)
        assert producer.records_sent == producer.records_written == 1_000
        assert producer.is_empty
        for index in range(3):
            expected = [n for n in range(1_000) if partition_of_key(b"%d" % (n % 17), 3) == index]
            assert [record.timestamp for record in log.records[index]] == expected
            assert max(log.batches[index]) > 10


def test_records_without_a_key_fill_batches_of_one_partition_at_a_time() -> None:
    with ScriptedBroker() as broker, cluster_of(broker, batch_bytes=1_000) as cluster:
        broker.topics["t"] = 3
        log = Log()
        broker.on(ProduceRequest, log)
        with Producer(cluster) as producer:
            for number in range(3_000):
                producer.send("t", b"%d" % number)
        sizes = sorted(size for sizes in log.batches.values() for size in sizes)
        assert sum(sizes) == 3_000
        assert len(log.batches) == 3
        assert sizes[len(sizes) // 2] > 40, "most batches are full"


def test_producer_refuses_a_missing_partition() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        producer = Producer(cluster)
        with pytest.raises(UnknownTopic, match="t-1, of 1 partitions"):
            producer.send("t", b"x", partition=1)


def test_preencoded_batches_keep_their_order() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        log = Log()
        broker.on(ProduceRequest, log)
        producer = Producer(cluster)
        for number in range(20):
            producer.send_batch(T0, batch(b"%d" % number), 1)
        producer.flush()
        assert log.values() == [b"%d" % number for number in range(20)]
        assert producer.records_written == 20


@pytest.mark.parametrize("when", ["send", "flush"])
def test_producer_raises_errors_of_its_delivery(when: str) -> None:
    with ScriptedBroker() as broker, cluster_of(broker, batch_bytes=200) as cluster:
        log = Log()
        log.errors[0] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        broker.on(ProduceRequest, log)
        producer = Producer(cluster)

        def send_many() -> None:
            for _ in range(200_000):
                producer.send("t", bytes(100))

        def flush() -> None:
            producer.send("t", b"x")
            producer.flush()

        attempts: dict[str, Callable[[], None]] = {"send": send_many, "flush": flush}
        with pytest.raises(ErrorResponse, match="not authorized"):
            attempts[when]()
        assert producer.records_written < producer.records_sent


def test_producer_left_with_an_exception_does_not_flush() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        log = Log()
        broker.on(ProduceRequest, log)
        with pytest.raises(KeyError), Producer(cluster) as producer:
            producer.send("t", b"x")
            raise KeyError
        assert log.values() == []


def test_unreachable_broker_is_raised_at_the_timeout() -> None:
    with ScriptedBroker() as broker:
        broker.on(ProduceRequest, Log())
        cluster = cluster_of(broker, delivery_timeout_ms=50)
        produce(cluster, {T0: batch(b"a")})
    broker.drop_connections()
    with pytest.raises(KafkaUnavailable):
        produce(cluster, {T0: batch(b"a")})


def test_delivery_survives_metadata_dropped_before_the_response() -> None:
    """For example by a Fetcher on the same Cluster that finds no leader."""
    log = Log()
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        broker.on(ProduceRequest, log)
        delivery = Delivery(cluster, {T0: batch(b"x")})
        cluster.forget([T0])
        assert delivery.finish()[T0].base_offset == 0
