"""Queries of tools about transactions and producers, and their markers (KIP-664)."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.api.request.repeated_names import REPEATS_MAX
from odradek.base.errors import ErrorCode
from odradek.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from odradek.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from odradek.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from support.in_memory import Harness
from support.transactional import Transactional, committed, last_stable, make_topic

TIMES_MAX = REPEATS_MAX + 1


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    harness = Harness(tmp_path)
    make_topic(harness, "x", 2)
    return harness


@pytest.fixture
def producer(harness: Harness) -> Transactional:
    """Return a producer with an open transaction; an idle one exists, too."""
    Transactional(harness, "idle").begin()
    producer = Transactional(harness, "open")
    producer.begin()
    assert producer.write("x", b"a") == ErrorCode.NONE
    return producer


def list_transactions(harness: Harness, **filters: object) -> set[str]:
    values: dict[str, object] = {"state_filters": [], "producer_id_filters": []}
    request = ListTransactionsRequest(**values | filters)  # type: ignore[arg-type]
    answer = harness.request(request, 2, ListTransactionsResponse)
    assert answer.error_code == ErrorCode.NONE
    return {one.transactional_id for one in answer.transaction_states}


def test_transactions_are_listed_by_filters(harness: Harness, producer: Transactional) -> None:
    assert list_transactions(harness) == {"idle", "open"}
    assert list_transactions(harness, state_filters=["Ongoing", "Ongoing", "Nonsense"]) == {"open"}
    assert list_transactions(harness, state_filters=["Nonsense"]) == set()
    assert list_transactions(harness, producer_id_filters=[producer.producer.id, 99]) == {"open"}
    assert list_transactions(harness, transactional_id_pattern="i.*") == {"idle"}
    assert list_transactions(harness, transactional_id_pattern="i") == set()
    assert list_transactions(harness, duration_filter=0) == set()
    harness.pass_time(1)
    assert list_transactions(harness, duration_filter=0) == {"open"}


REPEATED = pytest.mark.parametrize(
    ("count", "code"), [(TIMES_MAX, ErrorCode.NONE), (TIMES_MAX + 1, ErrorCode.INVALID_REQUEST)]
)


@REPEATED
def test_describe_limits_repetitions_of_a_transaction(
    harness: Harness, producer: Transactional, count: int, code: ErrorCode
) -> None:
    request = DescribeTransactionsRequest(transactional_ids=[producer.id] * count)
    states = harness.request(request, 0, DescribeTransactionsResponse).transaction_states
    assert [(one.transactional_id, one.error_code) for one in states] == [("open", code)] * count


@REPEATED
@pytest.mark.usefixtures("producer")
def test_describe_limits_repetitions_of_a_partition(harness: Harness, count: int, code: ErrorCode) -> None:
    topics = [TopicRequest(name="x", partition_indexes=[0])] * (count - 1)
    topics.append(TopicRequest(name="x", partition_indexes=[0]))
    answers = harness.request(DescribeProducersRequest(topics=topics), 0, DescribeProducersResponse).topics
    described = [(one.partition_index, one.error_code, len(one.active_producers)) for one in answers[-1].partitions]
    assert described == [(0, code, 0 if code else 1)]


@pytest.mark.parametrize("version", [1, 2])
def test_repeated_partition_gets_one_marker(harness: Harness, producer: Transactional, version: int) -> None:
    marker = WritableTxnMarker(
        producer_id=producer.producer.id,
        producer_epoch=producer.producer.epoch + 1,
        transaction_result=True,
        topics=[WritableTxnMarkerTopic(name="x", partition_indexes=[0, 0])],
        coordinator_epoch=0,
        transaction_version=2 if version == 2 else 0,
    )
    answer = harness.request(WriteTxnMarkersRequest(markers=[marker]), version, WriteTxnMarkersResponse)
    (topic,) = answer.markers[0].topics
    assert [part.error_code for part in topic.partitions] == [ErrorCode.NONE] * 2
    assert (committed(harness, "x"), last_stable(harness, "x")) == ([b"a"], 2)
