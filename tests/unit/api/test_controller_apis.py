"""ControlledShutdown, AlterPartition and AllocateProducerIds: brokers' requests to the controller, in each version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.api.cluster import alter_partition, controlled_shutdown
from odradek.api.transactions import allocate_producer_ids
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_EPOCH, BrokerId, LeaderEpoch, ProducerId, TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.controller.events import AlteredPartition, AlterPartitions, ShutDown
from odradek.core.kernel.access import Operation
from odradek.core.kernel.cluster_view import RECOVERING, LeaderAndIsr
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.transactions.producer_ids import ProducerIdBlock
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from odradek.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from support.between_brokers import BetweenBrokers, extend_table, not_the_controller
from support.controlling import Controlling, name_of, topic_id
from support.in_memory import Harness

TWO, THREE = BrokerId(2), BrokerId(3)
T0, T1, U0 = name_of("t"), name_of("t", 1), name_of("u")
NONE, DENIED = ErrorCode.NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
REFUSALS = [ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_NOT_AVAILABLE]
ALL_BUT = set(Operation) - {Operation.CLUSTER_ACTION}


@pytest.fixture
def between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BetweenBrokers:
    extend_table(monkeypatch)
    made = BetweenBrokers(Harness(tmp_path))
    controller = Controlling(made.harness)
    controller.create_topic("t", 2)
    controller.create_topic("u")
    return made


def refuse_with(code: ErrorCode) -> Any:
    def decide(query: Any) -> None:
        query.error = code

    return decide


# ControlledShutdown.


@pytest.mark.parametrize("version", range(4))
def test_controlled_shutdown_returns_the_remaining_partitions(between: BetweenBrokers, version: int) -> None:
    def decide(query: Any) -> None:
        query.answer = [T0, U0]

    message = controlled_shutdown.to_message(ShutDown(TWO, 20))
    answer = between.request(message, version, ControlledShutdownResponse, decide=decide)
    assert controlled_shutdown.from_response(answer) == [T0, U0]
    (query,) = between.queries
    assert isinstance(query, ShutDown)
    assert (query.broker, query.broker_epoch) == (TWO, 20 if version >= 2 else NO_EPOCH)


@pytest.mark.parametrize("count", [0, 5_000])
def test_controlled_shutdown_returns_any_number_of_partitions(between: BetweenBrokers, count: int) -> None:
    def decide(query: Any) -> None:
        query.answer = [TopicPartition(TopicName("t"), index) for index in range(count)]

    message = ControlledShutdownRequest(broker_id=TWO)
    answer = between.request(message, 3, ControlledShutdownResponse, decide=decide)
    assert [one.partition for one in controlled_shutdown.from_response(answer)] == list(range(count))


@pytest.mark.parametrize("code", REFUSALS)
@pytest.mark.parametrize("version", range(4))
def test_controlled_shutdown_can_be_refused(between: BetweenBrokers, version: int, code: ErrorCode) -> None:
    message = ControlledShutdownRequest(broker_id=TWO, broker_epoch=20)
    answer = between.request(message, version, ControlledShutdownResponse, decide=refuse_with(code))
    assert answer == ControlledShutdownResponse(error_code=code, remaining_partitions=[])
    with pytest.raises(Refused, match=code.name):
        controlled_shutdown.from_response(answer)


def test_failed_shutdown_response_has_no_partitions() -> None:
    left = [RemainingPartition(topic_name="t", partition_index=0)]
    with pytest.raises(Refused, match="UNKNOWN_SERVER_ERROR"):
        controlled_shutdown.from_response(ControlledShutdownResponse(error_code=9999, remaining_partitions=left))


# AlterPartition.


def alter_partition_request(
    *topics: tuple[str, Uuid, list[tuple[int, list[int]]]], version: int, recovery: int = 0
) -> AlterPartitionRequest:
    return AlterPartitionRequest(
        broker_id=TWO,
        broker_epoch=20,
        topics=[
            RequestTopicData(
                topic_name=name if version < 2 else "",
                topic_id=of if version >= 2 else ZERO_UUID,
                partitions=[partition(index, isr, version, recovery) for index, isr in partitions],
            )
            for name, of, partitions in topics
        ],
    )


def partition(index: int, isr: list[int], version: int, recovery: int) -> RequestPartitionData:
    members = [BrokerState(broker_id=one, broker_epoch=one * 10 if one == THREE else -1) for one in isr]
    return RequestPartitionData(
        partition_index=index,
        leader_epoch=5,
        new_isr=isr if version < 3 else [],
        new_isr_with_epochs=members if version >= 3 else [],
        leader_recovery_state=recovery,
        partition_epoch=9,
    )


STATE = LeaderAndIsr(TWO, LeaderEpoch(5), (TWO, THREE), partition_epoch=9)
T, U = ("t", topic_id("t")), ("u", topic_id("u"))


def ends(answer: AlterPartitionResponse, version: int) -> dict[tuple[str, int], ResponsePartitionData]:
    names = {topic_id("t"): "t", topic_id("u"): "u", topic_id("?"): "?"}
    return {
        (topic.topic_name if version < 2 else names[topic.topic_id], one.partition_index): one
        for topic in answer.topics
        for one in topic.partitions
    }


@pytest.mark.parametrize("version", range(4))
def test_isr_is_altered(between: BetweenBrokers, version: int) -> None:
    after = STATE._replace(partition_epoch=10, recovery=RECOVERING if version >= 1 else 0)

    def decide(query: Any) -> None:
        query.answer = {
            T0: AlteredPartition(NONE, after),
            T1: AlteredPartition(ErrorCode.FENCED_LEADER_EPOCH),
            U0: AlteredPartition(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        }

    request = alter_partition_request((*T, [(0, [2, 3]), (1, [2])]), (*U, [(0, [2])]), version=version)
    found = ends(between.request(request, version, AlterPartitionResponse, decide=decide), version)
    assert {name: one.error_code for name, one in found.items()} == {
        ("t", 0): NONE,
        ("t", 1): ErrorCode.FENCED_LEADER_EPOCH,
        ("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    one = found["t", 0]
    assert (one.leader_id, one.leader_epoch, one.isr, one.partition_epoch) == (2, 5, [2, 3], 10)
    assert one.leader_recovery_state == after.recovery
    (query,) = between.queries
    assert isinstance(query, AlterPartitions)
    assert (query.broker, query.broker_epoch) == (TWO, 20)
    assert query.proposals == {T0: STATE, T1: STATE._replace(isr=(TWO,)), U0: STATE._replace(isr=(TWO,))}
    assert query.isr_epochs == ({T0: {TWO: -1, THREE: 30}, T1: {TWO: -1}, U0: {TWO: -1}} if version >= 3 else {})


@pytest.mark.parametrize("version", range(4))
def test_ineligible_replica_error_depends_on_the_version(between: BetweenBrokers, version: int) -> None:
    """Older request versions do not have the error code (KIP-841)."""

    def decide(query: Any) -> None:
        query.answer = dict.fromkeys(query.proposals, AlteredPartition(ErrorCode.INELIGIBLE_REPLICA))

    request = alter_partition_request((*T, [(0, [2, 3])]), version=version)
    found = ends(between.request(request, version, AlterPartitionResponse, decide=decide), version)
    expected = ErrorCode.INELIGIBLE_REPLICA if version >= 2 else ErrorCode.OPERATION_NOT_ATTEMPTED
    assert found["t", 0].error_code == expected


@pytest.mark.parametrize("version", [2, 3])
def test_unknown_topic_id_is_refused(between: BetweenBrokers, version: int) -> None:
    def decide(query: Any) -> None:
        assert query.proposals == {T0: STATE}
        query.answer = {T0: AlteredPartition(NONE, STATE)}

    request = alter_partition_request(("?", topic_id("?"), [(0, [2]), (1, [2])]), (*T, [(0, [2, 3])]), version=version)
    found = ends(between.request(request, version, AlterPartitionResponse, decide=decide), version)
    assert {name: one.error_code for name, one in found.items()} == {
        ("?", 0): ErrorCode.UNKNOWN_TOPIC_ID,
        ("?", 1): ErrorCode.UNKNOWN_TOPIC_ID,
        ("t", 0): NONE,
    }


@pytest.mark.parametrize("version", [0, 1])
def test_unknown_topic_name_is_refused_by_the_controller(between: BetweenBrokers, version: int) -> None:
    def decide(query: Any) -> None:
        query.answer = dict.fromkeys(query.proposals, AlteredPartition(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

    request = alter_partition_request(("?", ZERO_UUID, [(0, [2])]), version=version)
    answer = between.request(request, version, AlterPartitionResponse, decide=decide)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("recovery", [-1, 2])
def test_invalid_recovery_state_is_refused(between: BetweenBrokers, version: int, recovery: int) -> None:
    def decide(query: Any) -> None:
        assert not query.proposals
        query.answer = {}

    request = alter_partition_request((*T, [(0, [2, 3])]), version=version, recovery=recovery)
    found = ends(between.request(request, version, AlterPartitionResponse, decide=decide), version)
    assert found["t", 0].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("code", REFUSALS)
@pytest.mark.parametrize("version", range(4))
def test_isr_change_can_be_refused_as_a_whole(between: BetweenBrokers, version: int, code: ErrorCode) -> None:
    request = alter_partition_request((*T, [(0, [2, 3])]), version=version)
    answer = between.request(request, version, AlterPartitionResponse, decide=refuse_with(code))
    assert answer == AlterPartitionResponse(throttle_time_ms=0, error_code=code, topics=[])


def test_empty_isr_request_to_another_broker_returns_not_controller(between: BetweenBrokers) -> None:
    answer = between.request(alter_partition_request(version=3), 3, AlterPartitionResponse, decide=not_the_controller)
    assert answer.error_code == ErrorCode.NOT_CONTROLLER


# AllocateProducerIds.


def test_producer_id_block_is_allocated(between: BetweenBrokers) -> None:
    message = allocate_producer_ids.to_message(TWO, 20)
    answer = between.request(message, 0, AllocateProducerIdsResponse)
    assert (answer.producer_id_start, answer.producer_id_len) == (2000, 1000)
    assert allocate_producer_ids.from_response(answer) == between.producer_ids
    assert [(one.broker, one.broker_epoch) for one in between.queries] == [(TWO, 20)]


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED]
)
def test_producer_id_block_can_be_refused(between: BetweenBrokers, code: ErrorCode) -> None:
    between.producer_ids = Refused(code)
    answer = between.request(AllocateProducerIdsRequest(broker_id=TWO), 0, AllocateProducerIdsResponse)
    assert answer.error_code == code
    with pytest.raises(Refused, match=code.name):
        allocate_producer_ids.from_response(answer)


@pytest.mark.parametrize(("first", "length"), [(-1, 1000), (0, 0), (5, -1)])
def test_invalid_producer_id_block_is_refused(first: int, length: int) -> None:
    answer = AllocateProducerIdsResponse(
        throttle_time_ms=0, error_code=NONE, producer_id_start=first, producer_id_len=length
    )
    with pytest.raises(Refused, match="producer ids"):
        allocate_producer_ids.from_response(answer)


def test_producer_id_block_may_have_one_id() -> None:
    answer = AllocateProducerIdsResponse(throttle_time_ms=0, error_code=NONE, producer_id_start=7, producer_id_len=1)
    assert allocate_producer_ids.from_response(answer) == ProducerIdBlock(ProducerId(7), ProducerId(7))


# Authorization.


def test_requests_without_cluster_action_are_refused(between: BetweenBrokers) -> None:
    between.may(*ALL_BUT)
    for version in range(4):
        shut = between.request(ControlledShutdownRequest(broker_id=TWO), version, ControlledShutdownResponse)
        assert shut == ControlledShutdownResponse(error_code=DENIED, remaining_partitions=[])
        altered = between.request(
            alter_partition_request((*T, [(0, [2])]), version=version), version, AlterPartitionResponse
        )
        assert altered == AlterPartitionResponse(throttle_time_ms=0, error_code=DENIED, topics=[])
    ids = between.request(AllocateProducerIdsRequest(broker_id=TWO), 0, AllocateProducerIdsResponse)
    assert (ids.error_code, ids.producer_id_start, ids.producer_id_len) == (DENIED, 0, 0)
    assert not between.queues.broker_requests.take_queries() and not between.queries


def test_request_without_a_controller_response_closes_the_connection(between: BetweenBrokers) -> None:
    for message, version in (
        (alter_partition_request((*T, [(0, [2])]), version=3), 3),
        (ControlledShutdownRequest(broker_id=TWO), 3),
    ):
        outcome = between.harness.send(message, version)
        assert isinstance(outcome, ParkedRequest)
        with pytest.raises(ConnectionAbortedError, match="timed out"):
            between.harness.finished(outcome)


def test_both_forms_of_an_isr_are_parsed(between: BetweenBrokers) -> None:
    """Versions with and without broker epochs give the same ISR."""
    for version in range(4):
        request = alter_partition_request((*T, [(0, [2, 3])]), version=version)
        parsed = alter_partition.from_message(request, version, between.harness.broker.view.names)
        assert parsed.event.proposals == {T0: STATE} and not parsed.refused
