"""Produce requests with many partitions in slices; batches that need validation are validated on a thread."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.api.conversation import Conversation
from odradek.api.produce.produce_admission import FIRST_WRITE_PARTS
from odradek.api.request.admission import Admission
from odradek.base.errors import ErrorCode
from odradek.base.limits import SLICE_ELEMENTS
from odradek.base.units import Offset, TopicName, TopicPartition
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.record.builder import encode_batch
from odradek.record.compression import Codec
from odradek.record.crc import crc32c
from odradek.record.record_batch import iter_batches
from odradek.wire.client_codec import decode_response
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from support.in_memory import NOW_MS, Harness, frame_of
from support.rights import Granted

pytestmark = pytest.mark.slow

VERSION = 9
MANY = 2 * SLICE_ELEMENTS + 50
NONE, LEADER, ALL = 0, 1, -1


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    made = Harness(tmp_path)
    create(made, "t", MANY)
    return made


def create(harness: Harness, name: str, partitions: int = 1, **configs: str) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    (result,) = harness.request(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 7, CreateTopicsResponse).topics
    assert not result.error_code, result.error_message


def batch(codec: Codec = Codec.NONE, size: int = 10) -> bytes:
    return bytes(encode_batch([(b"k", b"v" * size, (), NOW_MS)], codec=codec))


def produce(indexes: range, acks: int = ALL, *, topic: str = "t", records: bytes | None = None) -> ProduceRequest:
    parts = [PartitionProduceData(index=index, records=bytearray(records or batch())) for index in indexes]
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[TopicProduceData(name=topic, partition_data=parts)])


def code_of(talk: Conversation) -> int:
    """Return the error code of the only partition in the response that is ready."""
    data = b"".join(map(bytes, talk.data_to_send()))  # type: ignore[arg-type]
    (part,) = decode_response(ProduceResponse, VERSION, data[4:])[1].responses[0].partition_responses
    return part.error_code


def answers(harness: Harness, request: ProduceRequest) -> list[PartitionProduceResponse]:
    (topic,) = harness.request(request, VERSION, ProduceResponse).responses
    return topic.partition_responses


def began(harness: Harness, request: ProduceRequest) -> Conversation:
    """Return a conversation that has run as far as possible without a thread."""
    talk = harness.talk()
    talk.receive_data(frame_of(request, VERSION, 1, "c"))
    while talk.step(harness.now, 0):
        pass
    return talk


def end(harness: Harness, topic: str, index: int = 0) -> int:
    return harness.broker.partitions[TopicPartition(TopicName(topic), index)].log.end_offset


@pytest.mark.parametrize("acks", [LEADER, ALL])
def test_each_partition_has_its_own_result(harness: Harness, acks: int) -> None:
    for base in range(2):
        parts = answers(harness, produce(range(MANY + 1), acks))
        assert [part.index for part in parts] == [*range(MANY + 1)]
        assert [part.base_offset for part in parts] == [base] * MANY + [-1]
        codes = [part.error_code for part in parts]
        assert codes == [ErrorCode.NONE] * MANY + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_written_batches_wait_for_the_sync(harness: Harness) -> None:
    parked = harness.send(produce(range(MANY)), VERSION)
    assert isinstance(parked, ParkedRequest)
    assert end(harness, "t", MANY - 1) == 1
    decoded = harness.decoded(harness.finished(parked), VERSION, ProduceResponse)
    assert {part.error_code for part in decoded.responses[0].partition_responses} == {0}


def test_other_requests_run_between_slices_and_nothing_stays_staged(harness: Harness) -> None:
    talk = harness.talk()
    talk.receive_data(frame_of(produce(range(MANY), LEADER), VERSION, 1, "c"))
    slices = 0
    while talk.step(harness.now, 0):
        slices += 1
        if slices == 4:  # Two slices check the headers.
            assert end(harness, "t", 0) == 1, "what was staged in a slice is written in it"
            assert answers(harness, produce(range(MANY - 1, MANY), LEADER))[0].base_offset == 0
    assert slices > 3
    harness.resume(talk)
    data = b"".join(map(bytes, talk.data_to_send()))  # type: ignore[arg-type]
    parts = decode_response(ProduceResponse, VERSION, data[4:])[1].responses[0].partition_responses
    assert [part.base_offset for part in parts] == [0] * (MANY - 1) + [1]


def test_first_writes_take_more_of_a_slice(harness: Harness) -> None:
    """Each one writes to another file."""
    steps = []
    for _ in range(2):
        talk = harness.talk()
        talk.receive_data(frame_of(produce(range(30), LEADER), VERSION, 1, "c"))
        steps.append(1)
        while talk.step(harness.now, 0):
            steps[-1] += 1
        harness.resume(talk)
    assert steps[0] > 30 * FIRST_WRITE_PARTS // SLICE_ELEMENTS and steps[1] == 1
    assert [end(harness, "t", index) for index in range(31)] == [2] * 30 + [0]


def test_acks_0_error_ends_the_conversation_without_a_response(harness: Harness) -> None:
    talk = began(harness, produce(range(MANY), NONE))
    assert talk.ending is None and not talk.data_to_send() and not talk.wire.in_flight
    assert end(harness, "t", MANY - 1) == 1
    talk = began(harness, produce(range(MANY + 1), NONE))
    assert talk.ending is not None and isinstance(talk.ending.reason, ConnectionAbortedError)


def test_batch_is_recompressed_on_a_thread(harness: Harness) -> None:
    create(harness, "z", compression_type="zstd")
    request = produce(range(1), LEADER, topic="z", records=batch(Codec.GZIP, 1000))
    for offset in range(2):  # The second matches the first, and must not use the template path.
        talk = began(harness, request)
        assert harness.broker.works and talk.waits_for is harness.broker.works[0]
        assert end(harness, "z") == offset
        harness.resume(talk)
        data = b"".join(map(bytes, talk.data_to_send()))  # type: ignore[arg-type]
        (part,) = decode_response(ProduceResponse, VERSION, data[4:])[1].responses[0].partition_responses
        assert (part.error_code, part.base_offset) == (ErrorCode.NONE, offset)
    log = harness.broker.partitions[TopicPartition(TopicName("z"), 0)].log
    stored = log.read(Offset(0), 10_000, log.end_offset).read()
    assert [one.codec for one in iter_batches(stored)] == [Codec.ZSTD] * 2


def test_undecodable_batch_is_refused_and_the_connection_continues(harness: Harness) -> None:
    create(harness, "z", compression_type="zstd")
    broken = bytearray(batch(Codec.GZIP, 1000))
    broken[-20:] = bytes(20)
    broken[17:21] = crc32c(broken[21:]).to_bytes(4, "big")
    (part,) = answers(harness, produce(range(1), LEADER, topic="z", records=bytes(broken)))
    assert part.error_code == ErrorCode.INVALID_RECORD
    assert end(harness, "z") == 0


def test_topic_deleted_during_recompression_is_not_written(harness: Harness) -> None:
    create(harness, "z", compression_type="zstd")
    talk = began(harness, produce(range(1), LEADER, topic="z", records=batch(Codec.GZIP, 1000)))
    (work,) = harness.broker.works
    harness.broker.works.clear()
    harness.request(DeleteTopicsRequest(topic_names=["z"], timeout_ms=1_000), 3, DeleteTopicsResponse)
    work.run()
    work.on_finished()
    harness.resume(talk)
    assert code_of(talk) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_batch_without_the_right_to_write_is_refused_before_a_thread_inspects_it(harness: Harness) -> None:
    create(harness, "z", compression_type="zstd")
    harness.peer.set_admission(Admission(rights=Granted()))
    talk = began(harness, produce(range(1), LEADER, topic="z", records=batch(Codec.GZIP, 1000)))
    assert not harness.broker.works
    talk.commit(harness.now, 0)
    assert code_of(talk) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_right_to_write_revoked_during_recompression_is_noticed(harness: Harness) -> None:
    create(harness, "z", compression_type="zstd")
    talk = began(harness, produce(range(1), LEADER, topic="z", records=batch(Codec.GZIP, 1000)))
    assert harness.broker.works
    harness.peer.set_admission(Admission(rights=Granted(), version=1))
    harness.resume(talk)
    assert code_of(talk) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert end(harness, "z") == 0
