"""Requests with many partitions of transactions in slices; changes in between are applied."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.limits import SLICE_ELEMENTS
from odradek.base.units import TopicName, TopicPartition
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.transactions.completion import MARKED_AT_ONCE
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from odradek.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from odradek.wire.messages.end_txn import EndTxnResponse
from odradek.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from support.group_offsets import delete_topic
from support.in_memory import Harness
from support.interleaved import Begun
from support.transactional import Transactional, committed, make_topic

pytestmark = pytest.mark.slow

NONE = ErrorCode.NONE
MANY = 2 * SLICE_ELEMENTS + 50
ALL = [("x", index) for index in range(MANY)]


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    made = Harness(tmp_path, transaction_state_log_num_partitions="1")
    make_topic(made, "x", MANY)
    make_topic(made, "y")
    return made


@pytest.fixture
def producer(harness: Harness) -> Transactional:
    producer = Transactional(harness, "p")
    producer.begin()
    return producer


@pytest.fixture
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a slice end at every possible point."""
    monkeypatch.setattr("odradek.api.request.outcome.SLICE_ELEMENTS", 0)


def end(harness: Harness, index: int) -> int:
    return harness.broker.partitions[TopicPartition(TopicName("x"), index)].log.end_offset


# AddPartitionsToTxn.


def adding(producer: Transactional) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.id,
        v3_and_below_producer_id=producer.producer.id,
        v3_and_below_producer_epoch=producer.producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="x", partitions=list(range(MANY)))],
    )


def codes(answer: AddPartitionsToTxnResponse) -> list[int]:
    (topic,) = answer.results_by_topic_v3_and_below
    return [part.partition_error_code for part in topic.results_by_partition]


def test_all_partitions_join_by_one_record(producer: Transactional) -> None:
    log = producer.harness.broker.transactions.states.find_transaction("p")[0].log.leading.log
    end = log.end_offset
    begun = Begun(producer.harness, adding(producer), 3)
    assert log.end_offset == end and not producer.state.partitions
    assert codes(begun.finish(AddPartitionsToTxnResponse)) == [NONE] * MANY
    assert log.end_offset == end + 1
    assert producer.state.partitions == {TopicPartition(TopicName(name), index) for name, index in ALL}


def test_partitions_that_joined_in_between_are_kept(producer: Transactional) -> None:
    begun = Begun(producer.harness, adding(producer), 3)
    assert producer.add(("y", 0)) == [NONE]
    assert codes(begun.finish(AddPartitionsToTxnResponse)) == [NONE] * MANY
    assert len(producer.state.partitions) == MANY + 1


def test_producer_fenced_in_between_adds_nothing(producer: Transactional) -> None:
    begun = Begun(producer.harness, adding(producer), 3)
    producer.begin()
    assert codes(begun.finish(AddPartitionsToTxnResponse)) == [ErrorCode.PRODUCER_FENCED] * MANY
    assert not producer.state.partitions


def test_missing_partitions_prevent_all_from_joining(producer: Transactional) -> None:
    request = adding(producer)
    request.v3_and_below_topics[0].partitions.append(MANY)
    found = codes(Begun(producer.harness, request, 3).finish(AddPartitionsToTxnResponse))
    assert found == [ErrorCode.OPERATION_NOT_ATTEMPTED] * MANY + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert not producer.state.partitions


def test_verification_fails_if_the_transaction_ends_in_between(producer: Transactional) -> None:
    producer.add(*ALL)
    one = AddPartitionsToTxnTransaction(
        transactional_id="p",
        producer_id=producer.producer.id,
        producer_epoch=producer.producer.epoch,
        verify_only=True,
        topics=[AddPartitionsToTxnTopic(name="x", partitions=list(range(MANY)))],
    )
    begun = Begun(producer.harness, AddPartitionsToTxnRequest(transactions=[one]), 4, slices=4)  # Two check the names.
    assert producer.end(commit=True) == NONE
    (result,) = begun.finish(AddPartitionsToTxnResponse).results_by_transaction
    found = [part.partition_error_code for part in result.topic_results[0].results_by_partition]
    assert found[0] == NONE and found[-1] == ErrorCode.PRODUCER_FENCED


# WriteTxnMarkers.


def markers(producer: Transactional) -> WriteTxnMarkersRequest:
    topics = [WritableTxnMarkerTopic(name="x", partition_indexes=[*range(MANY), 0])]
    one = WritableTxnMarker(
        producer_id=producer.producer.id,
        producer_epoch=producer.producer.epoch,
        transaction_result=True,
        topics=topics,
        coordinator_epoch=0,
    )
    return WriteTxnMarkersRequest(markers=[one])


def test_each_partition_gets_one_marker(producer: Transactional) -> None:
    assert set(producer.write_all("x", {index: [b"a"] for index in range(MANY)})) == {NONE}
    begun = Begun(producer.harness, markers(producer), 1)
    assert (end(producer.harness, 0), end(producer.harness, MANY - 1)) == (2, 1)
    (result,) = begun.finish(WriteTxnMarkersResponse).markers
    assert [part.partition_index for part in result.topics[0].partitions] == [*range(MANY), 0]
    assert {part.error_code for part in result.topics[0].partitions} == {NONE}
    assert committed(producer.harness, "x", MANY - 1) == [b"a"]
    assert end(producer.harness, 0) == 2, "a record and a marker"


def test_partitions_deleted_in_between_get_no_marker(producer: Transactional) -> None:
    begun = Begun(producer.harness, markers(producer), 1)
    delete_topic(producer.harness, "x")
    (result,) = begun.finish(WriteTxnMarkersResponse).markers
    found = [part.error_code for part in result.topics[0].partitions]
    # The written partition was deleted before its marker was durable.
    assert found[0] == found[-1] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert found[MANY - 1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_long_response_is_built_in_slices(producer: Transactional) -> None:
    again = adding(producer)
    again.v3_and_below_topics[0].partitions = [0] * MANY
    begun = Begun(producer.harness, again, 3)
    assert begun.waits_in_slices()
    assert codes(begun.finish(AddPartitionsToTxnResponse)) == [NONE] * MANY
    nowhere = markers(producer)
    nowhere.markers[0].topics[0].partition_indexes = [0, *range(MANY, 2 * MANY)]
    assert Begun(producer.harness, nowhere, 1).waits_in_slices()


# The end of a transaction.


def count_ended(harness: Harness) -> int:
    """Return the number of partitions with their record and a marker."""
    return sum(end(harness, index) == 2 for index in range(MANY))


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_of_many_partitions_ends_some_at_a_time(producer: Transactional, commit: bool) -> None:
    harness = producer.harness
    assert set(producer.write_all("x", {index: [b"a"] for index in range(MANY)})) == {NONE}
    outcome = harness.send(producer.end_request(commit=commit), 3)
    assert isinstance(outcome, ParkedRequest)
    harness.settle()
    marked = [count_ended(harness)]
    while marked[-1] < MANY:
        harness.pass_time(1)
        marked.append(count_ended(harness))
    assert max(after - before for before, after in pairwise([0, *marked])) == MARKED_AT_ONCE
    assert committed(harness, "x", MANY - 1) == [], "no sync has ended"
    assert harness.decoded(harness.finished(outcome), 3, EndTxnResponse).error_code == NONE
    assert {tuple(committed(harness, "x", index)) for index in (0, MANY - 1)} == {(b"a",) if commit else ()}


def test_stop_amid_the_markers_completes_the_transaction_later(producer: Transactional) -> None:
    harness = producer.harness
    assert set(producer.write_all("x", {index: [b"a"] for index in range(MANY)})) == {NONE}
    harness.send(producer.end_request(commit=True), 3)
    harness.settle()
    assert count_ended(harness) == MARKED_AT_ONCE
    harness.kill()
    harness.settle()
    while harness.broker.transactions.states.find_transaction("p")[1].is_decided:
        harness.pass_time(1)
        harness.settle()
    assert committed(harness, "x", 0) == committed(harness, "x", MANY - 1) == [b"a"]


# Listed and described transactions.


@pytest.mark.usefixtures("short_slices")
def test_each_transaction_is_described_in_its_state_at_that_time(harness: Harness) -> None:
    names = [f"p{number}" for number in range(20)]
    for name in names:
        Transactional(harness, name).begin()
    ids = DescribeTransactionsRequest(transactional_ids=names)
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    described, listed = Begun(harness, ids, 0), Begun(harness, request, 0)
    shard, _ = harness.broker.transactions.states.find_transaction(names[-1])
    shard.remove(names[0], harness.now)
    shard.remove(names[-1], harness.now)
    found = described.finish(DescribeTransactionsResponse).transaction_states
    assert [one.transactional_id for one in found] == names
    not_found = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert [one.error_code for one in found] == [not_found, *[NONE] * 18, not_found], (
        "names were counted in the first slice"
    )
    listed_ids = [one.transactional_id for one in listed.finish(ListTransactionsResponse).transaction_states]
    assert listed_ids == names[:-1], "the first had been looked at"


def test_partitions_deleted_in_between_are_described_as_unknown(producer: Transactional) -> None:
    producer.write_all("x", {index: [b"a"] for index in range(MANY)})
    request = DescribeProducersRequest(topics=[TopicRequest(name="x", partition_indexes=list(range(MANY)))])
    begun = Begun(producer.harness, request, 0, slices=2)
    delete_topic(producer.harness, "x")
    (topic,) = begun.finish(DescribeProducersResponse).topics
    first, last = topic.partitions[0], topic.partitions[-1]
    assert [one.producer_id for one in first.active_producers] == [producer.producer.id]
    assert last.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
