"""DeleteRecords, versions 0 to 2: raises the log start offset of partitions (KIP-107).

Offset -1 is the high watermark.  A partition that is named twice counts as its last naming says, as in Kafka.
v1: throttled after the answer (KIP-219).  v2: flexible.

Order: a start is on the disk before the log begins there, and before anybody is told; Kafka's is written once a minute,
and after kill -9 the deleted records are there again.  Segments below it go with the next retention.  The answer waits
for followers that live: the low watermark is the least of their log start offsets.
Differs from Kafka: the timeout is at least 5 s, as it is for the disk, too.
"""

from __future__ import annotations

from typing import TypeAlias

from odradek.api.request.call import Call
from odradek.api.request.outcome import PAUSE, Slices
from odradek.api.request.sliced_answer import CHEAP, Parts, settled
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
    asked: dict[str, dict[int, int]] = {}
    count = 0
    for topic in body.topics:
        for part in topic.partitions:
            asked.setdefault(topic.name, {})[part.partition_index] = part.offset
            count += 1
            if not count % CHEAP:
                yield PAUSE
    waiting = AllAdvanced()
    outcomes: Outcomes = {}
    call.leave((asked, waiting, outcomes))
    for name, offsets in asked.items():
        outcomes[name] = yield from _begin(call, TopicName(name), offsets, waiting)
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


def _begin(
    call: Call, topic: TopicName, offsets: dict[int, int], waiting: AllAdvanced
) -> Parts[dict[int, Advance | Refused]]:
    is_allowed = call.may(Operation.DELETE, ResourceType.TOPIC, topic)
    begun: dict[int, Advance | Refused] = {}
    for index, offset in offsets.items():
        try:
            if not is_allowed:
                raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            partition = call.broker.leader(topic, index).partition
            begun[index] = call.broker.log_starts.ask(partition, _start(partition, offset), waiting)
        except Refused as refused:
            begun[index] = Refused(refused.code)
        yield
    return begun


def _start(partition: Partition, offset: int) -> Offset:
    """Returns where the log is to begin.  Raises Refused."""
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
    for name, begun in outcomes.items():
        results = []
        for index, outcome in begun.items():
            results.append(_told(call, TopicName(name), index, outcome))
            if not len(results) % CHEAP:
                yield
        topics.append(DeleteRecordsTopicResult(name=name, partitions=results))
        yield
    return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)


def _told(call: Call, topic: TopicName, index: int, outcome: Advance | Refused) -> DeleteRecordsPartitionResult:
    """Returns one partition's answer; meanwhile its topic may have been made anew, or another broker have led it."""
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
