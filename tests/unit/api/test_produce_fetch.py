"""Produce and Fetch without a socket: written records are read in every version, and parked requests complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName
from odradek.base.uuids import ZERO_UUID
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.record.builder import encode_batch
from odradek.record.compression import Codec
from odradek.record.record_batch import Batch, iter_batches
from odradek.record.records import decode
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from support.in_memory import NOW_MS, Harness

TOPIC = TopicName("t")
ALL, LEADER = -1, 1


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    made = Harness(tmp_path)
    create(made)
    return made


def create(harness: Harness, name: str = TOPIC, **configs: str) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=2,
        replication_factor=1,
        assignments=[],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    (result,) = harness.request(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse).topics
    assert result.error_code == ErrorCode.NONE, result.error_message


def batch(*values: bytes, timestamp: int = NOW_MS) -> bytearray:
    return encode_batch([(b"k", value, (), timestamp) for value in values])


def request(harness: Harness, records: bytes | bytearray | None, acks: int = ALL, version: int = 9) -> ProduceRequest:
    topic_id = harness.broker.view.topics[TOPIC].id if version >= 13 else ZERO_UUID
    partition = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name="" if version >= 13 else TOPIC, topic_id=topic_id, partition_data=[partition])
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])


def produce(
    harness: Harness, records: bytes | bytearray | None, acks: int = ALL, version: int = 9
) -> PartitionProduceResponse:
    response = harness.request(request(harness, records, acks, version), version, ProduceResponse)
    return response.responses[0].partition_responses[0]


def fetch_request(harness: Harness, offset: int, version: int = 12, **limits: int) -> FetchRequest:
    partition = FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=limits.pop("partition_max_bytes", 10**6)
    )
    topic_id = harness.broker.view.topics[TOPIC].id if version >= 13 else ZERO_UUID
    topic = FetchTopic(topic="" if version >= 13 else TOPIC, topic_id=topic_id, partitions=[partition])
    limits = {"max_wait_ms": 500, "min_bytes": 1, **limits}
    return FetchRequest(topics=[topic], forgotten_topics_data=[], **limits)  # type: ignore[arg-type]


def fetch(harness: Harness, offset: int, version: int = 12, **limits: int) -> PartitionData:
    response = harness.request(fetch_request(harness, offset, version, **limits), version, FetchResponse)
    assert response.error_code == ErrorCode.NONE
    return response.responses[0].partitions[0]


def values(data: PartitionData) -> list[bytes | None]:
    assert data.error_code == ErrorCode.NONE
    assert isinstance(data.records, memoryview)
    return [record.value for one in iter_batches(data.records) for record in decode(one)]


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_works_in_every_version(harness: Harness, version: int) -> None:
    first = produce(harness, batch(b"a", b"b"), version=version)
    second = produce(harness, batch(b"c"), acks=LEADER, version=version)
    assert (first.error_code, first.base_offset) == (0, 0)
    assert (second.error_code, second.base_offset) == (0, 2)
    assert values(fetch(harness, 0)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_works_in_every_version(harness: Harness, version: int) -> None:
    produce(harness, batch(b"a", b"b"))
    produce(harness, batch(b"c"))
    data = fetch(harness, 1, version)
    assert values(data) == [b"a", b"b", b"c"]  # Whole batches: the client skips the records below its offset.
    assert data.high_watermark == 3


def test_acks_all_waits_for_the_sync_and_is_invisible_before(harness: Harness) -> None:
    parked = harness.send(request(harness, batch(b"a")), 9)
    assert isinstance(parked, ParkedRequest)
    assert values(fetch(harness, 0, max_wait_ms=0)) == []
    harness.settle()
    assert harness.broker.purgatory.take_completed() == [parked]
    assert values(fetch(harness, 0)) == [b"a"]


def test_one_sync_completes_all_parked_requests(harness: Harness) -> None:
    waiting = [harness.send(request(harness, batch(b"a")), 9) for _ in range(5)]
    assert len(harness.broker.take_effects()) == 1
    waiting += [harness.send(request(harness, batch(b"b")), 9) for _ in range(2)]
    assert harness.broker.take_effects() == []  # One round at a time.
    assert harness.broker.purgatory.take_completed() == []
    assert len(waiting) == len(harness.broker.purgatory)


def test_flush_messages_relaxes_acks_all(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    create(harness, flush_messages="3")
    assert not isinstance(harness.send(request(harness, batch(b"a", b"b")), 9), ParkedRequest)
    assert isinstance(harness.send(request(harness, batch(b"c"), LEADER), 9), ParkedRequest)
    harness.settle()
    assert values(fetch(harness, 0)) == [b"a", b"b", b"c"]


def test_acks_0_gets_no_response(harness: Harness) -> None:
    assert harness.send(request(harness, batch(b"a"), acks=0), 9) is None
    assert values(fetch(harness, 0)) == [b"a"]


def test_parked_fetch_waits_for_min_bytes(harness: Harness) -> None:
    one = batch(b"x" * 100)
    parked = harness.send(fetch_request(harness, 0, min_bytes=2 * len(one)), 12)
    assert isinstance(parked, ParkedRequest)
    produce(harness, bytes(one), acks=LEADER)
    assert harness.broker.purgatory.take_completed() == []
    produce(harness, bytes(one), acks=LEADER)
    (woken,) = harness.broker.purgatory.take_completed()
    assert woken is parked
    answer = harness.decoded(parked.then(), 12, FetchResponse)
    assert len(values(answer.responses[0].partitions[0])) == 2


def test_parked_fetch_is_empty_at_its_deadline(harness: Harness) -> None:
    before = harness.now.steady
    assert values(fetch(harness, 0, max_wait_ms=300)) == []
    assert 300 <= harness.now.steady - before < 310


def test_fetch_limits_apply_after_the_first_batch(harness: Harness) -> None:
    for _ in range(3):
        produce(harness, batch(b"x" * 1000))
    size = len(batch(b"x" * 1000))
    assert len(values(fetch(harness, 0, partition_max_bytes=1))) == 1
    assert len(values(fetch(harness, 0, partition_max_bytes=2 * size + 10))) == 2
    assert len(values(fetch(harness, 0, max_bytes=2 * size + 10))) == 2


@pytest.mark.parametrize(("offset", "code"), [(-1, ErrorCode.OFFSET_OUT_OF_RANGE), (2, ErrorCode.OFFSET_OUT_OF_RANGE)])
def test_missing_offset_is_out_of_range(harness: Harness, offset: int, code: ErrorCode) -> None:
    produce(harness, batch(b"a"))
    assert fetch(harness, offset).error_code == code


def test_unknown_topics_partitions_and_ids_are_refused(harness: Harness) -> None:
    partition = FetchPartition(partition=7, fetch_offset=0, partition_max_bytes=1)
    topics = [FetchTopic(topic="t", partitions=[partition]), FetchTopic(topic="nowhere", partitions=[partition])]
    answer = harness.request(
        FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics, forgotten_topics_data=[]), 12, FetchResponse
    )
    codes = [part.error_code for topic in answer.responses for part in topic.partitions]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    topics = [FetchTopic(topic_id=harness.broker.entropy.new_uuid(), partitions=[partition])]
    answer = harness.request(
        FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics, forgotten_topics_data=[]), 13, FetchResponse
    )
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def flipped(records: bytearray) -> bytearray:
    records[-1] ^= 1
    return records


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (b"rubbish", ErrorCode.INVALID_RECORD),
        (flipped(batch(b"a")), ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a")[:-1], ErrorCode.INVALID_RECORD),
        (batch(b"x" * 2_000_000), ErrorCode.MESSAGE_TOO_LARGE),
        (batch(b"a", timestamp=NOW_MS + 2 * 3_600_000), ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_invalid_records_are_refused(harness: Harness, records: bytes | None, code: ErrorCode) -> None:
    answer = produce(harness, records)
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert answer.error_message
    assert fetch(harness, 0, max_wait_ms=0).high_watermark == 0


def test_acks_must_be_0_1_or_all(harness: Harness) -> None:
    assert produce(harness, batch(b"a"), acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_log_append_time_is_the_brokers(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    create(harness, message_timestamp_type="LogAppendTime")
    assert produce(harness, batch(b"a", timestamp=5)).log_append_time_ms == NOW_MS
    data = fetch(harness, 0)
    assert isinstance(data.records, memoryview)
    (stored,) = iter_batches(data.records)
    assert Batch.verified(stored.view).max_timestamp == NOW_MS


def test_restart_keeps_all_records(harness: Harness) -> None:
    produce(harness, batch(b"a"))
    produce(harness, batch(b"b"), acks=LEADER)
    harness.restart()
    harness.settle()
    assert values(fetch(harness, 0)) == [b"a", b"b"]
    assert produce(harness, batch(b"c")).base_offset == 2


@pytest.mark.parametrize("version", range(1, 12))
def test_list_offsets_works_in_every_version(harness: Harness, version: int) -> None:
    for number in range(3):
        produce(harness, batch(b"x", b"y", timestamp=NOW_MS + 10 * number))

    def place(timestamp: int) -> tuple[int, int, int]:
        partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = ListOffsetsTopic(name=TOPIC, partitions=[partition])
        answer = harness.request(ListOffsetsRequest(replica_id=-1, topics=[topic]), version, ListOffsetsResponse)
        (part,) = answer.topics[0].partitions
        return part.error_code, part.offset, part.timestamp

    assert place(-1) == (0, 6, -1)
    assert place(-2) == (0, 0, -1)
    assert place(NOW_MS + 5) == (0, 2, NOW_MS + 10)
    assert place(NOW_MS + 21) == (0, -1, -1)
    code, offset, _ = place(-3)
    assert (code, offset) == ((0, 4) if version >= 7 else (ErrorCode.UNSUPPORTED_VERSION, -1))


def test_incremental_session_returns_only_changes(harness: Harness) -> None:
    produce(harness, batch(b"a"))

    def again(session_id: int, epoch: int, topics: list[FetchTopic]) -> FetchResponse:
        message = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            session_id=session_id,
            session_epoch=epoch,
            topics=topics,
            forgotten_topics_data=[],
        )
        return harness.request(message, 12, FetchResponse)

    def partition(index: int, offset: int) -> FetchPartition:
        return FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=10**6)

    def indexes_of(answer: FetchResponse) -> list[int]:
        assert answer.error_code == ErrorCode.NONE
        return [part.partition_index for topic in answer.responses for part in topic.partitions]

    first = again(0, 0, [FetchTopic(topic=TOPIC, partitions=[partition(0, 0), partition(1, 0)])])
    assert first.session_id > 0 and indexes_of(first) == [0, 1]
    moved: list[FetchableTopicResponse] = again(
        first.session_id, 1, [FetchTopic(topic=TOPIC, partitions=[partition(0, 1)])]
    ).responses
    assert moved == []
    produce(harness, batch(b"b"))
    assert indexes_of(again(first.session_id, 2, [])) == [0]
    assert again(first.session_id, 2, []).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


@pytest.mark.parametrize("compression", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("sent", list(Codec))
def test_records_are_stored_with_the_topics_compression_type(tmp_path: Path, compression: str, sent: Codec) -> None:
    harness = Harness(tmp_path)
    create(harness, compression_type=compression)
    records = encode_batch([(b"k", b"v" * 500, (("h", b"x"),), NOW_MS + n) for n in range(3)], sent)
    assert produce(harness, records).error_code == ErrorCode.NONE
    data = fetch(harness, 0)
    assert values(data) == [b"v" * 500] * 3
    assert isinstance(data.records, memoryview)
    (stored,) = iter_batches(data.records)
    expected = Codec.NONE if compression == "uncompressed" else Codec[compression.upper()]
    assert Batch.verified(stored.view).codec is expected


def test_compacted_topic_requires_keys(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    create(harness, cleanup_policy="compact")
    keyless = encode_batch([(b"k", b"v", (), NOW_MS), (None, b"v", (), NOW_MS)])
    assert produce(harness, keyless).error_code == ErrorCode.INVALID_RECORD
    assert produce(harness, batch(b"v")).error_code == ErrorCode.NONE


def test_records_with_too_old_timestamps_are_refused(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    create(harness, message_timestamp_before_max_ms="1000")
    assert produce(harness, batch(b"v", timestamp=NOW_MS - 2000)).error_code == ErrorCode.INVALID_TIMESTAMP
    assert produce(harness, batch(b"v", timestamp=NOW_MS - 500)).error_code == ErrorCode.NONE
