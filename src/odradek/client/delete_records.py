"""DeleteRecords: has the leaders of partitions forget all records below an offset (KIP-107)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.client.cluster import Cluster
from odradek.client.errors import ClientError, answer_error
from odradek.client.offsets import group_by_leader
from odradek.client.retry import Patience, is_retriable
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

Outcomes: TypeAlias = dict[TopicPartition, int | ClientError]


def delete_records(cluster: Cluster, before: Mapping[TopicPartition, int]) -> Outcomes:
    """Deletes the records below an offset of each partition; returns where each begins now, or why it does not.

    A retriable error is retried until api_timeout_ms: to ask twice does no harm.
    """
    outcomes: Outcomes = {}
    left = dict(before)
    patience = Patience(cluster.config)
    while left:
        found = _ask_leaders(cluster, left)
        outcomes |= found
        failures = {each: one for each, one in found.items() if isinstance(one, ClientError) and is_retriable(one)}
        left = {each: before[each] for each in failures}
        if failures:
            cluster.forget(failures)
            try:
                patience.again(next(iter(failures.values())))
            except ClientError:
                break
    return {each: outcomes[each] for each in before}


def _ask_leaders(cluster: Cluster, before: Mapping[TopicPartition, int]) -> Outcomes:
    try:
        cluster.learn(before)
    except ClientError as error:
        return dict.fromkeys(before, error)
    failures: dict[TopicPartition, ClientError] = {}
    groups = group_by_leader(cluster, before, failures)
    outcomes: Outcomes = dict(failures)
    for leader, partitions in groups.items():
        unanswered = answer_error(ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {leader}", "left out of the answer")
        outcomes |= dict.fromkeys(partitions, unanswered)
        try:
            request = _request({each: before[each] for each in partitions}, cluster.config.request_timeout_ms)
            outcomes |= _taken(cluster.connection(leader).call(request, DeleteRecordsResponse))
        except ClientError as error:
            outcomes |= dict.fromkeys(partitions, error)
    return outcomes


def _request(before: Mapping[TopicPartition, int], timeout_ms: int) -> DeleteRecordsRequest:
    topics: dict[str, DeleteRecordsTopic] = {}
    for each, offset in before.items():
        topic = topics.setdefault(each.topic, DeleteRecordsTopic(name=each.topic, partitions=[]))
        topic.partitions.append(DeleteRecordsPartition(partition_index=each.partition, offset=offset))
    return DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=timeout_ms)


def _taken(answer: DeleteRecordsResponse) -> Outcomes:
    outcomes: Outcomes = {}
    for topic in answer.topics:
        for part in topic.partitions:
            each = TopicPartition(TopicName(topic.name), part.partition_index)
            if part.error_code == ErrorCode.NONE:
                outcomes[each] = part.low_watermark
            else:
                outcomes[each] = answer_error(part.error_code, str(each))
    return outcomes
