"""CompactPartitions: immediate compaction of logs, with the space reclaimed.

This API belongs to Odradek, and ApiVersions does not list it. Each broker therefore first receives an empty request; a
broker that does not know the API closes the connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from odradek.base.errors import ErrorCode
from odradek.base.units import INT32_MAX, TopicName, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.leader_requests import call_leaders
from odradek.client.connection.broker_connection import Connection, Pending
from odradek.client.connection.client_errors import ClientError, ConnectionLost, Unsupported, response_error
from odradek.wire.messages.compact_partitions import (
    CompactPartitionsPartitionResult,
    CompactPartitionsRequest,
    CompactPartitionsResponse,
    CompactPartitionsTopic,
)

VERSION = 0


class Compacted(NamedTuple):
    """The result of compacting one log; sizes are bytes."""

    bytes_before: int
    bytes_after: int
    removed_records: int
    compacted_to: int
    held_back_by: str | None  # The reason that compaction stopped before the end of the log, if it did.
    duration_ms: int


class NotCompacted(ClientError):
    """Error of a log that could not be compacted, with the broker's message."""


Outcomes: TypeAlias = dict[TopicPartition, Compacted | ClientError]


def compact_partitions(cluster: Cluster, partitions: Iterable[TopicPartition], timeout_ms: int) -> Outcomes:
    """Compact logs up to their ends and return the result or error of each.

    The error is Unsupported for a broker that is not Odradek, and KafkaUnavailable for a broker that is lost during
    compaction.
    """
    timeout_ms = min(timeout_ms, INT32_MAX - cluster.config.request_timeout_ms)

    def send(connection: Connection, led: list[TopicPartition]) -> Pending[CompactPartitionsResponse]:
        _check_support(connection)
        return _send(connection, _request(led, timeout_ms), timeout_ms + cluster.config.request_timeout_ms)

    return call_leaders(cluster, partitions, send, _outcomes, timeout_ms=0)


def _check_support(connection: Connection) -> None:
    try:
        _send(connection, CompactPartitionsRequest(topics=[], timeout_ms=0)).result()
    except ConnectionLost:
        text = f"{connection.where} does not support topic compaction: it is not an Odradek broker, or too old"
        raise Unsupported(text) from None


def _send(
    connection: Connection, request: CompactPartitionsRequest, timeout_ms: int | None = None
) -> Pending[CompactPartitionsResponse]:
    return connection.send(request, CompactPartitionsResponse, version=VERSION, timeout_ms=timeout_ms)


def _request(partitions: Iterable[TopicPartition], timeout_ms: int) -> CompactPartitionsRequest:
    topics: dict[str, CompactPartitionsTopic] = {}
    for each in partitions:
        topic = topics.setdefault(each.topic, CompactPartitionsTopic(name=each.topic, partitions=[]))
        topic.partitions.append(each.partition)
    return CompactPartitionsRequest(topics=list(topics.values()), timeout_ms=timeout_ms)


def _outcomes(response: CompactPartitionsResponse) -> Iterator[tuple[TopicPartition, Compacted | ClientError]]:
    for topic in response.topics:
        for part in topic.partitions:
            name = TopicPartition(TopicName(topic.name), part.partition_index)
            yield name, _outcome(name, part)


def _outcome(name: TopicPartition, part: CompactPartitionsPartitionResult) -> Compacted | ClientError:
    if part.error_code != ErrorCode.NONE:
        return NotCompacted(part.error_message) if part.error_message else response_error(part.error_code, str(name))
    return Compacted(
        part.bytes_before,
        part.bytes_after,
        part.removed_records,
        part.compacted_to,
        part.held_back_by,
        part.duration_ms,
    )
