"""Incremental fetches: only due partitions are read, and every change is returned once it happens."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from odradek.api.conversation import Conversation
from odradek.api.request.admission import Admission
from odradek.base.errors import ErrorCode
from odradek.base.limits import SLICE_ELEMENTS
from odradek.base.units import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs, TopicName, TopicPartition
from odradek.core.fetch.fetch_sessions import EVICTION_MS, FINAL_EPOCH, INITIAL_EPOCH, FetchSession
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.partition.partition import Partition
from odradek.log.files.disk import DiskFailed, FileSlice
from odradek.log.log.log import Log
from odradek.record.builder import encode_batch
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.in_memory import NOW_MS, Harness
from support.rights import Granted
from support.rooms import interpreted

VERSION = 12
MANY = SLICE_ELEMENTS + 50
RETENTION_MS = 3_600_000
FOR_LONG_MS = 60_000
BATCH = bytes(encode_batch([(None, b"value", (), NOW_MS)]))


class Reader:
    """A client with a session on topic t."""

    def __init__(self, harness: Harness, *, isolation_level: int = 0, min_bytes: int = 1) -> None:
        self.harness = harness
        self.isolation_level = isolation_level
        self.min_bytes = min_bytes
        self.session_id, self.epoch = 0, INITIAL_EPOCH

    def request(self, offsets: dict[int, int], *, wait: int = 0, forgotten: tuple[int, ...] = ()) -> FetchRequest:
        """Return the next request; `offsets` are those of the named partitions."""
        parts = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            for index, offset in offsets.items()
        ]
        self.epoch += 1
        return FetchRequest(
            max_wait_ms=wait,
            min_bytes=self.min_bytes,
            isolation_level=self.isolation_level,
            session_id=self.session_id,
            session_epoch=self.epoch - 1,
            topics=[FetchTopic(topic="t", partitions=parts)] if parts else [],
            forgotten_topics_data=[ForgottenTopic(topic="t", partitions=[*forgotten])] if forgotten else [],
        )

    def result_of(self, outcome: object) -> dict[int, PartitionData]:
        """Return the response by partition; the fetch has completed, or its deadline is awaited."""
        if isinstance(outcome, ParkedRequest) and not is_waiting(self.harness, outcome):
            assert isinstance(outcome.owner, Conversation)
            outcome.owner.answer_parked(outcome, self.harness.now)
            outcome = outcome.owner.data_to_send()
        response = self.harness.decoded(self.harness.finished(outcome), VERSION, FetchResponse)  # type: ignore[arg-type]
        assert not response.error_code
        self.session_id = response.session_id
        return {part.partition_index: part for topic in response.responses for part in topic.partitions}

    def fetch(
        self, offsets: dict[int, int] | None = None, *, forgotten: tuple[int, ...] = ()
    ) -> dict[int, PartitionData]:
        return self.result_of(self.harness.send(self.request(offsets or {}, forgotten=forgotten), VERSION))

    def wait(self, offsets: dict[int, int] | None = None) -> ParkedRequest[object]:
        outcome = self.harness.send(self.request(offsets or {}, wait=FOR_LONG_MS), VERSION)
        assert isinstance(outcome, ParkedRequest)
        return outcome

    @property
    def session(self) -> FetchSession:
        session = self.harness.broker.sessions.find_session(self.session_id)
        assert session is not None
        return session


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    made = Harness(tmp_path, transaction_partition_verification_enable="false")
    create(made)
    return made


def create(harness: Harness) -> None:
    configs = [CreatableTopicConfig(name="retention.ms", value=str(RETENTION_MS))]
    topic = CreatableTopic(name="t", num_partitions=MANY, replication_factor=1, assignments=[], configs=configs)
    (result,) = harness.request(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 7, CreateTopicsResponse).topics
    assert not result.error_code


def delete(harness: Harness) -> None:
    harness.request(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 5, DeleteTopicsResponse)


def reader(harness: Harness, count: int = MANY, *, isolation_level: int = 0, min_bytes: int = 1) -> Reader:
    """Return a reader that has received the state of its empty partitions."""
    made = Reader(harness, isolation_level=isolation_level, min_bytes=min_bytes)
    assert len(made.fetch(dict.fromkeys(range(count), 0))) == count
    assert not made.fetch()
    assert not made.session.due
    return made


def partition(harness: Harness, index: int) -> Partition:
    return harness.broker.partitions[TopicPartition(TopicName("t"), index)]


def produce(harness: Harness, *indexes: int, batch: bytes = BATCH) -> None:
    parts = [PartitionProduceData(index=index, records=batch) for index in indexes]
    topic = TopicProduceData(name="t", partition_data=parts)
    request = ProduceRequest(transactional_id="tx", acks=1, timeout_ms=1_000, topic_data=[topic])
    (answered,) = harness.request(request, 9, ProduceResponse).responses
    assert not any(part.error_code for part in answered.partition_responses)


def transactional(sequence: int) -> bytes:
    return bytes(
        encode_batch(
            [(None, b"value", (), NOW_MS)],
            producer_id=ProducerId(1),
            producer_epoch=ProducerEpoch(0),
            base_sequence=sequence,
            is_transactional=True,
        )
    )


def is_waiting(harness: Harness, parked: ParkedRequest[object]) -> bool:
    return any(parked in bucket for bucket in harness.broker.purgatory._by_bucket.values())


def test_changed_partitions_are_read_and_returned(harness: Harness) -> None:
    one = reader(harness)
    produce(harness, 3, 5)
    assert {partition.key.partition for partition in one.session.due} == {3, 5}
    fetched = one.fetch()
    assert [*fetched] == [3, 5] and all(part.records for part in fetched.values())
    assert [*one.fetch({3: 1})] == [5], "whose records it has not read on in"
    assert not one.fetch({5: 1})
    assert not one.session.due


def test_served_partitions_move_to_the_end(harness: Harness) -> None:
    one = reader(harness)
    produce(harness, 3)
    assert [*one.fetch()] == [3]
    produce(harness, 5)
    assert [*one.fetch()] == [3, 5]
    produce(harness, 4)
    assert [*one.fetch({5: 0})] == [3, 5, 4]


def test_parked_fetch_completes_at_any_session_partition(harness: Harness) -> None:
    one = reader(harness)
    waiting = one.wait()
    assert waiting.condition.keys == (one.session,)
    produce(harness, MANY - 1)
    assert not is_waiting(harness, waiting)
    assert [*one.result_of(waiting)] == [MANY - 1]


def test_parked_fetch_waits_for_min_bytes_of_all_partitions(harness: Harness) -> None:
    one = reader(harness, min_bytes=3 * len(BATCH))
    waiting = one.wait()
    for index in (1, 2):
        produce(harness, index)
        assert is_waiting(harness, waiting)
    produce(harness, 1)
    assert not is_waiting(harness, waiting)
    fetched = one.result_of(waiting)
    assert {index: len(bytes(part.records or b"")) for index, part in fetched.items()} == {
        1: 2 * len(BATCH),
        2: len(BATCH),
    }


def test_unread_records_count_towards_min_bytes(harness: Harness) -> None:
    one = reader(harness, min_bytes=2 * len(BATCH))
    produce(harness, 1)
    waiting = one.wait()
    produce(harness, 1)
    assert not is_waiting(harness, waiting)
    assert [*one.result_of(waiting)] == [1]


def test_committed_reader_waits_for_the_end_of_the_transaction(harness: Harness) -> None:
    one = reader(harness, isolation_level=1)
    waiting = one.wait()
    produce(harness, 1, batch=transactional(0))
    assert is_waiting(harness, waiting), "nothing of it is committed"
    name = partition(harness, 1).topic_partition
    partition(harness, 1).leader().end_transaction(ProducerId(1), ProducerEpoch(0), 0, commit=True, now=harness.now)
    harness.broker.flushes.request_flush(name)
    harness.settle()
    assert not is_waiting(harness, waiting)
    (part,) = one.result_of(waiting).values()
    assert part.records and (part.high_watermark, part.last_stable_offset) == (2, 2)
    produce(harness, 1, batch=transactional(1))
    (part,) = one.fetch({1: 2}).values()
    assert not part.records and (part.high_watermark, part.last_stable_offset) == (3, 2)
    assert not one.fetch()
    assert not one.session.due


def test_another_isolation_level_sees_other_records(harness: Harness) -> None:
    one = reader(harness, isolation_level=1)
    produce(harness, 1, batch=transactional(0))
    assert not one.fetch()[1].records
    one.isolation_level = 0
    assert one.fetch()[1].records


def test_new_log_start_is_returned(harness: Harness) -> None:
    one = reader(harness)
    produce(harness, 1)
    one.fetch({1: 1})
    assert not one.fetch()
    harness.now = Moment(TimestampMs(harness.now.wall + RETENTION_MS + 1), harness.now.steady)
    assert partition(harness, 1).delete_old_segments(harness.now.wall)
    (part,) = one.fetch().values()
    assert part.log_start_offset == 1


def test_offline_partition_is_returned_until_it_is_online(harness: Harness) -> None:
    one = reader(harness)
    waiting = one.wait()
    partition(harness, 7).take_offline()
    assert not is_waiting(harness, waiting)
    assert one.result_of(waiting)[7].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert one.fetch()[7].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    name = TopicPartition(TopicName("t"), 7)
    harness.broker.replicas._reopen(name, harness.broker.view.topics[name.topic].id, harness.now)
    assert one.fetch()[7].error_code == ErrorCode.NONE
    assert not one.fetch()


@interpreted
def test_fetch_whose_read_finds_a_failed_disk_completes_once(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition goes offline within the check of the parked fetch, which watches that partition."""
    one = reader(harness, min_bytes=2)
    parked = one.wait()

    def fails(*_: object, **__: object) -> FileSlice:
        raise DiskFailed(errno.EIO, "Input/output error", "00000000000000000000.log")

    monkeypatch.setattr(Log, "read", fails)
    produce(harness, 3)
    assert harness.broker.purgatory.take_completed() == [parked]
    assert not partition(harness, 3).is_online
    (fetched,) = one.result_of(parked).values()
    assert fetched.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_deleted_topic_is_returned_until_it_exists_again(harness: Harness) -> None:
    one = reader(harness, 3)
    waiting = one.wait()
    delete(harness)
    assert not is_waiting(harness, waiting)
    fetched = one.result_of(waiting) | one.fetch()
    assert {index: part.error_code for index, part in fetched.items()} == dict.fromkeys(
        range(3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    create(harness)
    assert [part.error_code for part in one.fetch().values()] == [ErrorCode.NONE] * 3
    assert not one.fetch()


def test_new_leader_epoch_is_returned(harness: Harness) -> None:
    one = reader(harness, 3)
    there = partition(harness, 2)
    one.session.partitions[next(key for key in one.session.partitions if key.partition == 2)].current_leader_epoch = 0
    there.lead(there.info._replace(leader_epoch=LeaderEpoch(1)), harness.now)
    assert one.fetch()[2].error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_lost_read_right_is_returned(harness: Harness) -> None:
    class Rules:
        admission = Admission()

        def admit(self, *call: object) -> Admission:
            return self.admission

    harness.gate = rules = Rules()
    one = reader(harness)
    rules.admission = Admission(rights=Granted(), version=1)
    fetched = one.fetch()
    assert len(fetched) == MANY
    assert {part.error_code for part in fetched.values()} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    rules.admission = Admission(version=2)
    assert {part.error_code for part in one.fetch().values()} == {ErrorCode.NONE}


def test_forgotten_partitions_are_not_returned(harness: Harness) -> None:
    one = reader(harness)
    assert not one.fetch(forgotten=(1, 2))
    produce(harness, 1, 2, 3)
    assert [*one.fetch()] == [3]
    assert not partition(harness, 1).watchers


def test_re_added_partition_is_returned_again(harness: Harness) -> None:
    one = reader(harness)
    one.fetch(forgotten=(1,))
    assert [*one.fetch({1: 0})] == [1]


def test_ended_session_leaves_no_watchers(harness: Harness) -> None:
    one = reader(harness)
    waiting = one.wait()
    other = Reader(harness)
    other.session_id, other.epoch = one.session_id, FINAL_EPOCH
    other.fetch({0: 0})
    assert not is_waiting(harness, waiting), "it is answered"
    assert not one.result_of(waiting)
    assert not any(partition(harness, index).watchers for index in range(MANY))


def test_evicted_session_leaves_no_watchers(tmp_path: Path) -> None:
    harness = Harness(tmp_path, max_incremental_fetch_session_cache_slots="1")
    create(harness)
    reader(harness)
    harness.pass_time(EVICTION_MS)
    reader(harness, 1)
    watched = [index for index in range(MANY) if partition(harness, index).watchers]
    assert watched == [0]


def test_unused_session_is_notified_once(harness: Harness) -> None:
    """One change removes the watcher: an unused session costs a partition nothing."""
    reader(harness)
    produce(harness, 1)
    assert not partition(harness, 1).watchers


def test_completed_fetch_reads_at_most_one_slice(harness: Harness) -> None:
    one = reader(harness)
    waiting = one.wait()
    produce(harness, *range(MANY))
    assert len(one.result_of(waiting)) == SLICE_ELEMENTS
    named = dict.fromkeys(range(SLICE_ELEMENTS), 1)
    assert sorted(one.fetch(named)) == [*range(SLICE_ELEMENTS, MANY)]


def test_records_are_returned_once_they_are_visible(harness: Harness) -> None:
    one = reader(harness)
    waiting = one.wait()
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=1, records=BATCH)])
    written = harness.send(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic]), 9)
    assert isinstance(written, ParkedRequest) and is_waiting(harness, waiting)
    assert partition(harness, 1).positions.high_watermark == Offset(0)
    harness.settle()
    assert not is_waiting(harness, waiting)
    assert one.result_of(waiting)[1].records
