"""The same histories of producers and transactions on Apache Kafka and Odradek: equal responses and equal state.

Partitions are not verified here: a Produce request begins a transaction, and a marker ends it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Protocol, TypeVar

import pytest
from kafka_peer import REAL_KAFKA, KafkaBroker

from odradek.base.errors import ErrorCode
from odradek.record.builder import encode_batch
from odradek.record.record_batch import iter_batches
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse, TopicRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from support.in_memory import Harness
from support.raw_client import RawClient
from support.waiting import until

pytestmark = [*REAL_KAFKA, pytest.mark.own_peer("asks a running Apache Kafka the same as this broker")]

T0 = 1_600_000_000_000  # Long before either broker's clock, which markers use.
STEPS = 300
NOW = -2
MAX_TIMESTAMP = -3
SETTINGS = {"transaction.partition.verification.enable": "false"}
FOREVER = {"retention.ms": "-1"}  # The records are old.
TOPICS: dict[str, dict[str, str]] = {
    "create": FOREVER,
    "append": FOREVER | {"message.timestamp.type": "LogAppendTime"},
}

Answer = TypeVar("Answer")
Seen = list[object]


class SendRequest(Protocol):
    def __call__(self, message: object, version: int, answer: type[Answer], /) -> Answer: ...


class Side:
    """One broker of the comparison."""

    def __init__(self, send: SendRequest) -> None:
        self._send_request = send

    def create(self) -> None:
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                assignments=[],
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
            )
            for name, configs in TOPICS.items()
        ]
        answer = self._send_request(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 5, CreateTopicsResponse)
        assert not any(topic.error_code for topic in answer.topics)
        until(self._is_there)

    def _is_there(self) -> bool:
        """Wait until the named leader leads."""
        return all(self.offset_of(name, -1, 0)[0] == "NONE" for name in TOPICS)

    def produce(self, topic: str, records: bytes, version: int, transactional_id: str | None) -> Seen:
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
        request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=60_000, topic_data=[data])
        part = self._send_request(request, version, ProduceResponse).responses[0].partition_responses[0]
        return [ErrorCode(part.error_code).name, part.base_offset, _time(part.log_append_time_ms)]

    def end(self, topic: str, marker: WritableTxnMarker, version: int) -> str:
        marker.topics = [WritableTxnMarkerTopic(name=topic, partition_indexes=[0])]
        answer = self._send_request(WriteTxnMarkersRequest(markers=[marker]), version, WriteTxnMarkersResponse)
        return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code).name

    def fetch(self, topic: str, offset: int, isolation_level: int, max_bytes: int) -> Seen:
        part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=isolation_level,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=[part])],
        )
        found = self._send_request(request, 11, FetchResponse).responses[0].partitions[0]
        offsets = [(batch.base_offset, batch.next_offset) for batch in iter_batches(found.records or b"")]
        end = offsets[-1][1] if offsets else 0
        aborted = found.aborted_transactions
        return [
            ErrorCode(found.error_code).name,
            found.high_watermark,
            found.last_stable_offset,
            offsets,
            # Kafka returns some that begin after the records that it sends.
            aborted and sorted((one.producer_id, one.first_offset) for one in aborted if one.first_offset < end),
        ]

    def offset_of(self, topic: str, timestamp: int, isolation_level: int) -> Seen:
        part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[ListOffsetsTopic(name=topic, partitions=[part])],
        )
        found = self._send_request(request, 7, ListOffsetsResponse).topics[0].partitions[0]
        time = _time(found.timestamp)
        is_chance = timestamp == MAX_TIMESTAMP and time == NOW  # Several of one millisecond: which comes first?
        return [ErrorCode(found.error_code).name, is_chance or found.offset, time]

    def producers(self, topic: str) -> list[tuple[int, ...]]:
        request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
        (part,) = self._send_request(request, 0, DescribeProducersResponse).topics[0].partitions
        assert part.error_code == ErrorCode.NONE
        return sorted(
            (
                one.producer_id,
                one.producer_epoch,
                one.last_sequence,
                _time(one.last_timestamp),
                one.coordinator_epoch,
                one.current_txn_start_offset,
            )
            for one in part.active_producers
        )


def _time(timestamp: int) -> int:
    """Replace a broker's own time, which differs between brokers."""
    return timestamp if timestamp <= T0 + 20 * STEPS else NOW


class Writer:
    """A producer that sends valid requests most of the time."""

    def __init__(self, random: Random, producer_id: int) -> None:
        self._random = random
        self._id = producer_id
        self._epoch = 0
        self._next = random.choice([0, 0, 3, 2**31 - 4])
        self._is_open = False
        self._sent: list[bytes] = []
        self._transacts = random.random() < 0.7

    def batch(self, number: int) -> bytes:
        random = self._random
        if self._sent and random.random() < 0.25:
            return random.choice(self._sent[-8:])
        if random.random() < 0.1:
            self._epoch += 1
            self._next = 0
        count = random.choice([1, 1, 2, 5])
        odd = random.random() < 0.15
        sequence = max(self._next + random.choice([-3, -1, 1, 7]), 0) if odd else self._next
        epoch = max(self._epoch - (random.random() < 0.05), 0)
        raw = bytes(
            encode_batch(
                [(None, b"%d" % number, (), T0 + 10 * number + i) for i in range(count)],
                producer_id=self._id,  # type: ignore[arg-type]
                producer_epoch=epoch,  # type: ignore[arg-type]
                base_sequence=sequence & 0x7FFFFFFF,
                is_transactional=self._transacts and random.random() < 0.97,
            )
        )
        if not odd and epoch == self._epoch:
            self._next = (sequence + count) & 0x7FFFFFFF
            self._sent.append(raw)
        return raw

    def marker(self) -> tuple[WritableTxnMarker, int]:
        random = self._random
        version = random.choice([1, 2])
        transaction_version = random.choice([0, 1, 2, 2]) if version == 2 else 0
        epoch = max(self._epoch + (transaction_version == 2) + random.choice([0, 0, 0, 0, 0, -1, 1]), 0)
        if epoch > self._epoch:
            self._epoch, self._next = epoch, 0
        marker = WritableTxnMarker(
            producer_id=self._id,
            producer_epoch=epoch,
            transaction_result=random.random() < 0.5,
            topics=[],
            coordinator_epoch=random.choice([3, 3, 3, 3, 4, 2]),
            transaction_version=transaction_version,
        )
        return marker, version


def history(seed: int, side: Side) -> Iterator[tuple[object, object]]:
    """Return the requests and their responses."""
    random = Random(seed)
    writers = {topic: [Writer(random, seed * 100 + number) for number in range(4)] for topic in TOPICS}
    for number in range(STEPS):
        topic = random.choice(["create", "create", "append"])
        writer = random.choice(writers[topic])
        match random.random():
            case chance if chance < 0.65:
                batch = writer.batch(number)
                version = random.choice([9, 11, 11, 11, 12])
                yield (number, "produce", batch.hex()), side.produce(topic, batch, version, "any")
            case chance if chance < 0.85:
                marker, version = writer.marker()
                yield (number, "end", marker, version), side.end(topic, marker, version)
            case _:
                yield (
                    (number, "fetch"),
                    [side.fetch(topic, random.randrange(60), level, random.choice([1, 1 << 20])) for level in (0, 1)],
                )
                timestamp = random.choice([-1, -2, -3, T0 + 10 * random.randrange(number + 1)])
                yield (number, "offset", timestamp), [side.offset_of(topic, timestamp, level) for level in (0, 1)]
                yield (number, "producers"), side.producers(topic)
    for topic in TOPICS:
        yield (topic, "producers"), side.producers(topic)
        for offset in range(0, 200, 7):
            yield (topic, "fetch", offset), side.fetch(topic, offset, 1, 1 << 20)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), settings=SETTINGS) as broker:
        yield broker


def test_all_responses_equal_kafkas(kafka: KafkaBroker, tmp_path: Path) -> None:
    with RawClient(kafka.port) as client:
        theirs = Side(client.request)
        theirs.create()
        harness = Harness(tmp_path, **{key.replace(".", "_"): value for key, value in SETTINGS.items()})

        def send(message: object, version: int, answer: type[Answer]) -> Answer:
            harness.pass_time(1)
            return harness.request(message, version, answer)

        ours = Side(send)
        ours.create()
        for seed in range(8):
            for (step, expected), (_, answered) in zip(history(seed, theirs), history(seed, ours), strict=True):
                assert answered == expected, (seed, step)
