"""Queries that any broker answers: topics with their partitions, configurations, brokers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from odradek.base.errors import ErrorCode, error_code
from odradek.base.uuids import Uuid
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.topic_metadata import Broker, Partition, Topic, topic_of
from odradek.client.connection.broker_connection import Connection
from odradek.client.connection.client_errors import Unsupported, answer_error
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
        answer = connection.call(request, DescribeConfigsResponse)
        for result in answer.results:
            check(result.error_code, f"topic {result.resource_name}", result.error_message)
        return {result.resource_name: [entry_of(config) for config in result.configs] for result in answer.results}

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
            answer = connection.call(request, DescribeClusterResponse)
        except Unsupported:
            return from_metadata(connection)
        check(answer.error_code, "cluster", answer.error_message)
        brokers = tuple(Broker(each.broker_id, each.host, each.port, each.rack) for each in answer.brokers)
        return ClusterDescription(answer.cluster_id, answer.controller_id, brokers)

    return cluster.call_any(send_describe_cluster)


def from_metadata(connection: Connection) -> ClusterDescription:
    answer = connection.call(MetadataRequest(topics=[], allow_auto_topic_creation=False), MetadataResponse)
    brokers = tuple(Broker(each.node_id, each.host, each.port, each.rack) for each in answer.brokers)
    return ClusterDescription(answer.cluster_id, answer.controller_id, brokers)


def describe_topics(cluster: Cluster, names: Sequence[str]) -> list[Topic]:
    """Return the current state of these topics, in the order of `names`, or raise UnknownTopic.

    The request is DescribeTopicPartitions (KIP-966, Kafka 3.8), which includes eligible leader replicas, or Metadata on
    older brokers.
    """

    def send_describe_topics(connection: Connection) -> dict[str, Topic]:
        try:
            return by_pages(connection, names)
        except Unsupported:
            wanted = [MetadataRequestTopic(name=name) for name in names]
            answer = connection.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), MetadataResponse)
            return {topic.name: topic for topic in map(topic_of, answer.topics)}

    topics = cluster.call_any(send_describe_topics) if names else {}
    for name in names:
        check(topics[name].error if name in topics else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}", None)
    return [topics[name] for name in names]


def by_pages(connection: Connection, names: Sequence[str]) -> dict[str, Topic]:
    """Request topics page by page.

    A page holds about 2,000 partitions. It may end within a topic; the next page continues there.
    """
    topics: dict[str, Topic] = {}
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in sorted(set(names))])
    while True:
        answer = connection.call(request, DescribeTopicPartitionsResponse)
        for found in answer.topics:
            topic = described(found)
            before = topics.get(topic.name)
            topics[topic.name] = topic if before is None else joined(before, topic)
        if answer.next_cursor is None:
            return topics
        rest = [topic for topic in request.topics if topic.name >= answer.next_cursor.topic_name]
        request = DescribeTopicPartitionsRequest(topics=rest, cursor=answer.next_cursor)


def joined(before: Topic, after: Topic) -> Topic:
    return Topic(before.name, before.id, before.is_internal, before.partitions + after.partitions, before.error)


def described(answer: DescribeTopicPartitionsResponseTopic) -> Topic:
    partitions = sorted(map(described_partition, answer.partitions), key=lambda partition: partition.index)
    error = error_code(answer.error_code)
    return Topic(answer.name or "", Uuid(bytes(answer.topic_id)), answer.is_internal, tuple(partitions), error)


def described_partition(answer: DescribeTopicPartitionsResponsePartition) -> Partition:
    return Partition(
        answer.partition_index,
        answer.leader_id,
        answer.leader_epoch,
        tuple(answer.replica_nodes),
        tuple(answer.isr_nodes),
        tuple(answer.offline_replicas),
        error_code(answer.error_code),
        None if answer.eligible_leader_replicas is None else tuple(answer.eligible_leader_replicas),
    )


def check(code: int, what: str, detail: str | None) -> None:
    """Raise the typed error for a code other than 0."""
    if code != ErrorCode.NONE:
        raise answer_error(code, what, detail)
