"""DescribeProducers, version 0.

Returns the active producers of partitions, as this broker's replicas know them (KIP-664).
"""

from __future__ import annotations

from odradek.api.request import repeated_names as describing
from odradek.api.request.call import Call
from odradek.api.request.outcome import PAUSE, Slices
from odradek.api.request.sliced_response import CHEAP, Parts
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicName
from odradek.core.kernel import topic_names
from odradek.core.kernel.access import Operation, ResourceType
from odradek.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)


def handle(call: Call, body: DescribeProducersRequest) -> Slices:
    yield from describing.check_repeats(
        (topic.name, index) for topic in body.topics for index in topic.partition_indexes
    )
    topics = []
    for topic in body.topics:
        topics.append((yield from _topic(call, topic)))
        yield PAUSE
    return DescribeProducersResponse(throttle_time_ms=0, topics=topics)


def refuse(call: Call, body: DescribeProducersRequest, code: ErrorCode) -> DescribeProducersResponse:
    topics = [
        TopicResponse(name=topic.name, partitions=[_refused(index, Refused(code)) for index in topic.partition_indexes])
        for topic in body.topics
    ]
    return DescribeProducersResponse(throttle_time_ms=0, topics=topics)


def _topic(call: Call, topic: TopicRequest) -> Parts[TopicResponse]:
    partitions = []
    for index in topic.partition_indexes:
        partitions.append((yield from _partition(call, TopicName(topic.name), index)))
        yield
    return TopicResponse(name=topic.name, partitions=partitions)


def _partition(call: Call, topic: TopicName, index: int) -> Parts[PartitionResponse]:
    try:
        if topic not in call.broker.view.topics:
            topic_names.checked(topic)
        call.check(Operation.READ, ResourceType.TOPIC, topic)
        log = call.broker.replica(topic, index).log
    except Refused as refused:
        return _refused(index, refused)
    states = []
    for producer in list(log.producers):  # A copy, because producers may expire while other requests run.
        states.append(
            ProducerState(
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.first_offset,
            )
        )
        if not len(states) % CHEAP:
            yield
    return PartitionResponse(partition_index=index, error_code=ErrorCode.NONE, active_producers=states)


def _refused(index: int, refused: Refused) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index, error_code=refused.code, error_message=refused.detail or None, active_producers=[]
    )
