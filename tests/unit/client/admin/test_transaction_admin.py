"""Administration of transactions: list, describe, find hanging ones, abort."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.client.admin.transaction_admin import (
    ActiveProducer,
    TransactionDescription,
    abort_hanging,
    abort_transaction,
    describe_producers,
    describe_transactions,
    find_hanging,
    list_transactions,
)
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.topic_metadata import Broker
from odradek.client.connection.client_config import ClientConfig
from odradek.client.connection.client_errors import ErrorResponse, Unsupported
from odradek.client.producer.idempotence import Identity
from odradek.wire.messages import describe_transactions as described
from odradek.wire.messages import list_transactions as listed
from odradek.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.wire.schema.api_keys import ApiKey
from support.scripted_broker import ScriptedBroker
from support.scripted_coordinator import ScriptedCoordinator

pytestmark = pytest.mark.waits

T0, T1 = TopicPartition(TopicName("t"), 0), TopicPartition(TopicName("t"), 1)
NOW_MS = 1_000_000
REFUSED = {
    "nix": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    "forbidden": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as scripted:
        scripted.topics["t"] = 2
        ScriptedCoordinator(scripted)
        yield scripted


@pytest.fixture
def cluster(broker: ScriptedBroker) -> Iterator[Cluster]:
    with Cluster(ClientConfig(broker.address, retry_backoff_ms=1, api_timeout_ms=30_000)) as connected:
        yield connected


def lists(broker: ScriptedBroker, states: dict[str, int]) -> None:
    def answer(request: listed.ListTransactionsRequest, version: int) -> listed.ListTransactionsResponse:
        found = [
            listed.TransactionState(transactional_id=name, producer_id=producer_id, transaction_state="Ongoing")
            for name, producer_id in states.items()
            if not request.producer_id_filters or producer_id in request.producer_id_filters
        ]
        return listed.ListTransactionsResponse(
            throttle_time_ms=0, error_code=0, unknown_state_filters=[], transaction_states=found
        )

    broker.on(listed.ListTransactionsRequest, answer)


def describes(broker: ScriptedBroker, state: str, *partitions: TopicPartition) -> None:
    def answer(request: described.DescribeTransactionsRequest, version: int) -> described.DescribeTransactionsResponse:
        found = [
            described.TransactionState(
                error_code=REFUSED.get(name, ErrorCode.NONE),
                transactional_id=name,
                transaction_state=state,
                transaction_timeout_ms=60_000,
                transaction_start_time_ms=5,
                producer_id=7,
                producer_epoch=2,
                topics=[described.TopicData(topic=each.topic, partitions=[each.partition]) for each in partitions],
            )
            for name in request.transactional_ids
        ]
        return described.DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=found)

    broker.on(described.DescribeTransactionsRequest, answer)


def remembers(broker: ScriptedBroker, producers: dict[int, list[ProducerState]], *errors: ErrorCode) -> None:
    waiting = list(errors)

    def answer(request: DescribeProducersRequest, version: int) -> DescribeProducersResponse:
        code = waiting.pop(0) if waiting else ErrorCode.NONE
        topics = [
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(
                        partition_index=index,
                        error_code=code,
                        active_producers=[] if code else producers.get(index, []),
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
        return DescribeProducersResponse(throttle_time_ms=0, topics=topics)

    broker.on(DescribeProducersRequest, answer)


def producer(producer_id: int, *, since: int = 0, start: int = 3) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=2,
        last_sequence=9,
        last_timestamp=since,
        coordinator_epoch=-1,
        current_txn_start_offset=start,
    )


def test_transactions_are_filtered_if_the_broker_supports_it(broker: ScriptedBroker, cluster: Cluster) -> None:
    lists(broker, {"b": 1, "a": 2})
    assert [(each.transactional_id, each.producer_id, each.coordinator) for each in list_transactions(cluster)] == [
        ("a", 2, 1),
        ("b", 1, 1),
    ]
    list_transactions(cluster, states=["Ongoing"], longer_than_ms=5, pattern="a.*")
    request = broker.seen[-1]
    assert (request.state_filters, request.duration_filter, request.transactional_id_pattern) == (["Ongoing"], 5, "a.*")
    broker.versions[ApiKey.LIST_TRANSACTIONS] = (0, 0)
    with Cluster(cluster.config) as older:
        assert len(list_transactions(older)) == 2
        with pytest.raises(Unsupported, match="cannot filter transactions by duration"):
            list_transactions(older, longer_than_ms=5)
        with pytest.raises(Unsupported, match="cannot filter transactional ids by pattern"):
            list_transactions(older, pattern="a")


def test_transactions_are_described(broker: ScriptedBroker, cluster: Cluster) -> None:
    describes(broker, "Ongoing", T1, T0)
    outcomes = describe_transactions(cluster, ["x", "nix"])
    found = outcomes["x"]
    assert isinstance(found, TransactionDescription)
    assert (found.identity, found.partitions, found.is_in_progress) == ((7, 2), (T0, T1), True)
    assert "the transactional id does not exist" in str(outcomes["nix"])


def test_producers_of_a_partition_are_described(broker: ScriptedBroker, cluster: Cluster) -> None:
    remembers(broker, {0: [producer(9), producer(8, start=-1)]}, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    found = describe_producers(cluster, [T0, T1])
    assert [each.identity.producer_id for each in found[T0]] == [8, 9]
    assert found[T0][1] == ActiveProducer(Identity(9, 2), 9, 0, -1, 3)
    assert found[T1] == []


@pytest.mark.parametrize(
    ("state", "held", "is_hanging"),
    [
        ("Ongoing", [T0], False),
        ("PrepareCommit", [T0], False),
        ("Ongoing", [T1], True),
        ("CompleteCommit", [T0], True),
        ("Empty", [], True),
    ],
)
def test_transaction_without_a_coordinator_entry_is_hanging(
    broker: ScriptedBroker, cluster: Cluster, state: str, held: list[TopicPartition], is_hanging: bool
) -> None:
    remembers(broker, {0: [producer(7)]})
    lists(broker, {"x": 7, "other": 8})
    describes(broker, state, *held)
    hanging = find_hanging(cluster, [T0, T1], older_than_ms=1_000, now_ms=NOW_MS)
    assert [(each.partition, each.transactional_id) for each in hanging] == ([(T0, "x")] if is_hanging else [])


def test_unauthorized_transaction_is_not_reported_as_hanging(broker: ScriptedBroker, cluster: Cluster) -> None:
    remembers(broker, {0: [producer(7)]})
    lists(broker, {"forbidden": 7})
    describes(broker, "Ongoing", T0)
    with pytest.raises(ErrorResponse, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        find_hanging(cluster, [T0], older_than_ms=1_000, now_ms=NOW_MS)
    lists(broker, {"nix": 7})
    assert len(find_hanging(cluster, [T0], older_than_ms=1_000, now_ms=NOW_MS)) == 1


def test_unreachable_leader_is_not_retried_forever(broker: ScriptedBroker, cluster: Cluster) -> None:
    remembers(broker, {0: [producer(7)]})
    cluster.learn([T0])
    with ScriptedBroker() as stopped:
        cluster.metadata.brokers[2] = Broker(2, "127.0.0.1", stopped.port)
    moved = replace(cluster.metadata.topics["t"].partitions[0], leader=2)
    cluster.metadata.topics["t"] = replace(cluster.metadata.topics["t"], partitions=(moved,))
    assert len(describe_producers(cluster, [T0])[T0]) == 1


def test_producer_without_a_transactional_id_is_hanging(broker: ScriptedBroker, cluster: Cluster) -> None:
    remembers(broker, {1: [producer(7)]})
    lists(broker, {})
    (hanging,) = find_hanging(cluster, [T0, T1], older_than_ms=1_000, now_ms=NOW_MS)
    assert (hanging.partition, hanging.transactional_id, hanging.producer.transaction_start) == (T1, None, 3)


def test_recent_producer_is_not_hanging(broker: ScriptedBroker, cluster: Cluster) -> None:
    remembers(broker, {0: [producer(7, since=NOW_MS - 999), producer(8, start=-1)]})
    assert find_hanging(cluster, [T0], older_than_ms=1_000, now_ms=NOW_MS) == []
    assert not any(isinstance(each, listed.ListTransactionsRequest) for each in broker.seen), "nobody to ask about"


def test_marker_is_written_in_place_of_the_coordinator(broker: ScriptedBroker, cluster: Cluster) -> None:
    codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH]

    def answer(request: WriteTxnMarkersRequest, version: int) -> WriteTxnMarkersResponse:
        results = [
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=codes.pop(0))
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
        return WriteTxnMarkersResponse(markers=results)

    broker.on(WriteTxnMarkersRequest, answer)
    hanging = ActiveProducer(Identity(7, 2), 9, 0, -1, 3)
    abort_hanging(cluster, T1, hanging)
    (marker,) = broker.seen[-1].markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (7, 2, False)
    assert marker.coordinator_epoch == 0, "the leader heard of no coordinator yet"
    with pytest.raises(ErrorResponse, match="abort in t-1"):
        abort_hanging(cluster, T1, hanging)


def test_abort_waits_until_the_transaction_has_ended(broker: ScriptedBroker, cluster: Cluster) -> None:
    codes = [ErrorCode.CONCURRENT_TRANSACTIONS] * 3

    def answer(request: InitProducerIdRequest, version: int) -> InitProducerIdResponse:
        code = codes.pop() if codes else ErrorCode.NONE
        return InitProducerIdResponse(throttle_time_ms=0, error_code=code, producer_id=7, producer_epoch=5)

    broker.on(InitProducerIdRequest, answer)
    assert abort_transaction(cluster, "x") == (7, 5)
    assert broker.seen[-1].transactional_id == "x"
    assert not codes
