"""Idempotent and transactional batches in one partition: staged batches are checked, failed writes are undone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import ProducerEpoch, ProducerId, TopicName
from odradek.core.partition.partition import Partition
from odradek.core.partition.staging import Append
from odradek.log.files.disk import DiskFailed, RealFile
from odradek.log.log.retention import advance_start
from odradek.log.producers.producer_state import ProducerStateEntry
from odradek.record.builder import encode_batch
from odradek.record.record_batch import Batch
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from support.in_memory import NOW_MS, Harness

P = ProducerId(7)


def batch(sequence: int, *, epoch: int = 0, count: int = 1, transactional: bool = False, size: int = 10) -> Batch:
    raw = encode_batch(
        [(None, b"v" * size, (), NOW_MS)] * count,
        producer_id=P,
        producer_epoch=ProducerEpoch(epoch),
        base_sequence=sequence,
        is_transactional=transactional,
    )
    return Batch.trusted(memoryview(raw)) if sequence < 0 else Batch.checked(memoryview(raw))


class Case:
    """A broker with one partition."""

    def __init__(self, directory: Path, **configs: str) -> None:
        self.harness = Harness(directory)
        entries = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=entries)
        self.harness.request(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 5, CreateTopicsResponse)
        self.partition: Partition = self.harness.broker.replica(TopicName("t"), 0)

    def stage(self, one: Batch, *, all_replicas: bool = False, checks_sequence: bool = True) -> Append:
        return self.harness.broker.stage(
            self.partition.leader(), one, self.harness.now, all_replicas=all_replicas, checks_sequence=checks_sequence
        )

    def commit(self) -> None:
        self.harness.broker.commit(self.harness.now)

    def put(self, one: Batch) -> Append:
        append = self.stage(one)
        self.commit()
        assert append.refused is None
        return append

    def end(self, *, commit: bool = False, epoch: int = 0, coordinator_epoch: int = 0) -> Append:
        append = self.partition.leader().end_transaction(
            P, ProducerEpoch(epoch), coordinator_epoch, commit=commit, now=self.harness.now
        )
        self.harness.broker.flushes.request_flush(self.partition.topic_partition)
        return append

    @property
    def producer(self) -> ProducerStateEntry | None:
        return self.partition.log.producers.get(P)


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    yield Case(tmp_path)


def refusal(case: Case, one: Batch) -> ErrorCode:
    with pytest.raises(Refused) as refused:
        case.stage(one)
    return refused.value.code


def fail_writes(patch: pytest.MonkeyPatch) -> None:
    def full(self: RealFile, position: int, data: object) -> None:
        raise DiskFailed(28, "full", self.path)

    patch.setattr(RealFile, "write", full)
    patch.setattr(RealFile, "write_all", full)


def test_staged_batches_are_part_of_the_producer_sequence(case: Case) -> None:
    first, second = case.stage(batch(0)), case.stage(batch(1, count=3))
    assert case.producer is None, "nothing is written yet"
    assert refusal(case, batch(6)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    third = case.stage(batch(4))
    case.commit()
    assert [(one.base_offset, one.end) for one in (first, second, third)] == [(0, 1), (1, 4), (4, 5)]
    assert case.producer is not None
    assert case.producer.last_sequence == 4
    assert [sent[1] for sent in case.producer.batches] == [0, 3, 4]


def test_the_second_batch_of_a_transaction_may_come_before_the_first_is_written(case: Case) -> None:
    for one in (batch(0, transactional=True), batch(1, transactional=True)):
        if not case.partition.leader().has_open_transaction(P, 0):
            case.partition.leader().await_first(one, case.harness.now.wall, from_zero=True)
        case.stage(one)
    assert refusal(case, batch(3, transactional=True)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    case.commit()
    assert case.producer is not None and case.producer.last_sequence == 1


def test_duplicate_returns_the_first_offsets_and_is_not_written(case: Case) -> None:
    case.put(batch(0, count=2))
    case.put(batch(2))
    again = case.put(batch(0, count=2))
    assert (again.base_offset, again.end, again.log_append_time) == (0, 2, NOW_MS)
    assert case.partition.log.end_offset == 3


def test_duplicate_in_the_same_turn_gets_the_result_of_the_first(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    first = case.stage(batch(0))
    again = case.stage(batch(0))
    with monkeypatch.context() as patch:
        fail_writes(patch)
        case.commit()
    assert first.refused is not None
    assert again.refused is first.refused
    assert case.producer is None
    first, again = case.stage(batch(0)), case.stage(batch(0))
    case.commit()
    assert first.refused is None and again.refused is None
    assert (again.base_offset, case.partition.log.end_offset) == (0, 1)


def test_a_failed_write_leaves_the_producer_as_it_was(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.put(batch(0))
    before = case.producer
    failing = [case.stage(batch(1, transactional=True)), case.stage(batch(0, epoch=1, transactional=True))]
    assert case.partition.leader().has_open_transaction(P, 1)
    with monkeypatch.context() as patch:
        fail_writes(patch)
        case.commit()
    assert all(one.refused is not None for one in failing)
    assert case.producer == before
    assert not case.partition.leader().has_open_transaction(P, 1)
    assert case.partition.last_stable_offset == 1
    assert refusal(case, batch(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert case.put(batch(1)).base_offset == 1


def test_a_failed_marker_leaves_the_transaction_open(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.put(batch(0, transactional=True))
    with monkeypatch.context() as patch:
        fail_writes(patch)
        with pytest.raises(Refused) as refused:
            case.end()
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert case.partition.leader().has_open_transaction(P, 0)
    case.end()
    assert not case.partition.leader().has_open_transaction(P, 0)


def test_a_duplicate_waits_until_the_first_is_durable(case: Case) -> None:
    case.stage(batch(0), all_replicas=True)
    case.commit()
    again = case.stage(batch(0), all_replicas=True)
    assert again.needs_sync
    assert not case.stage(batch(0)).needs_sync
    case.harness.settle()
    assert not case.stage(batch(0), all_replicas=True).needs_sync


def test_duplicate_of_an_unsynced_batch_requests_a_sync(case: Case) -> None:
    case.put(batch(0))
    again = case.stage(batch(0), all_replicas=True)
    assert again.needs_sync
    case.harness.settle()
    assert case.partition.positions.durable_end == 1


def test_batch_for_the_next_segment_is_checked_against_written_batches(tmp_path: Path) -> None:
    case = Case(tmp_path, segment_bytes=str(1 << 20))
    appends = [case.stage(batch(sequence, size=400_000)) for sequence in range(4)]
    case.commit()
    assert [one.base_offset for one in appends] == [0, 1, 2, 3]
    assert case.producer is not None and case.producer.last_sequence == 3


def test_a_transaction_moves_the_last_stable_offset(case: Case) -> None:
    case.put(batch(0))
    assert case.partition.last_stable_offset == 1
    case.put(batch(1, transactional=True))
    case.put(batch(2, transactional=True))
    assert refusal(case, batch(3)) is ErrorCode.INVALID_TXN_STATE
    assert case.partition.last_stable_offset == 1
    marker = case.end(commit=True)
    assert (marker.base_offset, marker.end, marker.needs_sync) == (3, 4, True)
    assert case.partition.last_stable_offset == 1, "nobody may read the marker yet"
    case.harness.settle()
    assert case.partition.last_stable_offset == 4 == case.partition.positions.high_watermark


def test_the_last_stable_offset_is_in_the_log(case: Case) -> None:
    case.put(batch(0, transactional=True))
    case.put(batch(1, transactional=True))
    advance_start(case.partition.log, case.partition.positions.high_watermark)
    assert case.partition.last_stable_offset == 2
    case.partition.take_offline()
    assert case.partition.last_stable_offset == 2


def test_marker_with_an_old_epoch_is_refused(case: Case) -> None:
    case.put(batch(0, epoch=3, transactional=True))
    case.end(epoch=3, coordinator_epoch=5)
    with pytest.raises(Refused, match="INVALID_PRODUCER_EPOCH"):
        case.end(epoch=2, coordinator_epoch=5)
    with pytest.raises(Refused, match="TRANSACTION_COORDINATOR_FENCED"):
        case.end(epoch=3, coordinator_epoch=4)
    end = case.partition.log.end_offset
    assert case.end(epoch=4, coordinator_epoch=5).base_offset == end, "a marker without a transaction is written too"
    assert refusal(case, batch(1, epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(case, batch(1, epoch=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    case.put(batch(0, epoch=4))


def test_a_delayed_marker_never_ends_the_next_transaction(case: Case) -> None:
    """Since ends bump the epoch, the epoch of an older transaction's marker is at most that of the open one."""
    case.put(batch(0, epoch=4, transactional=True))
    for epoch in (3, 4):
        with pytest.raises(Refused, match="INVALID_PRODUCER_EPOCH"):
            case.partition.leader().end_transaction(
                P, ProducerEpoch(epoch), 0, commit=True, now=case.harness.now, transaction_version=2
            )
    assert case.partition.leader().has_open_transaction(P, 4)


def test_coordinator_batches_have_no_sequence_numbers(case: Case) -> None:
    for _ in range(2):
        case.stage(batch(-1, transactional=True), checks_sequence=False)
    case.commit()
    assert case.partition.log.end_offset == 2
    assert case.partition.leader().has_open_transaction(P, 0)
    case.end(epoch=1)
    with pytest.raises(Refused, match="INVALID_PRODUCER_EPOCH"):
        case.stage(batch(-1, transactional=True), checks_sequence=False)


def test_marker_gets_the_log_append_time(tmp_path: Path) -> None:
    case = Case(tmp_path, message_timestamp_type="LogAppendTime")
    case.harness.pass_time(500)
    case.put(batch(0, transactional=True))
    case.harness.pass_time(500)
    case.end()
    assert case.producer is not None
    assert case.producer.last_timestamp == NOW_MS + 1000
    assert case.put(batch(0, transactional=True)).log_append_time == NOW_MS + 500


def test_streaming_append_requires_the_next_sequence_of_its_producer(case: Case) -> None:
    now = case.harness.now.wall
    big = batch(0, size=200_000)
    assert case.partition.leader().begin_arrival(big, now) is None, "nothing is known of it"
    case.put(batch(0))
    for other in (batch(0), batch(2), batch(1, transactional=True), batch(1, epoch=1)):
        assert case.partition.leader().begin_arrival(other, now) is None
    one = batch(1, size=200_000)
    rest = bytes(one.view[5_000:])
    one.view = one.view[:5_000]
    arrival = case.partition.leader().begin_arrival(one, now)
    assert arrival is not None
    arrival.file.write(arrival.position, rest)
    append = case.partition.leader().arrived(arrival, case.harness.now, all_replicas=False)
    assert (append.base_offset, append.end) == (1, 2)
    assert case.producer is not None and case.producer.last_sequence == 1


def test_streaming_append_is_refused_after_its_producer_expired(case: Case) -> None:
    case.put(batch(0))
    one = batch(1)
    arrival = case.partition.leader().begin_arrival(one, case.harness.now.wall)
    assert arrival is not None
    case.partition.log.producers.expire(case.harness.now.wall, 0)
    with pytest.raises(Refused):
        case.partition.leader().arrived(arrival, case.harness.now, all_replicas=False)
    case.partition.leader().forget_arrival(arrival)
    assert case.partition.log.end_offset == 1


def test_idle_producers_expire(case: Case) -> None:
    case.put(batch(0))
    case.harness.run_housekeeping()
    assert case.producer is not None
    case.harness.pass_time(86_400_000)
    case.harness.run_housekeeping()
    assert case.producer is None
    assert case.put(batch(9)).base_offset == 1
