"""DescribeTopicPartitions, version 0.

Returns topics in order of their names, one page at a time (KIP-966). A page ends at the partition limit of the broker
or of the client, whichever is smaller. The cursor names the start of the next page.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from odradek.api.request import authorized_operations as authorized
from odradek.api.request.call import Call
from odradek.api.request.sliced_response import Parts, in_order
from odradek.api.topics.metadata import leader_error, offline
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_BROKER, TopicName
from odradek.base.uuids import ZERO_UUID
from odradek.core.kernel import topic_names
from odradek.core.kernel.access import Operation, ResourceType
from odradek.core.kernel.cluster_view import PartitionInfo, TopicInfo
from odradek.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


def handle(call: Call, body: DescribeTopicPartitionsRequest) -> Parts[DescribeTopicPartitionsResponse]:
    return _answer(call, body)


def _answer(call: Call, body: DescribeTopicPartitionsRequest) -> Parts[DescribeTopicPartitionsResponse]:
    first, from_partition = _start(body)
    view = call.broker.view
    requested: Iterable[str] = (topic.name for topic in body.topics) if body.topics else list(view.topics)
    names = yield from in_order(requested)
    call.free_later(names)
    positions = range(bisect_left(names, first), len(names))
    limit = min(body.response_partition_limit, call.broker.configs.int("max.request.partition.size.limit"))
    room = max(limit, 1)  # With no room, the client would not make progress.
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    hidden: list[DescribeTopicPartitionsResponseTopic] = []  # Named topics that the client may not describe.
    for position in positions if body.topics else ():
        yield
        if not _may_describe(call, names[position]):
            hidden.append(_refused(names[position], ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    for position in positions:
        yield
        name = names[position]
        if not _may_describe(call, name):
            continue
        if room <= 0:
            cursor = Cursor(topic_name=name, partition_index=0)
            return _page(topics, hidden, cursor)
        topic = view.topics.get(TopicName(name))
        if topic is None:
            topics.append(_unknown(call, name))
            continue
        start = from_partition if name == first else 0
        topics.append(_describe(call, topic, start, start + room))
        room -= len(topics[-1].partitions)
        if start + len(topics[-1].partitions) < len(topic.partitions):
            cursor = Cursor(topic_name=name, partition_index=start + len(topics[-1].partitions))
            return _page(topics, hidden, cursor)
    return _page(topics, hidden, None)


def _page(
    topics: list[DescribeTopicPartitionsResponseTopic],
    hidden: list[DescribeTopicPartitionsResponseTopic],
    cursor: Cursor | None,
) -> DescribeTopicPartitionsResponse:
    topics.extend(hidden)
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=cursor)


def refuse(call: Call, body: DescribeTopicPartitionsRequest, code: ErrorCode) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=[_refused(topic.name, code) for topic in body.topics])


def _may_describe(call: Call, topic: str) -> bool:
    return call.may(Operation.DESCRIBE, ResourceType.TOPIC, topic)


def _start(body: DescribeTopicPartitionsRequest) -> tuple[str, int]:
    if body.cursor is None:
        return "", 0
    if body.cursor.partition_index < 0:
        raise Refused(ErrorCode.INVALID_REQUEST, "the partition index of the cursor is negative")
    if body.topics and all(topic.name != body.cursor.topic_name for topic in body.topics):
        raise Refused(ErrorCode.INVALID_REQUEST, "the topic of the cursor is not in the request")
    return body.cursor.topic_name, body.cursor.partition_index


def _unknown(call: Call, name: str) -> DescribeTopicPartitionsResponseTopic:
    try:
        topic_names.checked(name)
    except Refused as refused:
        return _refused(name, refused.code)
    answer = _refused(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    answer.topic_authorized_operations = authorized.topic(call, name)
    return answer


def _refused(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, topic_id=ZERO_UUID, partitions=[])


def _describe(call: Call, topic: TopicInfo, start: int, end: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            _partition(call, start + position, info) for position, info in enumerate(topic.partitions[start:end])
        ],
        topic_authorized_operations=authorized.topic(call, topic.name),
    )


def _partition(call: Call, index: int, info: PartitionInfo) -> DescribeTopicPartitionsResponsePartition:
    alive = call.broker.view.brokers
    return DescribeTopicPartitionsResponsePartition(
        error_code=(error := leader_error(call, info.leader)),
        partition_index=index,
        leader_id=NO_BROKER if error else info.leader,
        leader_epoch=info.leader_epoch,
        replica_nodes=list(info.replicas),
        isr_nodes=list(info.isr),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=offline(info, alive),
    )
