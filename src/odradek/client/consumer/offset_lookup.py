"""ListOffsets: the start offset, end offset or offset by timestamp of many partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.leader_requests import LEADERLESS_MS_MAX, call_leaders, collect_failures
from odradek.client.connection.broker_connection import Connection, Pending
from odradek.client.connection.client_errors import ClientError, Unsupported, response_error
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1  # The high watermark, or the last stable offset with read_committed.
EARLIEST = -2
MAX_TIMESTAMP = -3  # The record with the largest timestamp (KIP-734, from version 7).
VERSIONS_FROM = {MAX_TIMESTAMP: 7}


class ListedOffset(NamedTuple):
    """A listed offset.

    offset is -1 if no record has the requested or a later timestamp; timestamp is -1 if none was requested.
    """

    offset: int
    timestamp: int
    leader_epoch: int


def list_offsets(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    *,
    timeout_ms: int | None = None,
    failures: dict[TopicPartition, ClientError] | None = None,
) -> dict[TopicPartition, ListedOffset]:
    """Return the offset of each partition at EARLIEST, LATEST, MAX_TIMESTAMP or a timestamp.

    A timestamp is in milliseconds; the result is the offset of the first record at or after it. One request goes to
    each leader, all before the first answer is read. Retriable errors are retried until timeout_ms (default
    api_timeout_ms).

    `failures` collects the partitions without an outcome by then, and sooner those without a leader; without it the
    first error is raised.
    """

    def send(connection: Connection, partitions: list[TopicPartition]) -> Pending[ListOffsetsResponse]:
        return _send(cluster, connection, partitions, timestamps)

    is_strict = failures is None
    leaderless_ms = None if is_strict else LEADERLESS_MS_MAX
    outcomes = call_leaders(
        cluster, timestamps, send, _outcomes, timeout_ms=timeout_ms, leaderless_ms=leaderless_ms, is_strict=is_strict
    )
    return collect_failures(outcomes, failures)


def _send(
    cluster: Cluster, connection: Connection, partitions: list[TopicPartition], timestamps: Mapping[TopicPartition, int]
) -> Pending[ListOffsetsResponse]:
    topics: dict[str, ListOffsetsTopic] = {}
    for partition in partitions:
        topic = topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic, partitions=[]))
        request_partition = ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamps[partition])
        topic.partitions.append(request_partition)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=cluster.config.isolation_level,
        topics=list(topics.values()),
        timeout_ms=cluster.config.request_timeout_ms,
    )
    version = connection.version(ListOffsetsRequest)
    for timestamp, version_from in VERSIONS_FROM.items():
        if version < version_from and timestamp in timestamps.values():
            raise Unsupported(
                f"{connection.where} does not support lookup of the maximum timestamp: it is older than Kafka 3.0"
            )
    return connection.send(request, ListOffsetsResponse, version=version)


def _outcomes(response: ListOffsetsResponse) -> Iterator[tuple[TopicPartition, ListedOffset | ClientError]]:
    for topic in response.topics:
        for part in topic.partitions:
            partition = TopicPartition(TopicName(topic.name), part.partition_index)
            if part.error_code == ErrorCode.NONE:
                yield partition, ListedOffset(part.offset, part.timestamp, part.leader_epoch)
            else:
                yield partition, response_error(part.error_code, str(partition))
