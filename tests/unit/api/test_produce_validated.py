"""Produce with validation of records: templated or decoded, inline or on a thread, with the current configuration."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import RECORD_ERRORS_MAX, SLICE_ELEMENTS
from odradek.base.units import ProducerEpoch, ProducerId, TimestampMs, TopicName, TopicPartition
from odradek.core.partition import ingress
from odradek.record.builder import RecordIn, encode_batch, encode_record, seal_batch
from odradek.record.compression import Codec
from odradek.record.record_batch import HEADER_BYTES, Batch
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from support.in_memory import NOW_MS, Harness, frame_of

NAME = TopicName("t")
LARGE = bytes(ingress.READ_AT_ONCE_BYTES_MAX)
COMPACT = {"cleanup_policy": "compact"}


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    made = Harness(tmp_path, odradek_record_validation="records", message_max_bytes="10000000")
    create(made)
    return made


def create(harness: Harness, partitions: int = 1, **configs: str) -> None:
    settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=NAME, num_partitions=partitions, replication_factor=1, assignments=[], configs=settings)
    (result,) = harness.request(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse).topics
    assert result.error_code == ErrorCode.NONE, result.error_message


def request(*batches: bytes | bytearray) -> ProduceRequest:
    parts = [PartitionProduceData(index=index, records=records) for index, records in enumerate(batches)]
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=NAME, partition_data=parts)])


def produce(harness: Harness, *batches: bytes | bytearray) -> list[PartitionProduceResponse]:
    return harness.request(request(*batches), 9, ProduceResponse).responses[0].partition_responses


def good(value: bytes = b"v", codec: Codec = Codec.NONE, key: bytes | None = b"k") -> bytes:
    records: list[RecordIn] = [(key, value, (), NOW_MS)]
    return bytes(encode_batch(records, codec))


def bad(codec: Codec, size: int = 1) -> bytes:
    """Return a batch of two records whose header counts three."""
    data = bytearray(HEADER_BYTES)
    for delta in range(2):
        encode_record(data, delta, 0, b"k", bytes(size))
    now = TimestampMs(NOW_MS)
    return bytes(seal_batch(data, codec, count=3, base_timestamp=now, max_timestamp=now))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("size", [1, len(LARGE)], ids=["small", "large"])
def test_batch_with_a_wrong_record_count_is_refused(harness: Harness, codec: Codec, size: int) -> None:
    for round_ in range(3):  # The second and third use the template.
        (refused,) = produce(harness, bad(codec, size))
        assert refused.error_code == ErrorCode.INVALID_RECORD
        assert (refused.base_offset, refused.record_errors) == (-1, [])
        assert "record 2 of 3" in (refused.error_message or "")
        (answer,) = produce(harness, good(bytes(size), codec))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, round_)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
def test_small_batches_use_the_template_from_the_second_on(harness: Harness, codec: Codec) -> None:
    produce(harness, good(codec=codec))
    assert len(harness.peer.produce_templates) == 1
    talk = harness.talk()
    talk.receive_data(frame_of(request(good(codec=codec)), 9, 7, "tests"))
    talk.step(harness.now, 0)
    assert talk.staged == 1
    assert not harness.broker.works


@pytest.mark.parametrize("codec", Codec)
def test_repeated_batch_gets_the_response_of_the_first(harness: Harness, codec: Codec) -> None:
    def numbered(sequence: int) -> bytes:
        return bytes(
            encode_batch(
                [(b"k", b"v", (), NOW_MS)],
                codec,
                producer_id=ProducerId(5),
                producer_epoch=ProducerEpoch(0),
                base_sequence=sequence,
            )
        )

    offsets = [produce(harness, numbered(sequence))[0].base_offset for sequence in (0, 1, 1, 0, 2)]
    assert offsets == [0, 1, 1, 0, 2]


def test_wrong_maximum_timestamp_is_corrected_in_the_log(harness: Harness) -> None:
    one = Batch.checked(bytearray(good()))
    one.stamp_max_timestamp(TimestampMs(NOW_MS + 10**10))
    assert produce(harness, bytes(one.view))[0].error_code == ErrorCode.NONE
    log = harness.broker.partitions[TopicPartition(NAME, 0)].log
    stored = Batch.verified(log.segments[0].file.pread(0, 1 << 20))
    assert stored.max_timestamp == NOW_MS


# Batches of a compacted topic, with and without the option.


@pytest.fixture(params=["header", "records"])
def compacted(tmp_path: Path, request: pytest.FixtureRequest) -> Harness:
    made = Harness(tmp_path, odradek_record_validation=request.param)
    create(made, 2, **COMPACT)
    return made


@pytest.mark.parametrize("codec", Codec)
def test_records_without_a_key_are_listed_in_the_response(compacted: Harness, codec: Codec) -> None:
    records: list[RecordIn] = [(key, b"v", (), NOW_MS) for key in (b"a", None, b"", None)]
    (refused,) = produce(compacted, encode_batch(records, codec))
    assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    sentence = "Compacted topic cannot accept message without key in topic partition t-0."
    assert [(one.batch_index, one.batch_index_error_message) for one in refused.record_errors] == [
        (1, sentence),
        (3, sentence),
    ]
    assert "2 record errors in total" in (refused.error_message or "")


def test_other_batches_of_the_request_are_accepted(compacted: Harness) -> None:
    for _ in range(3):
        taken, refused = produce(compacted, good(), good(key=None))
        assert taken.error_code == ErrorCode.NONE
        assert refused.error_code == ErrorCode.INVALID_RECORD
        assert [one.batch_index for one in refused.record_errors] == [0]


def test_record_errors_in_a_response_are_limited(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    create(harness, 150, **COMPACT)
    batch = bytes(encode_batch([(None, b"", (), NOW_MS)] * 20))
    alone = bytes(encode_batch([(None, b"", (), NOW_MS)] * (RECORD_ERRORS_MAX + 1)))
    assert len(produce(harness, alone)[0].record_errors) == RECORD_ERRORS_MAX
    for count in (5, 150):
        answers = produce(harness, *[batch] * count)
        assert sum(len(one.record_errors) for one in answers) <= RECORD_ERRORS_MAX
        assert all(one.record_errors for one in answers)


@pytest.mark.parametrize(
    "first", [{"odradek_record_validation": "records"}, {"compression_type": "lz4"}], ids=["read", "packed"]
)
def test_configuration_after_the_validation_applies(tmp_path: Path, first: dict[str, str]) -> None:
    """A keyless batch validated on a thread is refused if the topic has become compacted since."""
    harness = Harness(tmp_path, message_max_bytes="10000000")
    create(harness, **first)
    for key, code in ((None, ErrorCode.INVALID_RECORD), (b"k", ErrorCode.NONE)):
        talk = harness.talk()
        talk.receive_data(frame_of(request(good(LARGE, key=key)), 9, 7, "tests"))
        talk.step(harness.now, 0)
        (work,) = harness.broker.works
        work.run()
        harness.broker.works.clear()
        for partition in harness.broker.partitions.values():
            partition.configs = harness.configs.for_topic({"cleanup.policy": "compact"})
        work.on_finished()
        harness.resume(talk)
        answer = harness.decoded(talk.data_to_send(), 9, ProduceResponse).responses[0].partition_responses[0]
        assert answer.error_code == code
        for partition in harness.broker.partitions.values():
            partition.configs = harness.configs.for_topic({k.replace("_", "."): v for k, v in first.items()})


def _batches() -> Iterator[bytes]:
    """Yield batches of each codec: as small as possible, and with as many records as fit."""
    for codec in Codec:
        yield bytes(encode_batch([(b"", b"", (), NOW_MS)], codec))
        yield bytes(encode_batch([(b"", b"", (), NOW_MS)] * 4_000, codec))


@pytest.mark.slow
@pytest.mark.parametrize("batch", list(_batches()), ids=lambda batch: f"{len(batch)} bytes")
def test_validation_of_many_partitions_takes_short_turns(tmp_path: Path, batch: bytes) -> None:
    harness = Harness(tmp_path, odradek_record_validation="records")
    create(harness, 90)
    assert {one.error_code for one in produce(harness, *[batch] * 90)} == {ErrorCode.NONE}
    harness.longest_ns = 0
    assert {one.error_code for one in produce(harness, *[batch] * 90)} == {ErrorCode.NONE}
    assert harness.longest_ns < 20_000_000


@pytest.mark.parametrize("compression", ["producer", "gzip", "zstd"])
def test_zstd_is_refused_before_version_7_whatever_the_topics_codec(tmp_path: Path, compression: str) -> None:
    harness = Harness(tmp_path)
    create(harness, compression_type=compression)
    codes = []
    for version in (6, 7):
        answer = harness.request(request(bytearray(good(codec=Codec.ZSTD))), version, ProduceResponse)
        codes.append(answer.responses[0].partition_responses[0].error_code)
    assert codes == [ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.NONE]  # As Apache Kafka 4.4.0.


@pytest.mark.parametrize("partitions", [1, 2 * SLICE_ELEMENTS])
def test_refusals_are_freed_immediately(tmp_path: Path, partitions: int) -> None:
    """The frames of a stored exception hold the request until the next garbage collection."""
    harness = Harness(tmp_path)
    create(harness, partitions)
    gc.collect()
    gc.disable()
    try:
        parts = produce(harness, *[b"damaged"] * partitions)
        kept = [one for one in gc.get_objects() if isinstance(one, Refused)]
    finally:
        gc.enable()
    assert {part.error_code for part in parts} == {ErrorCode.INVALID_RECORD}
    assert not kept
