"""Idempotent and transactional batches through the APIs: responses to producers, and committed reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import ProducerEpoch, ProducerId, TopicName, TopicPartition
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.record.builder import encode_batch
from odradek.record.record_batch import iter_batches
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
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

NAME = TopicPartition(TopicName("t"), 0)
COMMITTED = 1
LATEST, MAX_TIMESTAMP = -1, -3


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    made = Harness(tmp_path, transaction_partition_verification_enable="false")
    topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1, assignments=[], configs=[])
    made.request(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 5, CreateTopicsResponse)
    return made


def batch(producer: int, sequence: int, *, transactional: bool = False, epoch: int = 0, at: int = NOW_MS) -> bytes:
    return bytes(
        encode_batch(
            [(None, b"v", (), at)],
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(epoch),
            base_sequence=sequence,
            is_transactional=transactional,
        )
    )


def request(*batches: bytes, transactional_id: str | None = None, acks: int = 1) -> ProduceRequest:
    parts = [PartitionProduceData(index=index, records=raw) for index, raw in enumerate(batches)]
    topic = TopicProduceData(name="t", partition_data=parts)
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1_000, topic_data=[topic])


def produce(
    harness: Harness, *batches: bytes, transactional_id: str | None = None, acks: int = 1
) -> Sequence[PartitionProduceResponse]:
    produce_request = request(*batches, transactional_id=transactional_id, acks=acks)
    return harness.request(produce_request, 9, ProduceResponse).responses[0].partition_responses


def transact(harness: Harness, producer: int, sequence: int) -> int:
    (answer,) = produce(harness, batch(producer, sequence, transactional=True), transactional_id="tx")
    assert answer.error_code == ErrorCode.NONE
    return answer.base_offset


def end(harness: Harness, producer: int, *, commit: bool) -> None:
    partition = harness.broker.partitions[NAME]
    partition.leader().end_transaction(ProducerId(producer), ProducerEpoch(0), 0, commit=commit, now=harness.now)
    harness.broker.flushes.request_flush(NAME)


def fetch_request(offset: int, *, isolation_level: int = COMMITTED, max_wait_ms: int = 0) -> FetchRequest:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        isolation_level=isolation_level,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=[part])],
    )


def fetch(harness: Harness, offset: int, *, isolation_level: int = COMMITTED) -> PartitionData:
    message = fetch_request(offset, isolation_level=isolation_level)
    found = harness.request(message, 12, FetchResponse).responses[0].partitions[0]
    assert found.error_code == ErrorCode.NONE
    return found


def offsets(data: PartitionData) -> list[int]:
    assert isinstance(data.records, memoryview)
    return [one.base_offset for one in iter_batches(data.records)]


def latest(harness: Harness, timestamp: int, isolation_level: int) -> int:
    part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    message = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation_level, topics=[ListOffsetsTopic(name="t", partitions=[part])]
    )
    return harness.request(message, 7, ListOffsetsResponse).topics[0].partitions[0].offset


@pytest.mark.parametrize("acks", [1, -1])
def test_repeated_batch_gets_the_same_response(harness: Harness, acks: int) -> None:
    first, other = batch(5, 0), batch(5, 1)
    assert produce(harness, first, acks=acks)[0].base_offset == 0
    assert produce(harness, other, acks=acks)[0].base_offset == 1
    (again,) = produce(harness, first, acks=acks)
    assert (again.error_code, again.base_offset, again.log_append_time_ms) == (ErrorCode.NONE, 0, NOW_MS)
    assert harness.broker.partitions[NAME].log.end_offset == 2


def test_repeated_batch_waits_like_the_first(harness: Harness) -> None:
    waiting = [harness.send(request(batch(5, 0), acks=-1), 9) for _ in range(3)]
    assert all(isinstance(one, ParkedRequest) for one in waiting)
    harness.settle()
    assert harness.broker.purgatory.take_completed() == waiting
    assert harness.broker.partitions[NAME].log.end_offset == 1


def test_refused_batch_has_an_error_message(harness: Harness) -> None:
    produce(harness, batch(5, 0))
    (gap,) = produce(harness, batch(5, 2))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    text = "2 (incoming seq. number), 0 (current end sequence number)"
    assert gap.error_message == f"out of order sequence number for producer 5 at offset 1: {text}"
    produce(harness, batch(5, 0, epoch=1))
    assert produce(harness, batch(5, 1))[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_transactional_batch_without_transactional_id_is_refused(harness: Harness) -> None:
    answers = produce(harness, batch(5, 0), batch(6, 0, transactional=True))
    assert {one.error_code for one in answers} == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    assert harness.broker.partitions[NAME].log.end_offset == 0


def test_transactional_batches_of_two_producers_are_refused(harness: Harness) -> None:
    answers = produce(harness, *(batch(pid, 0, transactional=True) for pid in (5, 6)), transactional_id="tx")
    assert {one.error_code for one in answers} == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    answers = produce(harness, batch(6, 0), batch(5, 0, transactional=True), transactional_id="tx")
    assert {one.error_code for one in answers} == {ErrorCode.NONE}


def test_the_first_batch_of_a_transaction_must_come_first(tmp_path: Path) -> None:
    """If the coordinator refused it, it is resent; batches behind it must not be accepted before it."""
    harness = Harness(tmp_path)
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    harness.request(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 5, CreateTopicsResponse)
    (refused,) = produce(harness, batch(5, 0, transactional=True), transactional_id="tx")
    assert refused.error_code not in (ErrorCode.NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    partition = harness.broker.partitions[NAME]
    assert list(partition.log.producers.awaited) == [5]
    (later,) = produce(harness, batch(5, 1))
    assert later.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(harness, batch(5, 0))[0].error_code == ErrorCode.NONE


def test_committed_reads_end_at_the_first_open_transaction(harness: Harness) -> None:
    produce(harness, batch(5, 0))
    transact(harness, 6, 0)
    produce(harness, batch(5, 1))
    found = fetch(harness, 0)
    assert offsets(found) == [0]
    assert (found.last_stable_offset, found.high_watermark, found.aborted_transactions) == (1, 3, [])
    uncommitted = fetch(harness, 0, isolation_level=0)
    assert offsets(uncommitted) == [0, 1, 2]
    assert (uncommitted.last_stable_offset, uncommitted.aborted_transactions) == (1, None)
    assert not fetch(harness, 2).records
    assert (latest(harness, LATEST, 0), latest(harness, LATEST, COMMITTED)) == (3, 1)


def test_aborted_transactions_are_listed_in_the_response(harness: Harness) -> None:
    transact(harness, 6, 0)
    transact(harness, 7, 0)
    end(harness, 6, commit=False)
    transact(harness, 6, 1)
    end(harness, 7, commit=True)
    harness.settle()
    found = fetch(harness, 0)
    assert offsets(found) == [0, 1, 2]
    assert [(one.producer_id, one.first_offset) for one in found.aborted_transactions or []] == [(6, 0)]
    end(harness, 6, commit=False)
    harness.settle()
    aborted = fetch(harness, 1).aborted_transactions or []
    assert [(one.producer_id, one.first_offset) for one in aborted] == [(6, 0), (6, 3)]
    assert [(one.producer_id, one.first_offset) for one in fetch(harness, 3).aborted_transactions or []] == [(6, 3)]


def test_parked_fetch_completes_at_the_marker(harness: Harness) -> None:
    transact(harness, 6, 0)
    parked = harness.send(fetch_request(0, max_wait_ms=10_000), 12)
    assert isinstance(parked, ParkedRequest)
    transact(harness, 6, 1)
    harness.settle()
    assert harness.broker.purgatory.take_completed() == []
    end(harness, 6, commit=True)
    assert harness.broker.purgatory.take_completed() == []
    harness.settle()
    assert harness.broker.purgatory.take_completed() == [parked]
    found = harness.decoded(parked.then(), 12, FetchResponse).responses[0].partitions[0]
    assert (offsets(found), found.last_stable_offset) == ([0, 1, 2], 3)


def test_times_beyond_the_last_stable_offset_are_not_found(harness: Harness) -> None:
    produce(harness, batch(5, 0, at=NOW_MS - 10))
    produce(harness, batch(6, 0, transactional=True, at=NOW_MS - 5), transactional_id="tx")
    for timestamp, everywhere, committed in ((NOW_MS - 10, 0, 0), (NOW_MS - 5, 1, -1), (MAX_TIMESTAMP, 1, -1)):
        assert latest(harness, timestamp, 0) == everywhere
        assert latest(harness, timestamp, COMMITTED) == committed


@pytest.mark.parametrize("is_killed", [False, True])
def test_producer_and_transaction_state_survives_a_stop(harness: Harness, is_killed: bool) -> None:
    transact(harness, 6, 0)
    end(harness, 6, commit=False)
    produce(harness, batch(5, 0))
    transact(harness, 6, 1)
    harness.settle()
    for _ in range(2):
        harness.kill() if is_killed else harness.restart()
        found = fetch(harness, 0)
        assert offsets(found) == [0, 1, 2]
        assert [(one.producer_id, one.first_offset) for one in found.aborted_transactions or []] == [(6, 0)]
        assert produce(harness, batch(5, 0))[0].base_offset == 2
        assert transact(harness, 6, 1) == 3
