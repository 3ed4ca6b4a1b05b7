"""AlterPartition, versions 0 to 3.

Changes the ISRs of partitions on behalf of their leader (KIP-497). Leaders send this request to the controller; Odradek
implements both sides.

- v2: topics by id instead of name. An invalid ISR returns INELIGIBLE_REPLICA; earlier versions return
  OPERATION_NOT_ATTEMPTED (KIP-841).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from odradek.api.request.call import Call
from odradek.api.request.inter_broker import authorized_queries, await_promise, by_length
from odradek.api.request.outcome import PAUSE, Slices
from odradek.api.request.sliced_response import Parts, whole
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId, LeaderEpoch, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.controller.events import AlteredPartition, AlterPartitions, BrokerEpochs
from odradek.core.kernel.cluster_view import RECOVERED, RECOVERING, LeaderAndIsr
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
    ResponseTopicData,
)
from odradek.wire.schema.schema import maker

# This is the controller's side; the leader's is in api/cluster/alter_partition_requests.py.
BY_ID_FROM, WITH_EPOCHS_FROM = 2, 3

Names = Mapping[Uuid, TopicName]

_partition = maker(ResponsePartitionData)


class ParsedAlterPartition(NamedTuple):
    """The parsed request, and the errors of partitions that need no decision by the controller."""

    event: AlterPartitions
    refused: Mapping[TopicPartition, AlteredPartition]


def handle(call: Call, body: AlterPartitionRequest) -> Slices:
    queries = authorized_queries(call)
    names = call.broker.view.names
    event, refused = yield from parse(body, call.version, names)
    call.free_later(event)
    yield from await_promise(queries.broker_requests.submit(event), call)
    if event.error:
        raise Refused(event.error)
    answers: dict[TopicPartition, AlteredPartition] = {**refused, **(event.answer or {})}
    call.free_later(answers)
    topics = []
    for topic in body.topics:
        name = _name(topic, call.version, names)
        topics.append((yield from _answer(topic, name, answers, call.version)))
        yield PAUSE
    answer = AlterPartitionResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, topics=topics)
    return by_length(answer, sum(len(topic.partitions) for topic in topics))


def refuse(call: Call, body: AlterPartitionRequest, code: ErrorCode) -> AlterPartitionResponse:
    return AlterPartitionResponse(throttle_time_ms=0, error_code=code, topics=[])


def _answer(
    topic: RequestTopicData, name: TopicName | None, answers: Mapping[TopicPartition, AlteredPartition], version: int
) -> Parts[ResponseTopicData]:
    unknown = AlteredPartition(ErrorCode.UNKNOWN_TOPIC_ID)
    partitions = []
    for partition in topic.partitions:
        answer = unknown if name is None else answers.get(TopicPartition(name, partition.partition_index), unknown)
        partitions.append(_partition_response(partition.partition_index, answer, version))
        yield
    return ResponseTopicData(topic_name=topic.topic_name, topic_id=topic.topic_id, partitions=partitions)


def _partition_response(index: int, answer: AlteredPartition, version: int) -> ResponsePartitionData:
    state = answer.state
    if state is None:
        code = answer.error
        if code is ErrorCode.INELIGIBLE_REPLICA and version < BY_ID_FROM:
            code = ErrorCode.OPERATION_NOT_ATTEMPTED  # An older version does not return newer codes.
        return _partition(
            partition_index=index, error_code=code, leader_id=0, leader_epoch=0, isr=[], partition_epoch=0
        )
    return _partition(
        partition_index=index,
        error_code=ErrorCode.NONE,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        leader_recovery_state=state.recovery,
        partition_epoch=state.partition_epoch,
    )


def from_message(request: AlterPartitionRequest, version: int, names: Names) -> ParsedAlterPartition:
    """Return the parsed request in one step, without slices."""
    return whole(parse(request, version, names))


def parse(request: AlterPartitionRequest, version: int, names: Names) -> Parts[ParsedAlterPartition]:
    """Return the leader's request; topics whose id is not among `names` are left out.

    An invalid recovery state is refused, because no broker could read it once written.
    """
    broker = BrokerId(request.broker_id)
    proposals: dict[TopicPartition, LeaderAndIsr] = {}
    epochs: dict[TopicPartition, BrokerEpochs] = {}
    refused: dict[TopicPartition, AlteredPartition] = {}
    for topic in request.topics:
        name = _name(topic, version, names)
        if name is None:
            yield
            continue
        for partition_request in topic.partitions:
            partition = TopicPartition(name, partition_request.partition_index)
            state = _state(partition_request, broker)
            if state.recovery in (RECOVERED, RECOVERING):
                proposals[partition] = state
            else:
                refused[partition] = AlteredPartition(ErrorCode.INVALID_REQUEST)
            if version >= WITH_EPOCHS_FROM:
                epochs[partition] = {
                    BrokerId(broker_state.broker_id): broker_state.broker_epoch
                    for broker_state in partition_request.new_isr_with_epochs
                }
            yield
        yield
    return ParsedAlterPartition(AlterPartitions(broker, request.broker_epoch, proposals, epochs), refused)


def _name(topic: RequestTopicData, version: int, names: Names) -> TopicName | None:
    return names.get(topic.topic_id) if version >= BY_ID_FROM else TopicName(topic.topic_name)


def _state(partition_request: RequestPartitionData, leader: BrokerId) -> LeaderAndIsr:
    isr = partition_request.new_isr or [member.broker_id for member in partition_request.new_isr_with_epochs]
    return LeaderAndIsr(
        leader,
        LeaderEpoch(partition_request.leader_epoch),
        tuple(map(BrokerId, isr)),
        partition_request.leader_recovery_state,
        partition_epoch=partition_request.partition_epoch,
    )
