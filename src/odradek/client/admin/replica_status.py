"""Replica information of a cluster: required in-sync replicas, and the log end offset of each replica."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from odradek.base.errors import ErrorCode
from odradek.base.units import Offset, TopicName, TopicPartition
from odradek.client.cluster.describe import TOPIC_RESOURCE, entry_of
from odradek.client.connection.broker_connection import Connection
from odradek.client.consumer.offset_lookup import LATEST
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

MIN_INSYNC_REPLICAS = "min.insync.replicas"
DEBUGGING = -2  # The replica id for querying any replica, including a follower, for its own log end offset.
TOPICS_AT_ONCE = 500
PARTITIONS_AT_ONCE = 5_000

T = TypeVar("T")


def topic_overrides(connection: Connection, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the settings of the topics themselves, or raise KafkaUnavailable, NotKafka or Unsupported."""
    found: dict[str, dict[str, str]] = {}
    for names in _batched(list(topics), TOPICS_AT_ONCE):
        resources = [
            DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
            for name in names
        ]
        request = DescribeConfigsRequest(resources=resources)
        for result in connection.call(request, DescribeConfigsResponse).results:
            entries = map(entry_of, result.configs)
            found[result.resource_name] = {each.name: each.value or "" for each in entries if each.is_set_on_topic}
    return found


def min_insync_replicas(
    connection: Connection, topics: Iterable[str], *, timeout_ms: int | None = None
) -> dict[str, int]:
    """Return min.insync.replicas of topics; topics that may not be described are omitted.

    Raise KafkaUnavailable, NotKafka, Unsupported.
    """
    found: dict[str, int] = {}
    for names in _batched(list(topics), TOPICS_AT_ONCE):
        resources = [
            DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=[MIN_INSYNC_REPLICAS]
            )
            for name in names
        ]
        request = DescribeConfigsRequest(resources=resources)
        for result in connection.call(request, DescribeConfigsResponse, timeout_ms=timeout_ms).results:
            for config in result.configs:
                if config.name == MIN_INSYNC_REPLICAS and (config.value or "").isdecimal():
                    found[result.resource_name] = int(config.value or "")
    return found


def log_ends(
    connection: Connection, partitions: Sequence[TopicPartition], *, timeout_ms: int | None = None
) -> dict[TopicPartition, Offset]:
    """Return the log end offsets of these partitions on this broker, as leader or follower.

    The offsets may be uncommitted. Partitions without a known offset are omitted. Raise KafkaUnavailable, NotKafka,
    Unsupported.
    """
    found: dict[TopicPartition, Offset] = {}
    for batch in _batched(partitions, PARTITIONS_AT_ONCE):
        request = ListOffsetsRequest(replica_id=DEBUGGING, isolation_level=0, topics=_by_topic(batch))
        found.update(_offsets_of(connection.call(request, ListOffsetsResponse, timeout_ms=timeout_ms)))
    return found


def _batched(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[at : at + size] for at in range(0, len(items), size))


def _by_topic(partitions: Iterable[TopicPartition]) -> list[ListOffsetsTopic]:
    topics: dict[str, ListOffsetsTopic] = {}
    for each in partitions:
        topic = topics.setdefault(each.topic, ListOffsetsTopic(name=each.topic, partitions=[]))
        topic.partitions.append(ListOffsetsPartition(partition_index=each.partition, timestamp=LATEST))
    return list(topics.values())


def _offsets_of(response: ListOffsetsResponse) -> Iterator[tuple[TopicPartition, Offset]]:
    for topic in response.topics:
        for part in topic.partitions:
            if part.error_code == ErrorCode.NONE and part.offset >= 0:
                yield TopicPartition(TopicName(topic.name), part.partition_index), Offset(part.offset)
