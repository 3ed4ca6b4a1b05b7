"""DeleteRecords: the new log start offset is on the disk before the response."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.api.request.outcome import Encoded
from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.core.broker.effects import Effect
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.kernel.work import Work
from odradek.core.partition.log_starts import WriteStarts
from odradek.record.builder import encode_batch
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.in_memory import NOW_MS, Harness

T = TopicPartition(TopicName("t"), 0)
VERSION = 2
RECORDS = 10
Results = list[tuple[int, int, ErrorCode]]


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    made = Harness(tmp_path)
    make(made, "t", 3)
    for partition in range(2):
        produce(made, "t", partition)
    return made


def make(harness: Harness, name: str, partitions: int = 1, **configs: str) -> None:
    texts = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=texts)
    harness.request(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 5, CreateTopicsResponse)


def produce(harness: Harness, topic: str, partition: int, count: int = RECORDS) -> None:
    for _ in range(count):
        part = PartitionProduceData(index=partition, records=bytes(encode_batch([(b"k", b"v", (), NOW_MS)])))
        data = [TopicProduceData(name=topic, partition_data=[part])]
        answer = harness.request(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=data), 9, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def request(*parts: tuple[str, int, int], timeout_ms: int = 1_000) -> DeleteRecordsRequest:
    topics = [
        DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)])
        for topic, index, offset in parts
    ]
    return DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)


def results_of(answer: DeleteRecordsResponse) -> Results:
    return [
        (part.partition_index, part.low_watermark, ErrorCode(part.error_code))
        for topic in answer.topics
        for part in topic.partitions
    ]


def delete_records(harness: Harness, *parts: tuple[str, int, int], version: int = VERSION) -> Results:
    return results_of(harness.request(request(*parts), version, DeleteRecordsResponse))


def start_of(harness: Harness, name: TopicPartition = T) -> int:
    return harness.broker.partitions[name].log.start_offset


def on_disk(harness: Harness) -> str:
    (directory,) = harness.broker.storage
    return (Path(directory.path) / "log-start-offset-checkpoint").read_text()


def begin_writes(harness: Harness) -> list[WriteStarts]:
    """Return the writes that the broker requests now, and execute its other effects."""
    writes: list[WriteStarts] = []
    others: list[Effect] = []
    for effect in harness.broker.take_effects():
        if isinstance(effect, WriteStarts):
            writes.append(effect)
        else:
            others.append(effect)
    assert not [one for one in others if isinstance(one, Work)]
    return writes


def end(harness: Harness, write: WriteStarts) -> None:
    for _ in harness.broker.log_starts.on_starts_written(write.run(), harness.now):
        pass


@pytest.mark.parametrize("version", range(3))
def test_log_starts_at_the_requested_offset(harness: Harness, version: int) -> None:
    assert delete_records(harness, ("t", 0, 4), version=version) == [(0, 4, ErrorCode.NONE)]
    assert start_of(harness) == 4
    assert "t 0 4\n" in on_disk(harness)


def test_log_start_never_decreases(harness: Harness) -> None:
    delete_records(harness, ("t", 0, 4))
    assert delete_records(harness, ("t", 0, 2)) == [(0, 4, ErrorCode.NONE)]
    harness.kill()
    assert start_of(harness) == 4
    harness.restart()
    assert start_of(harness) == 4


def test_offset_minus_one_means_the_high_watermark(harness: Harness) -> None:
    assert delete_records(harness, ("t", 0, -1), ("t", 2, -1)) == [(0, RECORDS, ErrorCode.NONE), (2, 0, ErrorCode.NONE)]
    produce(harness, "t", 0, 1)
    harness.kill()
    log = harness.broker.partitions[T].log
    assert (log.start_offset, log.end_offset) == (RECORDS, RECORDS + 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topic", "partition", "offset", "code"),
    [
        ("t", 0, RECORDS + 1, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("t", 0, -2, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("t", 7, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", -1, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("nowhere", 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("compacted", 0, 0, ErrorCode.POLICY_VIOLATION),
        ("compacted", 0, 99, ErrorCode.POLICY_VIOLATION),
        ("__consumer_offsets", 0, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("__consumer_offsets", 99, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_invalid_requests_are_refused(
    harness: Harness, topic: str, partition: int, offset: int, code: ErrorCode
) -> None:
    make(harness, "compacted", cleanup_policy="compact")
    harness.request(FindCoordinatorRequest(key="g"), 0, FindCoordinatorResponse)
    assert delete_records(harness, (topic, partition, offset), ("t", 1, 3)) in (
        [(partition, -1, code), (1, 3, ErrorCode.NONE)],  # Both results are in one entry of the topic.
        [(1, 3, ErrorCode.NONE), (partition, -1, code)],
    )


def test_topic_with_compaction_and_deletion_is_accepted(harness: Harness) -> None:
    make(harness, "both", cleanup_policy="compact,delete")
    produce(harness, "both", 0, 3)
    assert delete_records(harness, ("both", 0, 2)) == [(0, 2, ErrorCode.NONE)]


def test_repeated_partition_uses_the_last_offset(harness: Harness) -> None:
    assert delete_records(harness, ("t", 0, 99), ("t", 0, 4)) == [(0, 4, ErrorCode.NONE)]
    assert delete_records(harness, ("t", 0, 5), ("t", 0, 99)) == [(0, -1, ErrorCode.OFFSET_OUT_OF_RANGE)]


def test_response_waits_for_the_disk(harness: Harness) -> None:
    waiting = harness.send(request(("t", 0, 4)), VERSION)
    assert isinstance(waiting, ParkedRequest)
    (write,) = begin_writes(harness)
    assert start_of(harness) == 0
    wrote = write.run()
    assert "t 0 4\n" in on_disk(harness)
    assert start_of(harness) == 0 and not harness.broker.purgatory.take_completed()
    for _ in harness.broker.log_starts.on_starts_written(wrote, harness.now):
        pass
    assert start_of(harness) == 4
    assert harness.broker.purgatory.take_completed() == [waiting]


def test_requests_share_the_next_write(harness: Harness) -> None:
    waiting = [harness.send(request(("t", 0, 1)), VERSION)]
    (first,) = begin_writes(harness)
    waiting += [harness.send(request(("t", 0, offset), ("t", 1, 2)), VERSION) for offset in (3, 5, 4)]
    assert begin_writes(harness) == [], "one after the other"
    end(harness, first)
    assert start_of(harness) == 1
    (second,) = begin_writes(harness)
    assert second.write.offsets == {T: 5, TopicPartition(TopicName("t"), 1): 2}
    end(harness, second)
    assert harness.broker.purgatory.take_completed() == waiting
    assert start_of(harness) == 5


def test_ordinary_checkpoint_keeps_the_new_start(harness: Harness) -> None:
    """Both a checkpoint started before, and one started and run during the request."""
    delete_records(harness, ("t", 0, 1))
    (directory,) = harness.broker.storage
    produce(harness, "t", 1, 1)
    early = directory.begin_checkpoint({T: RECORDS})
    assert early is not None
    harness.send(request(("t", 0, 4)), VERSION)
    (write,) = begin_writes(harness)
    wrote = write.run()
    late = directory.begin_checkpoint({T: RECORDS - 1})
    assert late is not None
    late.run()
    early.run()
    assert "t 0 4\n" in on_disk(harness)
    for _ in harness.broker.log_starts.on_starts_written(wrote, harness.now):
        pass
    again = directory.begin_checkpoint({T: RECORDS})
    assert again is not None
    again.run()
    assert "t 0 4\n" in on_disk(harness)


def test_full_checkpoint_during_the_write_causes_another_write(harness: Harness) -> None:
    waiting = harness.send(request(("t", 0, 4)), VERSION)
    (stale,) = begin_writes(harness)
    (directory,) = harness.broker.storage
    directory.checkpoints.write_now()
    assert "t 0 4\n" in on_disk(harness)
    end(harness, stale)
    assert start_of(harness) == 0, "it is written once more"
    (again,) = begin_writes(harness)
    end(harness, again)
    assert start_of(harness) == 4
    assert harness.broker.purgatory.take_completed() == [waiting]


def test_failed_write_returns_a_storage_error(harness: Harness) -> None:
    (directory,) = harness.broker.storage
    obstacle = Path(directory.path) / "log-start-offset-checkpoint.tmp"
    obstacle.mkdir()
    assert delete_records(harness, ("t", 0, 4)) == [(0, -1, ErrorCode.KAFKA_STORAGE_ERROR)]
    assert start_of(harness) == 0
    obstacle.rmdir()
    assert delete_records(harness, ("t", 0, 3)) == [(0, 3, ErrorCode.NONE)]
    harness.kill()
    assert start_of(harness) == 3


def test_slow_disk_times_out_the_request(harness: Harness) -> None:
    waiting = harness.send(request(("t", 0, 4), timeout_ms=0), VERSION)
    assert isinstance(waiting, ParkedRequest)
    (write,) = begin_writes(harness)
    harness.pass_time(60_000)
    assert harness.broker.purgatory.take_completed() == [waiting]
    assert results_of(response_of(harness, waiting)) == [(0, -1, ErrorCode.REQUEST_TIMED_OUT)]
    end(harness, write)
    assert start_of(harness) == 4, "it may still happen, as in Kafka"


def response_of(harness: Harness, parked: ParkedRequest[Encoded]) -> DeleteRecordsResponse:
    talk = parked.owner
    talk.answer_parked(parked, harness.now)  # type: ignore[attr-defined]  # A conversation.
    return harness.decoded(talk.data_to_send(), VERSION, DeleteRecordsResponse)  # type: ignore[attr-defined]


def test_topic_deletion_during_the_write_fails_the_request(harness: Harness) -> None:
    waiting = harness.send(request(("t", 0, 4)), VERSION)
    assert isinstance(waiting, ParkedRequest)
    (write,) = begin_writes(harness)
    harness.request(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 1, DeleteTopicsResponse)
    make(harness, "t", 3)
    end(harness, write)
    for again in begin_writes(harness):
        assert T not in again.write.offsets
        end(harness, again)
    assert results_of(response_of(harness, waiting)) == [(0, -1, ErrorCode.KAFKA_STORAGE_ERROR)]
    harness.run_housekeeping()
    harness.kill()
    assert start_of(harness) == 0, "what was written was of an earlier topic"


def test_fetch_parked_below_the_new_start_completes(harness: Harness) -> None:
    part = FetchPartition(partition=0, fetch_offset=2, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic="t", partitions=[part])]
    fetch = FetchRequest(max_wait_ms=500_000, min_bytes=1 << 20, topics=topics, forgotten_topics_data=[])
    waiting = harness.send(fetch, 12)
    assert isinstance(waiting, ParkedRequest)
    other = harness.send(request(("t", 0, 4)), VERSION)
    harness.settle()
    completed = harness.broker.purgatory.take_completed()
    assert set(completed) == {waiting, other}
    talk = waiting.owner
    talk.answer_parked(waiting, harness.now)  # type: ignore[attr-defined]  # A conversation.
    answer = harness.decoded(talk.data_to_send(), 12, FetchResponse)  # type: ignore[attr-defined]
    found = answer.responses[0].partitions[0]
    assert (found.error_code, found.log_start_offset) in [(1, 4), (1, -1)]


def test_segments_below_the_start_are_deleted_at_the_next_retention(tmp_path: Path) -> None:
    harness = Harness(tmp_path, log_retention_ms="-1")
    make(harness, "t", 1, segment_bytes="1048576")
    log = harness.broker.partitions[T].log
    for _ in range(3):
        produce(harness, "t", 0, 2)
        log.roll(harness.now.wall)
    assert delete_records(harness, ("t", 0, 5)) == [(0, 5, ErrorCode.NONE)]
    assert [one.base_offset for one in log.segments] == [0, 2, 4, 6]
    harness.run_housekeeping()
    harness.pass_time(400_000)
    harness.run_housekeeping()
    assert [one.base_offset for one in log.segments] == [4, 6]
    assert log.start_offset == 5
    harness.kill()
    assert start_of(harness) == 5
