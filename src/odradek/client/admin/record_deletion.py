"""DeleteRecords: deletion of all records below an offset by the partition leaders (KIP-107)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.leader_requests import call_leaders
from odradek.client.connection.broker_connection import Connection, Pending
from odradek.client.connection.client_errors import ClientError, response_error
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

Outcomes: TypeAlias = dict[TopicPartition, int | ClientError]


def delete_records(cluster: Cluster, before: Mapping[TopicPartition, int]) -> Outcomes:
    """Delete the records below an offset in each partition, and return the log start offsets or errors.

    Retriable errors are retried until api_timeout_ms; repeating the request is harmless.
    """

    def send(connection: Connection, partitions: list[TopicPartition]) -> Pending[DeleteRecordsResponse]:
        request = _request({each: before[each] for each in partitions}, cluster.config.request_timeout_ms)
        return connection.send(request, DeleteRecordsResponse)

    return call_leaders(cluster, before, send, _outcomes)


def _request(before: Mapping[TopicPartition, int], timeout_ms: int) -> DeleteRecordsRequest:
    topics: dict[str, DeleteRecordsTopic] = {}
    for each, offset in before.items():
        topic = topics.setdefault(each.topic, DeleteRecordsTopic(name=each.topic, partitions=[]))
        topic.partitions.append(DeleteRecordsPartition(partition_index=each.partition, offset=offset))
    return DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=timeout_ms)


def _outcomes(response: DeleteRecordsResponse) -> Iterator[tuple[TopicPartition, int | ClientError]]:
    for topic in response.topics:
        for part in topic.partitions:
            each = TopicPartition(TopicName(topic.name), part.partition_index)
            failed = part.error_code != ErrorCode.NONE
            yield each, response_error(part.error_code, str(each)) if failed else part.low_watermark
