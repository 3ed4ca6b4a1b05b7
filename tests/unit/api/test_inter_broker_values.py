"""Round trips of values between brokers and the controller, in every version and through bytes."""

from __future__ import annotations

from random import Random
from typing import TypeVar

import pytest

from odradek.api.cluster import alter_partition, controlled_shutdown, leader_and_isr, stop_replica, update_metadata
from odradek.api.cluster.alter_partition_requests import AlterPartitionResult, from_response, to_message, version_for
from odradek.api.transactions import allocate_producer_ids
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_EPOCH, BrokerId
from odradek.core.controller.events import ShutDown
from odradek.core.partition.alter_partition_manager import ProposedIsr
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from odradek.wire.messages.controlled_shutdown import ControlledShutdownRequest
from odradek.wire.schema.compile import decode, encode
from support.controller_values import BY_ID, IDS, ValueMaker, proposals, sent

ROUNDS = 60
M = TypeVar("M")


def round_trip(message: M, version: int) -> M:
    cls = type(message)
    return decode(cls, version, encode(message, version))


@pytest.mark.parametrize("version", range(8))
def test_leader_and_isr_round_trip(version: int) -> None:
    maker = ValueMaker(f"leads {version}")
    for _ in range(ROUNDS):
        become = maker.become(version)
        message = leader_and_isr.to_message(sent(become), become, version, "INSIDE")
        assert leader_and_isr.from_message(round_trip(message, version), "INSIDE") == become


@pytest.mark.parametrize("version", range(9))
def test_update_metadata_round_trip(version: int) -> None:
    maker = ValueMaker(f"clients {version}")
    for _ in range(ROUNDS):
        update = maker.update(version)
        message = update_metadata.to_message(sent(update), update, version)
        assert update_metadata.from_message(round_trip(message, version)) == update


@pytest.mark.parametrize("version", range(5))
def test_stop_replica_round_trip(version: int) -> None:
    maker = ValueMaker(f"stops {version}")
    for _ in range(ROUNDS):
        stop = maker.stops(version)
        message = stop_replica.to_message(sent(stop), stop, version)
        assert stop_replica.from_message(round_trip(message, version)) == (stop,)


@pytest.mark.parametrize("version", range(4))
def test_controlled_shutdown_round_trip(version: int) -> None:
    maker = ValueMaker(f"shuts down {version}")
    for _ in range(ROUNDS):
        query = ShutDown(BrokerId(maker.number()), maker.number() if version >= 2 else NO_EPOCH)
        back = controlled_shutdown.from_message(round_trip(controlled_shutdown.to_message(query), version))
        assert (back.broker, back.broker_epoch) == (query.broker, query.broker_epoch)
    assert round_trip(ControlledShutdownRequest(broker_id=1), version).broker_epoch == NO_EPOCH


def test_allocate_producer_ids_round_trip() -> None:
    message = round_trip(allocate_producer_ids.to_message(BrokerId(3), 2**40), 0)
    assert message == AllocateProducerIdsRequest(broker_id=3, broker_epoch=2**40)


# Proposed ISRs.


@pytest.mark.parametrize("version", range(4))
def test_proposed_isrs_round_trip(version: int) -> None:
    maker = ValueMaker(f"proposes {version}")
    for _ in range(ROUNDS):
        leader = BrokerId(maker.number())
        made = proposals(maker, version, leader)
        message: AlterPartitionRequest = round_trip(to_message(made, leader, 20, IDS, version), version)
        assert len({topic.topic_name or topic.topic_id for topic in message.topics}) == len(message.topics)
        query, refused = alter_partition.from_message(message, version, BY_ID)
        assert not refused
        assert (query.broker, query.broker_epoch) == (leader, 20)
        assert query.proposals == {one.leading.name: one.proposal for one in made}
        known = {one.leading.name: dict(zip(one.proposal.isr, one.broker_epochs, strict=True)) for one in made}
        assert query.isr_epochs == (known if version >= 3 else {})


def response(made: list[ProposedIsr], answers: list[AlterPartitionResult], version: int) -> AlterPartitionResponse:
    """Return a response with each partition in a topic entry of its own, in any order."""
    topics = []
    for one, answer in zip(made, answers, strict=True):
        name, state = one.leading.name, answer.state or one.proposal
        partition = ResponsePartitionData(
            partition_index=name.partition,
            error_code=answer.error,
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            leader_recovery_state=state.recovery,
            partition_epoch=state.partition_epoch,
        )
        topics.append(ResponseTopicData(topic_name=name.topic, topic_id=IDS[name.topic], partitions=[partition]))
    Random(version).shuffle(topics)
    return AlterPartitionResponse(throttle_time_ms=0, error_code=0, topics=topics)


@pytest.mark.parametrize("version", range(4))
def test_responses_to_proposed_isrs_round_trip(version: int) -> None:
    maker = ValueMaker(f"answers {version}")
    for _ in range(ROUNDS):
        made = proposals(maker, version, BrokerId(1))
        answers = [
            AlterPartitionResult(ErrorCode.NONE, maker.state(recovers=version >= 1, has_controller=False))
            if maker.random.random() < 0.5
            else AlterPartitionResult(
                maker.random.choice((ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INELIGIBLE_REPLICA))
            )
            for _ in made
        ]
        message = round_trip(response(made, answers, version), version)
        assert from_response(made, message, IDS, version) == answers


@pytest.mark.parametrize("version", range(4))
def test_proposals_missing_in_the_response_fail(version: int) -> None:
    made = proposals(ValueMaker("without"), version, BrokerId(1))
    assert len(made) > 1
    refused = AlterPartitionResponse(throttle_time_ms=0, error_code=ErrorCode.NOT_CONTROLLER, topics=[])
    assert from_response(made, refused, IDS, version) == [AlterPartitionResult(ErrorCode.NOT_CONTROLLER)] * len(made)
    nothing = AlterPartitionResponse(throttle_time_ms=0, error_code=0, topics=[])
    assert from_response(made, nothing, IDS, version) == [AlterPartitionResult(ErrorCode.UNKNOWN_SERVER_ERROR)] * len(
        made
    )


def test_proposals_of_topics_without_an_id_use_a_version_with_names() -> None:
    made = proposals(ValueMaker("without ids"), 3, BrokerId(1))
    assert version_for(made, IDS, 3) == 3
    assert version_for(made, {}, 3) == 1
    assert version_for(made, {}, 0) == 0
    assert version_for([], {}, 3) == 3


def test_unknown_error_codes_become_unknown_server_error() -> None:
    made = proposals(ValueMaker("unknown"), 3, BrokerId(1))[:1]
    message = response(made, [AlterPartitionResult(ErrorCode.NONE, made[0].proposal)], 3)
    message.topics[0].partitions[0].error_code = 9999
    assert from_response(made, message, IDS, 3) == [AlterPartitionResult(ErrorCode.UNKNOWN_SERVER_ERROR)]
    answer = AllocateProducerIdsResponse(throttle_time_ms=0, error_code=9999, producer_id_start=0, producer_id_len=1)
    with pytest.raises(Refused, match="UNKNOWN_SERVER_ERROR"):
        allocate_producer_ids.from_response(answer)
