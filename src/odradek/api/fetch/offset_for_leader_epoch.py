"""OffsetForLeaderEpoch, versions 0 to 4.

Returns the end offset of a leader epoch in the log of a partition's leader. Followers send it (KIP-101), and so do
consumers whose leader has changed (KIP-320): records that they read beyond that offset are not in the leader's log. The
result is the largest known epoch that is not above the requested one, with its end offset. Both are -1 if the requested
epoch is newer than all known epochs. The latest epoch ends at the log end offset, above the high watermark, for every
client.

- v1: the response contains the epoch (KIP-279).
- v2: the client's leader epoch is checked (KIP-320).
- v3: replica_id, which has no effect, as in Kafka.
- v4: flexible.

Kafka 4 supports versions 2 to 4. Brokers of Kafka 0.11 to 2.0 send older versions without a prior ApiVersions request.
"""

from __future__ import annotations

from odradek.api.request.call import Call
from odradek.api.request.outcome import PAUSE, Slices
from odradek.api.request.sliced_response import CHEAP, Parts, whole
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import LeaderEpoch, TopicName
from odradek.core.kernel.access import Operation, ResourceType
from odradek.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from odradek.wire.schema.schema import maker

_end_offset = maker(EpochEndOffset)


def handle(call: Call, body: OffsetForLeaderEpochRequest) -> Slices:
    """Answer each topic; like Apache Kafka, put topics that the client may not describe last."""
    is_broker = call.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    topics: list[OffsetForLeaderTopicResult] = []
    denied: list[OffsetForLeaderTopic] = []
    for topic in body.topics:
        if is_broker or call.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic):
            topics.append((yield from _topic(call, topic)))
        else:
            denied.append(topic)
        yield PAUSE
    call.free_later(denied)
    for topic in denied:
        topics.append((yield from _refused_topic(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
        yield PAUSE
    return OffsetForLeaderEpochResponse(topics=topics)


def refuse(call: Call, body: OffsetForLeaderEpochRequest, code: ErrorCode) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(topics=[whole(_refused_topic(topic, code)) for topic in body.topics])


def _topic(call: Call, topic: OffsetForLeaderTopic) -> Parts[OffsetForLeaderTopicResult]:
    name = TopicName(topic.topic)
    partitions = []
    for part in topic.partitions:
        partitions.append(_partition(call, name, part))
        yield
    return OffsetForLeaderTopicResult(topic=name, partitions=partitions)


def _partition(call: Call, topic: TopicName, part: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = call.broker.replica(topic, part.partition)
        partition.check_leader(part.current_leader_epoch)
        epoch, end = partition.end_of_epoch(LeaderEpoch(part.leader_epoch))
    except Refused as refused:
        return _end_offset(partition=part.partition, error_code=refused.code)
    return _end_offset(partition=part.partition, error_code=ErrorCode.NONE, leader_epoch=epoch, end_offset=end)


def _refused_topic(topic: OffsetForLeaderTopic, code: ErrorCode) -> Parts[OffsetForLeaderTopicResult]:
    partitions = []
    for part in topic.partitions:
        partitions.append(_end_offset(partition=part.partition, error_code=code))
        if not len(partitions) % CHEAP:
            yield
    return OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions)
