"""The client of a cluster of two brokers, one of which is unreachable or returns outdated metadata."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.client.admin.admin import NewTopic, create_partitions, create_topics, delete_topics
from odradek.client.admin.group_admin import list_groups
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.leader_requests import call_leaders
from odradek.client.connection.client_config import ClientConfig
from odradek.client.connection.client_errors import ClientError, ErrorResponse, KafkaUnavailable
from odradek.client.consumer.fetcher import Fetcher
from odradek.client.consumer.offset_lookup import EARLIEST, ListedOffset, list_offsets
from odradek.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from odradek.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from odradek.wire.messages.fetch import FetchRequest
from odradek.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from support.scripted_broker import HangUp, ScriptedBroker, topic_id

pytestmark = pytest.mark.waits

T = [TopicPartition(TopicName("t"), index) for index in range(3)]
QUICK_MS = 400


@pytest.fixture
def brokers() -> Iterator[dict[int, ScriptedBroker]]:
    """Two brokers whose metadata names leader 1 for partition 0, leader 2 for 1, and no leader for 2."""
    with ExitStack() as stack:
        started = {node: stack.enter_context(ScriptedBroker()) for node in (1, 2)}
        for broker in started.values():
            answer_metadata(broker, started, 1, 2, -1)
            broker.on(ListOffsetsRequest, lambda request, version: offsets(request))
        yield started


@pytest.fixture
def cluster(brokers: dict[int, ScriptedBroker]) -> Iterator[Cluster]:
    config = ClientConfig(brokers[1].address, api_timeout_ms=QUICK_MS, retry_backoff_ms=10)
    with Cluster(config) as cluster:
        yield cluster.connect()


def answer_metadata(broker: ScriptedBroker, members: dict[int, ScriptedBroker], *leaders: int) -> None:
    def metadata(request: MetadataRequest, version: int) -> MetadataResponse:
        broker.metadata_requests += 1
        parts = [
            MetadataResponsePartition(
                error_code=0, partition_index=index, leader_id=leader, replica_nodes=[1, 2], isr_nodes=[1, 2]
            )
            for index, leader in enumerate(leaders)
        ]
        requested = [] if request.topics is None else [topic.name or "" for topic in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node, host="127.0.0.1", port=one.port) for node, one in members.items()
            ],
            controller_id=1,
            topics=[
                MetadataResponseTopic(error_code=0, name=name, topic_id=topic_id(name), partitions=parts)
                for name in requested
            ],
        )

    broker.on(MetadataRequest, metadata)


def offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        error_code=0, partition_index=part.partition_index, offset=10 + part.partition_index
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def hang_up(request: object, version: int) -> object:
    raise HangUp


def test_unreachable_leader_does_not_delay_others(brokers: dict[int, ScriptedBroker], cluster: Cluster) -> None:
    brokers[2].on(ListOffsetsRequest, hang_up)
    failures: dict[TopicPartition, ClientError] = {}
    found = list_offsets(cluster, dict.fromkeys(T, EARLIEST), failures=failures)
    assert {each: one.offset for each, one in found.items()} == {T[0]: 10}
    assert isinstance(failures[T[1]], KafkaUnavailable)
    assert "the partition has no leader" in str(failures[T[2]])
    with pytest.raises(KafkaUnavailable):
        list_offsets(cluster, dict.fromkeys(T[:2], EARLIEST))


def test_missing_leaders_are_not_awaited(brokers: dict[int, ScriptedBroker], cluster: Cluster) -> None:
    def send(connection: object, partitions: list[TopicPartition]) -> object:
        raise AssertionError("nobody is to be asked")

    outcomes: dict[TopicPartition, ListedOffset | ClientError] = call_leaders(
        cluster,
        T[2:],
        send,  # type: ignore[arg-type]
        lambda answer: [],
        timeout_ms=10**9,
        leaderless_ms=0,
    )
    assert isinstance(outcomes[T[2]], ErrorResponse)


def test_unreachable_broker_of_a_listing_is_reported(brokers: dict[int, ScriptedBroker], cluster: Cluster) -> None:
    def answer(request: ListGroupsRequest, version: int) -> ListGroupsResponse:
        return ListGroupsResponse(error_code=0, groups=[ListedGroup(group_id="g", protocol_type="consumer")])

    for broker in brokers.values():
        broker.on(ListGroupsRequest, answer)
    assert [each.group for each in list_groups(cluster)] == ["g"], "a group that moves is told of twice"
    brokers[2].on(ListGroupsRequest, hang_up)
    failures: dict[int, ClientError] = {}
    (listed,) = list_groups(cluster, failures=failures)
    assert (listed.coordinator, list(failures)) == (1, [2])
    with pytest.raises(KafkaUnavailable):
        list_groups(cluster)


def test_metadata_is_requested_from_another_broker_if_outdated(
    brokers: dict[int, ScriptedBroker], cluster: Cluster
) -> None:
    answer_metadata(brokers[1], brokers, -1, -1, -1)  # It is cut off from its cluster.
    found = list_offsets(cluster, {T[1]: EARLIEST})
    assert found[T[1]].offset == 11
    assert brokers[2].metadata_requests > 0


def test_fetch_raises_unavailable_after_the_loss_of_all_leaders(
    brokers: dict[int, ScriptedBroker], cluster: Cluster
) -> None:
    brokers[2].on(FetchRequest, hang_up)
    fetcher = Fetcher(cluster, dict.fromkeys(T[:2], 0))
    cluster.learn(T[:2])
    brokers[1].__exit__(None, None, None)
    with pytest.raises(KafkaUnavailable):  # Not the error of one leader alone.
        while True:
            fetcher.poll(50)


def test_change_with_a_lost_response_is_retried(brokers: dict[int, ScriptedBroker], cluster: Cluster) -> None:
    lost: set[type] = set()

    def once(request: object) -> None:
        if type(request) not in lost:
            lost.add(type(request))
            raise HangUp

    def create(request: CreateTopicsRequest, version: int) -> CreateTopicsResponse:
        once(request)
        code = ErrorCode.TOPIC_ALREADY_EXISTS
        return CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=code, error_message="exists")])

    def grow(request: CreatePartitionsRequest, version: int) -> CreatePartitionsResponse:
        once(request)
        code = ErrorCode.INVALID_PARTITIONS
        result = CreatePartitionsTopicResult(name="t", error_code=code, error_message="has them")
        return CreatePartitionsResponse(results=[result])

    def delete(request: DeleteTopicsRequest, version: int) -> DeleteTopicsResponse:
        once(request)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DeleteTopicsResponse(responses=[DeletableTopicResult(name="t", topic_id=topic_id("t"), error_code=code)])

    brokers[1].on(CreateTopicsRequest, create)
    brokers[1].on(CreatePartitionsRequest, grow)
    brokers[1].on(DeleteTopicsRequest, delete)
    with pytest.raises(ErrorResponse, match="an earlier response was lost"):
        create_topics(cluster, [NewTopic("t", 1, 1)])
    with pytest.raises(ErrorResponse, match="exists"):
        create_topics(cluster, [NewTopic("t", 1, 1)])
    with pytest.raises(ErrorResponse, match="an earlier response was lost"):
        create_partitions(cluster, {"t": 2})
    delete_topics(cluster, ["t"])
    with pytest.raises(ErrorResponse, match="UNKNOWN_TOPIC"):
        delete_topics(cluster, ["t"])
