from __future__ import annotations

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID
from odradek.client.admin.admin import NewTopic, create_topics, delete_topics, describe_cluster, describe_topics
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_config import ClientConfig
from odradek.client.connection.client_errors import ErrorResponse, KafkaUnavailable, UnknownTopic, Unsupported
from odradek.client.consumer.offset_lookup import EARLIEST, LATEST, MAX_TIMESTAMP, ListedOffset, list_offsets
from odradek.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from odradek.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.wire.schema.api_keys import ApiKey
from support.ports import free_port
from support.scripted_broker import HangUp, ScriptedBroker

pytestmark = pytest.mark.waits

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "api_timeout_ms": 2_000, "connect_timeout_ms": 2_000}
T0 = TopicPartition(TopicName("t"), 0)
T1 = TopicPartition(TopicName("t"), 1)


def cluster_of(broker: ScriptedBroker, **settings: int) -> Cluster:
    return Cluster(ClientConfig(broker.address, **(QUICK | settings)))  # type: ignore[arg-type]  # All ints.


def test_one_reachable_bootstrap_server_is_enough() -> None:
    with ScriptedBroker() as broker:
        servers = f"127.0.0.1:{free_port()},{broker.address}"
        with Cluster(ClientConfig(servers, **QUICK)) as cluster:  # type: ignore[arg-type]
            assert cluster.connect().metadata.cluster_id == "scripted"


def test_connect_fails_immediately_without_a_broker() -> None:
    with pytest.raises(KafkaUnavailable, match="connection refused"):
        Cluster(ClientConfig(f"127.0.0.1:{free_port()}", api_timeout_ms=60_000)).connect()


def test_later_calls_wait_for_a_reconnect() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        cluster.connect()
        broker.drop_connections()
        assert [topic.name for topic in cluster.topics()] == ["t"]


def test_missing_topic_is_awaited_up_to_the_timeout() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        with pytest.raises(UnknownTopic):
            cluster.topic("nix", timeout_ms=0)
        assert broker.metadata_requests == 1
        with pytest.raises(UnknownTopic):
            cluster.topic("nix", timeout_ms=50)
        assert broker.metadata_requests > 3


def test_topics_are_cached_for_a_while() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        assert cluster.partitions(["t"]) == [T0]
        cluster.partitions(["t"])
        assert broker.metadata_requests == 1
    with ScriptedBroker() as broker, cluster_of(broker, metadata_max_age_ms=0) as cluster:
        cluster.partitions(["t"])
        cluster.partitions(["t"])
        assert broker.metadata_requests == 2


def listed(*parts: ListOffsetsPartitionResponse) -> ListOffsetsResponse:
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=list(parts))])


def test_offsets_of_several_partitions_use_one_request() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        broker.topics["t"] = 2
        first = ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=5, leader_epoch=1)
        second = ListOffsetsPartitionResponse(partition_index=1, error_code=0, offset=6)
        broker.on(ListOffsetsRequest, lambda request, version: listed(first, second))
        assert list_offsets(cluster, {T1: LATEST, T0: EARLIEST}) == {
            T1: ListedOffset(6, -1, -1),
            T0: ListedOffset(5, -1, 1),
        }
        (request,) = broker.seen
        assert [(part.partition_index, part.timestamp) for part in request.topics[0].partitions] == [(1, -1), (0, -2)]


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.OFFSET_NOT_AVAILABLE]
)
def test_only_failed_partitions_are_retried_with_new_metadata(code: ErrorCode) -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        broker.topics["t"] = 2
        good = ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=5)
        bad = ListOffsetsPartitionResponse(partition_index=1, error_code=code)
        fixed = ListOffsetsPartitionResponse(partition_index=1, error_code=0, offset=6)
        answers = iter([listed(good, bad), listed(fixed)])
        broker.on(ListOffsetsRequest, lambda request, version: next(answers))
        found = list_offsets(cluster, {T0: LATEST, T1: LATEST})
        assert (found[T0].offset, found[T1].offset) == (5, 6)
        assert [part.partition_index for part in broker.seen[1].topics[0].partitions] == [1]
        assert broker.metadata_requests == 2


def test_permanent_error_is_raised_at_the_timeout() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        bad = ListOffsetsPartitionResponse(partition_index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        broker.on(ListOffsetsRequest, lambda request, version: listed(bad))
        with pytest.raises(ErrorResponse, match="t-0: the leader changed"):
            list_offsets(cluster, {T0: LATEST}, timeout_ms=50)


def test_fatal_error_is_raised_immediately() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        bad = ListOffsetsPartitionResponse(partition_index=0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        broker.on(ListOffsetsRequest, lambda request, version: listed(bad))
        with pytest.raises(ErrorResponse, match="not authorized"):
            list_offsets(cluster, {T0: LATEST})
        assert len(broker.seen) == 1


def test_partition_missing_in_a_response_is_an_error() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        broker.on(ListOffsetsRequest, lambda request, version: listed())
        with pytest.raises(ErrorResponse, match="missing in the response"):
            list_offsets(cluster, {T0: LATEST})


def test_max_timestamp_is_unsupported_by_old_brokers() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        broker.versions[ApiKey.LIST_OFFSETS] = (0, 6)
        with pytest.raises(Unsupported, match=r"older than Kafka 3\.0"):
            list_offsets(cluster, {T0: MAX_TIMESTAMP})


def test_changes_are_retried_on_the_new_controller() -> None:
    codes = iter([ErrorCode.NOT_CONTROLLER, ErrorCode.NONE])

    def create(request: CreateTopicsRequest, version: int) -> CreateTopicsResponse:
        topic = CreatableTopicResult(name="new", error_code=next(codes), num_partitions=3, replication_factor=1)
        return CreateTopicsResponse(topics=[topic])

    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        broker.on(CreateTopicsRequest, create)
        (created,) = create_topics(cluster, [NewTopic("new")])
        assert (created.name, created.partitions) == ("new", 3)
        assert broker.metadata_requests == 2


def test_old_broker_requires_partition_and_replica_counts() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        broker.versions[ApiKey.CREATE_TOPICS] = (0, 3)
        with pytest.raises(Unsupported, match="specify the number of partitions and the replication factor of new"):
            create_topics(cluster, [NewTopic("new", partitions=3)])


@pytest.mark.parametrize("version", [5, 6])
def test_deletion_of_a_missing_topic_is_not_retried(version: int) -> None:
    def delete(request: DeleteTopicsRequest, version: int) -> DeleteTopicsResponse:
        result = DeletableTopicResult(name="nix", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return DeleteTopicsResponse(responses=[result])

    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        broker.versions[ApiKey.DELETE_TOPICS] = (0, version)
        broker.on(DeleteTopicsRequest, delete)
        with pytest.raises(UnknownTopic):
            delete_topics(cluster, ["nix"])
        (request,) = broker.seen
        assert [topic.name for topic in request.topics] + request.topic_names == ["nix"]


def test_paginated_topic_descriptions_are_combined() -> None:
    def partition(index: int) -> DescribeTopicPartitionsResponsePartition:
        return DescribeTopicPartitionsResponsePartition(
            error_code=0, partition_index=index, leader_id=1, replica_nodes=[1], isr_nodes=[1], offline_replicas=[]
        )

    def describe(request: DescribeTopicPartitionsRequest, version: int) -> DescribeTopicPartitionsResponse:
        first = 0 if request.cursor is None else request.cursor.partition_index
        topic = DescribeTopicPartitionsResponseTopic(
            error_code=0, name="t", topic_id=ZERO_UUID, partitions=[partition(first), partition(first + 1)]
        )
        cursor = None if first >= 4 else Cursor(topic_name="t", partition_index=first + 2)
        return DescribeTopicPartitionsResponse(topics=[topic], next_cursor=cursor)

    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        broker.on(DescribeTopicPartitionsRequest, describe)
        (topic,) = describe_topics(cluster, ["t"])
        assert [each.index for each in topic.partitions] == list(range(6))


def test_old_broker_is_described_by_metadata_requests() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        del broker.versions[ApiKey.DESCRIBE_TOPIC_PARTITIONS]
        del broker.versions[ApiKey.DESCRIBE_CLUSTER]
        (topic,) = describe_topics(cluster, ["t"])
        assert (topic.name, len(topic.partitions)) == ("t", 1)
        assert describe_cluster(cluster).cluster_id == "scripted"
        with pytest.raises(UnknownTopic):
            describe_topics(cluster, ["t", "nix"])


def test_unreachable_advertised_address_is_named() -> None:
    def hang_up(request: ListOffsetsRequest, version: int) -> None:
        raise HangUp

    with ScriptedBroker() as broker:
        unused_port = free_port()
        with cluster_of(broker) as cluster:
            cluster.connect()
            broker.port = unused_port  # Metadata responses from now on.
            with pytest.raises(
                KafkaUnavailable, match=rf"{unused_port}: connection refused \(the address that broker 1 adv"
            ):
                list_offsets(cluster, {T0: LATEST}, timeout_ms=20)
