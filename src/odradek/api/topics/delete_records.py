"""DeleteRecords, versions 0 to 2.

Advances the log start offset of partitions, so that earlier records are deleted (KIP-107). Offset -1 means the high
watermark. If a partition is named twice, the last offset applies, as in Kafka. The response waits for live followers:
its low watermark is the lowest log start offset of these replicas.

- v1: throttling applies after the response (KIP-219).
- v2: flexible.

The new log start offset is synced to disk before it takes effect and before the response is sent. Kafka writes it once
a minute, so deleted records reappear after kill -9. The next retention run deletes the segments below the log start
offset.

Difference from Apache Kafka: the timeout is at least 5 s, because it also covers the disk.
"""

from __future__ import annotations

from typing import TypeAlias

from odradek.api.request.call import Call
from odradek.api.request.outcome import PAUSE, Slices
from odradek.api.request.sliced_response import CHEAP, Parts, settled
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_OFFSET, Offset, TopicName
from odradek.core.coordinators.durable import WRITE_TIMEOUT_MS
from odradek.core.kernel.access import Operation, ResourceType
from odradek.core.kernel.cluster_view import INTERNAL_TOPICS
from odradek.core.partition.log_starts import Advance, AllAdvanced
from odradek.core.partition.partition import Partition
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

TO_HIGH_WATERMARK = -1

Outcomes: TypeAlias = dict[str, dict[int, Advance | Refused]]


def handle(call: Call, body: DeleteRecordsRequest) -> Slices:
    requested: dict[str, dict[int, int]] = {}
    count = 0
    for topic in body.topics:
        for part in topic.partitions:
            requested.setdefault(topic.name, {})[part.partition_index] = part.offset
            count += 1
            if not count % CHEAP:
                yield PAUSE
    waiting = AllAdvanced()
    outcomes: Outcomes = {}
    call.free_later((requested, waiting, outcomes))
    for name, offsets in requested.items():
        outcomes[name] = yield from _request_advances(call, TopicName(name), offsets, waiting)
    timeout_ms = max(body.timeout_ms, WRITE_TIMEOUT_MS)
    return (yield from settled(waiting, call.now, count, lambda: _response(call, outcomes), timeout_ms))


def refuse(call: Call, body: DeleteRecordsRequest, code: ErrorCode) -> DeleteRecordsResponse:
    topics = [
        DeleteRecordsTopicResult(
            name=topic.name, partitions=[_result(part.partition_index, code) for part in topic.partitions]
        )
        for topic in body.topics
    ]
    return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)


def _request_advances(
    call: Call, topic: TopicName, offsets: dict[int, int], waiting: AllAdvanced
) -> Parts[dict[int, Advance | Refused]]:
    is_allowed = call.may(Operation.DELETE, ResourceType.TOPIC, topic)
    advances: dict[int, Advance | Refused] = {}
    for index, offset in offsets.items():
        try:
            if not is_allowed:
                raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            partition = call.broker.replica(topic, index)
            partition.leader()  # Raises if another broker leads.
            advances[index] = call.broker.log_starts.request_advance(partition, _start(partition, offset), waiting)
        except Refused as refused:
            advances[index] = Refused(refused.code)
        yield
    return advances


def _start(partition: Partition, offset: int) -> Offset:
    """Return the new log start offset. Raise Refused."""
    if partition.topic_partition.topic in INTERNAL_TOPICS:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION)
    config, high_watermark = partition.log.config, partition.positions.high_watermark
    if config.cleanup_compact and not config.cleanup_delete:
        raise Refused(ErrorCode.POLICY_VIOLATION)
    if offset == TO_HIGH_WATERMARK:
        return high_watermark
    if not 0 <= offset <= high_watermark:
        raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE)
    return Offset(offset)


def _response(call: Call, outcomes: Outcomes) -> Parts[DeleteRecordsResponse]:
    topics = []
    for name, advances in outcomes.items():
        results = []
        for index, outcome in advances.items():
            results.append(_partition_result(call, TopicName(name), index, outcome))
            if not len(results) % CHEAP:
                yield
        topics.append(DeleteRecordsTopicResult(name=name, partitions=results))
        yield
    return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)


def _partition_result(
    call: Call, topic: TopicName, index: int, outcome: Advance | Refused
) -> DeleteRecordsPartitionResult:
    """Return one partition's result.

    During the wait, its topic may have been recreated, or another broker may have led the partition.
    """
    if isinstance(outcome, Refused):
        return _result(index, outcome.code)
    try:
        outcome.check()
        leading = call.broker.leader(topic, index)
        if leading is not outcome.leading:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return _result(index, ErrorCode.NONE, leading.low_watermark)
    except Refused as refused:
        return _result(index, refused.code)


def _result(index: int, code: ErrorCode, low_watermark: Offset = NO_OFFSET) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark, error_code=code)
