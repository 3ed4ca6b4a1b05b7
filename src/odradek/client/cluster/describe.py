"""Queries that any broker answers: topics with their partitions, configurations, brokers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from odradek.base.errors import ErrorCode, error_code
from odradek.base.uuids import Uuid
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.topic_metadata import Broker, Partition, Topic, topic_of
from odradek.client.connection.broker_connection import Connection
from odradek.client.connection.client_errors import Unsupported, response_error
from odradek.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from odradek.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

TOPIC_RESOURCE = 2
DYNAMIC_TOPIC_CONFIG, DEFAULT_CONFIG = 1, 5


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One configuration of a resource; the value of a secret is None."""

    name: str
    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool

    @property
    def is_set_on_topic(self) -> bool:
        return self.source == DYNAMIC_TOPIC_CONFIG


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster as described by its brokers."""

    cluster_id: str | None
    controller: int
    brokers: tuple[Broker, ...]


def describe_topic_configs(cluster: Cluster, names: Iterable[str]) -> dict[str, list[ConfigEntry]]:
    """Return every configuration of each topic, including defaults.

    is_set_on_topic marks the topic's own configurations.
    """
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
            for name in names
        ]
    )

    def send_describe_configs(connection: Connection) -> dict[str, list[ConfigEntry]]:
        response = connection.call(request, DescribeConfigsResponse)
        for result in response.results:
            check(result.error_code, f"topic {result.resource_name}", result.error_message)
        return {result.resource_name: [entry_of(config) for config in result.configs] for result in response.results}

    return cluster.call_any(send_describe_configs)


def entry_of(config: DescribeConfigsResourceResult) -> ConfigEntry:
    source = config.config_source
    if source < 0:  # Before Kafka 1.1, brokers only return whether the value is the default.
        source = DEFAULT_CONFIG if config.is_default else DYNAMIC_TOPIC_CONFIG
    return ConfigEntry(config.name, config.value, source, config.read_only, config.is_sensitive)


def describe_cluster(cluster: Cluster) -> ClusterDescription:
    """Describe the cluster with DescribeCluster (KIP-700, Kafka 2.8), or with Metadata on older brokers."""

    def send_describe_cluster(connection: Connection) -> ClusterDescription:
        try:
            request = DescribeClusterRequest(include_cluster_authorized_operations=False)
            response = connection.call(request, DescribeClusterResponse)
        except Unsupported:
            return from_metadata(connection)
        check(response.error_code, "cluster", response.error_message)
        brokers = tuple(Broker(each.broker_id, each.host, each.port, each.rack) for each in response.brokers)
        return ClusterDescription(response.cluster_id, response.controller_id, brokers)

    return cluster.call_any(send_describe_cluster)


def from_metadata(connection: Connection) -> ClusterDescription:
    response = connection.call(MetadataRequest(topics=[], allow_auto_topic_creation=False), MetadataResponse)
    brokers = tuple(Broker(each.node_id, each.host, each.port, each.rack) for each in response.brokers)
    return ClusterDescription(response.cluster_id, response.controller_id, brokers)


def describe_topics(cluster: Cluster, names: Sequence[str]) -> list[Topic]:
    """Return the current state of these topics, in the order of `names`, or raise UnknownTopic.

    The request is DescribeTopicPartitions (KIP-966, Kafka 3.8), which includes eligible leader replicas, or Metadata on
    older brokers.
    """

    def send_describe_topics(connection: Connection) -> dict[str, Topic]:
        try:
            return fetch_pages(connection, names)
        except Unsupported:
            request_topics = [MetadataRequestTopic(name=name) for name in names]
            response = connection.call(
                MetadataRequest(topics=request_topics, allow_auto_topic_creation=False), MetadataResponse
            )
            return {topic.name: topic for topic in map(topic_of, response.topics)}

    topics = cluster.call_any(send_describe_topics) if names else {}
    for name in names:
        check(topics[name].error if name in topics else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}", None)
    return [topics[name] for name in names]


def fetch_pages(connection: Connection, names: Sequence[str]) -> dict[str, Topic]:
    """Request topics page by page.

    A page holds about 2,000 partitions. It may end within a topic; the next page continues there.
    """
    topics: dict[str, Topic] = {}
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in sorted(set(names))])
    while True:
        response = connection.call(request, DescribeTopicPartitionsResponse)
        for topic_response in response.topics:
            topic = topic_from(topic_response)
            earlier = topics.get(topic.name)
            topics[topic.name] = topic if earlier is None else merge_pages(earlier, topic)
        if response.next_cursor is None:
            return topics
        rest = [topic for topic in request.topics if topic.name >= response.next_cursor.topic_name]
        request = DescribeTopicPartitionsRequest(topics=rest, cursor=response.next_cursor)


def merge_pages(earlier: Topic, later: Topic) -> Topic:
    return Topic(earlier.name, earlier.id, earlier.is_internal, earlier.partitions + later.partitions, earlier.error)


def topic_from(response: DescribeTopicPartitionsResponseTopic) -> Topic:
    partitions = sorted(map(partition_from, response.partitions), key=lambda partition: partition.index)
    error = error_code(response.error_code)
    return Topic(response.name or "", Uuid(bytes(response.topic_id)), response.is_internal, tuple(partitions), error)


def partition_from(response: DescribeTopicPartitionsResponsePartition) -> Partition:
    return Partition(
        response.partition_index,
        response.leader_id,
        response.leader_epoch,
        tuple(response.replica_nodes),
        tuple(response.isr_nodes),
        tuple(response.offline_replicas),
        error_code(response.error_code),
        None if response.eligible_leader_replicas is None else tuple(response.eligible_leader_replicas),
    )


def check(code: int, what: str, detail: str | None) -> None:
    """Raise the typed error for a code other than 0."""
    if code != ErrorCode.NONE:
        raise response_error(code, what, detail)
