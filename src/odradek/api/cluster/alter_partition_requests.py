"""AlterPartition as a leader sends it: its proposals as one message, and the answer to each proposal.

If the leader is the controller, the same content is passed as an event (`to_event`, `from_event`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from odradek.api.cluster.alter_partition import BY_ID_FROM, WITH_EPOCHS_FROM
from odradek.base.errors import ErrorCode, error_code
from odradek.base.units import BrokerId, LeaderEpoch, TopicName
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.controller.events import AlterPartitions
from odradek.core.kernel.cluster_view import LeaderAndIsr
from odradek.core.partition.alter_partition_manager import ProposedIsr
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)

TopicIds = Mapping[TopicName, Uuid]


class AlterPartitionResult(NamedTuple):
    """The answer to one proposal: the partition's state, or the error."""

    error: ErrorCode
    state: LeaderAndIsr | None = None


def topic_ids_of(proposed: Iterable[ProposedIsr]) -> TopicIds:
    """Return the ids of the topics, as their logs have them, without topics that have none."""
    found = {proposed_isr.leading.name.topic: proposed_isr.leading.log.topic_id for proposed_isr in proposed}
    return {name: topic_id for name, topic_id in found.items() if topic_id is not None}


def version_for(proposed: Iterable[ProposedIsr], topic_ids: TopicIds, newest: int) -> int:
    """Return the version to send: one with names if a topic has no id (created before Kafka 2.8)."""
    has_ids = all(topic_ids.get(proposed_isr.leading.name.topic, ZERO_UUID) != ZERO_UUID for proposed_isr in proposed)
    return newest if has_ids else min(newest, BY_ID_FROM - 1)


def to_message(
    proposed: Iterable[ProposedIsr], broker: BrokerId, broker_epoch: int, topic_ids: TopicIds, version: int
) -> AlterPartitionRequest:
    """Return the message, with each topic once; the broker is the leader of the partitions."""
    topics: dict[TopicName, RequestTopicData] = {}
    for proposed_isr in proposed:
        name = proposed_isr.leading.name
        topic = topics.get(name.topic)
        if topic is None:
            topic_id = topic_ids.get(name.topic, ZERO_UUID)
            topic = topics[name.topic] = RequestTopicData(topic_name=name.topic, topic_id=topic_id, partitions=[])
        topic.partitions.append(_partition(name.partition, proposed_isr, version))
    return AlterPartitionRequest(broker_id=broker, broker_epoch=broker_epoch, topics=list(topics.values()))


def _partition(index: int, proposed_isr: ProposedIsr, version: int) -> RequestPartitionData:
    state = proposed_isr.proposal
    partition = RequestPartitionData(
        partition_index=index, leader_epoch=state.leader_epoch, partition_epoch=state.partition_epoch
    )
    if version >= 1:
        partition.leader_recovery_state = state.recovery
    if version < WITH_EPOCHS_FROM:
        partition.new_isr = list(state.isr)
        return partition
    members = zip(state.isr, proposed_isr.broker_epochs, strict=True)
    partition.new_isr_with_epochs = [BrokerState(broker_id=member, broker_epoch=epoch) for member, epoch in members]
    return partition


def from_response(
    proposed: Sequence[ProposedIsr], response: AlterPartitionResponse, topic_ids: TopicIds, version: int
) -> list[AlterPartitionResult]:
    """Return the answer to each proposal in order, UNKNOWN_SERVER_ERROR for a missing one.

    `topic_ids` are the ids with which the message was made.
    """
    if response.error_code:
        return [AlterPartitionResult(error_code(response.error_code))] * len(proposed)
    by_id = version >= BY_ID_FROM
    found = {
        (topic.topic_id if by_id else topic.topic_name, partition_response.partition_index): partition_response
        for topic in response.topics
        for partition_response in topic.partitions
    }
    answers = []
    for proposed_isr in proposed:
        name = proposed_isr.leading.name
        topic = topic_ids.get(name.topic, ZERO_UUID) if by_id else name.topic
        answers.append(_result(proposed_isr.proposal, found.get((topic, name.partition))))
    return answers


def _result(proposal: LeaderAndIsr, partition_response: ResponsePartitionData | None) -> AlterPartitionResult:
    if partition_response is None:
        return AlterPartitionResult(ErrorCode.UNKNOWN_SERVER_ERROR)
    if partition_response.error_code:
        return AlterPartitionResult(error_code(partition_response.error_code))
    state = LeaderAndIsr(
        BrokerId(partition_response.leader_id),
        LeaderEpoch(partition_response.leader_epoch),
        tuple(map(BrokerId, partition_response.isr)),
        partition_response.leader_recovery_state,
        proposal.controller_epoch,  # The response has none, and no code compares it.
        partition_response.partition_epoch,
    )
    return AlterPartitionResult(ErrorCode.NONE, state)


def to_event(proposed: Sequence[ProposedIsr], broker: BrokerId, broker_epoch: int) -> AlterPartitions:
    """Return the content of the newest message version as an event for this broker's own controller."""
    proposals = {proposed_isr.leading.name: proposed_isr.proposal for proposed_isr in proposed}
    epochs = {
        proposed_isr.leading.name: dict(zip(proposed_isr.proposal.isr, proposed_isr.broker_epochs, strict=True))
        for proposed_isr in proposed
    }
    return AlterPartitions(broker, broker_epoch, proposals, epochs)


def from_event(proposed: Iterable[ProposedIsr], event: AlterPartitions) -> list[AlterPartitionResult]:
    """Return the answer to each proposal in order, after the controller has answered the event."""
    if event.error:
        return [AlterPartitionResult(event.error) for _ in proposed]
    assert event.answer is not None, "an event without an error has a result"
    answers = (event.answer[proposed_isr.leading.name] for proposed_isr in proposed)
    return [AlterPartitionResult(answer.error, answer.state) for answer in answers]
