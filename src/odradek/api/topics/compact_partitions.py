"""CompactPartitions, version 0.

Compacts logs immediately. The response is sent when the compaction has ended, with the space and the records that it
removed. This API is Odradek's own: ApiVersions does not advertise it, and Kafka closes the connection on its API key.

- The active segment is rolled unless it is empty, and the log is compacted up to there, whatever its dirty ratio is.
- Records younger than min.compaction.lag.ms, or after the start of an open transaction, are kept. The response says
  which of the two limits applied.
- If the compaction takes longer than timeout_ms, it continues after the response.
- A repeated request for a partition that is being compacted, and was written since, causes one more compaction. All
  requests that arrive in the meantime share it.
- The client needs the right to alter the topic's configuration, because that right allows the same by
  min.cleanable.dirty.ratio.
"""

from __future__ import annotations

from typing import TypeAlias

from odradek.api.request.call import Call
from odradek.api.request.outcome import PAUSE, Slices
from odradek.api.request.sliced_response import CHEAP, Parts, pauses, settled
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicName
from odradek.core.broker.broker import Broker
from odradek.core.cleaner.compaction_request import AllCompacted, Compaction, CompactionResult, check_is_compacted
from odradek.core.kernel.access import Operation, ResourceType
from odradek.core.kernel.moment import Moment
from odradek.core.partition.partition import Partition
from odradek.wire.messages.compact_partitions import (
    CompactPartitionsPartitionResult,
    CompactPartitionsRequest,
    CompactPartitionsResponse,
    CompactPartitionsTopicResult,
)

ROLL_PARTS = 25  # Cost of rolling a log, in parts: it creates four files.

Requested: TypeAlias = dict[str, dict[int, Compaction | Refused]]


def handle(call: Call, body: CompactPartitionsRequest) -> Slices:
    requested: Requested = {}
    compactions: list[Compaction] = []
    call.free_later((requested, compactions))
    count = 0
    for topic in body.topics:
        is_allowed = call.may(Operation.ALTER_CONFIGS, ResourceType.TOPIC, topic.name)
        by_index = requested.setdefault(topic.name, {})
        for index in topic.partitions:
            if index not in by_index:
                compaction = by_index[index] = _request_compaction(
                    call, TopicName(topic.name), index, is_allowed=is_allowed
                )
                if isinstance(compaction, Compaction):
                    compactions.append(compaction)
                    yield from pauses(ROLL_PARTS)
            count += 1
            yield PAUSE
        yield PAUSE
    waiting = AllCompacted(compactions)
    return (yield from settled(waiting, call.now, count, lambda: _response(requested), max(body.timeout_ms, 0)))


def refuse(call: Call, body: CompactPartitionsRequest, code: ErrorCode) -> CompactPartitionsResponse:
    topics = [
        CompactPartitionsTopicResult(
            name=topic.name, partitions=[_result(index, Refused(code)) for index in topic.partitions]
        )
        for topic in body.topics
    ]
    return CompactPartitionsResponse(throttle_time_ms=0, topics=topics)


def _request_compaction(call: Call, topic: TopicName, index: int, *, is_allowed: bool) -> Compaction | Refused:
    if not is_allowed:
        return Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    try:
        partition = call.broker.replica(topic, index)
        # Followers compact on their own; the response is about the leader's log.
        if partition.is_online and partition.leading is None:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    except Refused as refused:
        return Refused(refused.code)
    return _start_compaction(call.broker, partition, call.now)


def _start_compaction(broker: Broker, partition: Partition, now: Moment) -> Compaction | Refused:
    try:
        check_is_compacted(partition)
    except Refused as refused:
        return Refused(refused.code, refused.detail)
    if not broker.configs.bool("log.cleaner.enable"):
        text = f"compaction is disabled on broker {broker.id}: start it with log.cleaner.enable=true"
        return Refused(ErrorCode.INVALID_REQUEST, text)
    compaction = broker.cleaner.request_compaction(partition)
    broker.cleaner.advance_compactions(now)
    return compaction


def _response(requested: Requested) -> Parts[CompactPartitionsResponse]:
    topics = []
    for name, by_index in requested.items():
        results = []
        for index, compaction in by_index.items():
            results.append(_result(index, compaction.answer if isinstance(compaction, Compaction) else compaction))
            if not len(results) % CHEAP:
                yield
        topics.append(CompactPartitionsTopicResult(name=name, partitions=results))
        yield
    return CompactPartitionsResponse(throttle_time_ms=0, topics=topics)


def _result(index: int, result: CompactionResult | Refused) -> CompactPartitionsPartitionResult:
    if isinstance(result, Refused):
        return CompactPartitionsPartitionResult(
            partition_index=index, error_code=result.code, error_message=result.detail or None
        )
    return CompactPartitionsPartitionResult(
        partition_index=index,
        bytes_before=result.bytes_before,
        bytes_after=result.bytes_after,
        removed_records=result.removed_records,
        compacted_to=result.compacted_to,
        held_back_by=result.held_back_by,
        duration_ms=result.duration_ms,
    )
