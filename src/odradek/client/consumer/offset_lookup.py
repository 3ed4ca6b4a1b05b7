"""ListOffsets: where a partition starts, where it ends, and which offset a time has; for many partitions at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.leader_requests import LEADERLESS_MS_MAX, ask_leaders, sorted_out
from odradek.client.connection.broker_connection import Connection, Pending
from odradek.client.connection.client_errors import ClientError, Unsupported, answer_error
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1  # The end: the high watermark, or with read_committed the last stable offset.
EARLIEST = -2
MAX_TIMESTAMP = -3  # The record with the largest timestamp (KIP-734, from version 7).
VERSIONS_FROM = {MAX_TIMESTAMP: 7}


class ListedOffset(NamedTuple):
    """offset is -1 when no record has the time asked for, or a later one; timestamp is -1 where it was not asked."""

    offset: int
    timestamp: int
    leader_epoch: int


def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    *,
    timeout_ms: int | None = None,
    failures: dict[TopicPartition, ClientError] | None = None,
) -> dict[TopicPartition, ListedOffset]:
    """Returns the offset of each partition at EARLIEST, LATEST, MAX_TIMESTAMP or a time.

    A time is in milliseconds, its offset that of the first record at or after it.  One request goes to each leader, all
    before the first answer is read; a retriable error is retried until timeout_ms (default api_timeout_ms).

    `failures` takes the partitions that have no outcome by then, and earlier those that nobody leads; without it the
    first error is raised.
    """

    def send(connection: Connection, partitions: list[TopicPartition]) -> Pending[ListOffsetsResponse]:
        return _send(cluster, connection, partitions, wanted)

    is_strict = failures is None
    leaderless_ms = None if is_strict else LEADERLESS_MS_MAX
    outcomes = ask_leaders(
        cluster, wanted, send, _taken, timeout_ms=timeout_ms, leaderless_ms=leaderless_ms, is_strict=is_strict
    )
    return sorted_out(outcomes, failures)


def _send(
    cluster: Cluster, connection: Connection, partitions: list[TopicPartition], wanted: Mapping[TopicPartition, int]
) -> Pending[ListOffsetsResponse]:
    topics: dict[str, ListOffsetsTopic] = {}
    for partition in partitions:
        topic = topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic, partitions=[]))
        asked = ListOffsetsPartition(partition_index=partition.partition, timestamp=wanted[partition])
        topic.partitions.append(asked)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=cluster.config.isolation_level,
        topics=list(topics.values()),
        timeout_ms=cluster.config.request_timeout_ms,
    )
    version = connection.version(ListOffsetsRequest)
    for timestamp, version_from in VERSIONS_FROM.items():
        if version < version_from and timestamp in wanted.values():
            raise Unsupported(f"{connection.where} cannot look up the largest timestamp: it is older than Kafka 3.0")
    return connection.send(request, ListOffsetsResponse, version=version)


def _taken(answer: ListOffsetsResponse) -> Iterator[tuple[TopicPartition, ListedOffset | ClientError]]:
    for topic in answer.topics:
        for part in topic.partitions:
            partition = TopicPartition(TopicName(topic.name), part.partition_index)
            if part.error_code == ErrorCode.NONE:
                yield partition, ListedOffset(part.offset, part.timestamp, part.leader_epoch)
            else:
                yield partition, answer_error(part.error_code, str(partition))
