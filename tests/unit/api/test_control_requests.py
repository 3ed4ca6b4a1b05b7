"""LeaderAndIsr, StopReplica and UpdateMetadata, handled by a broker in each version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.api.cluster import leader_and_isr, stop_replica, update_metadata
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_EPOCH, LeaderEpoch, TopicName
from odradek.base.uuids import ZERO_UUID
from odradek.core.broker.replicas import Errors
from odradek.core.controller.broker_request_batch import (
    AssignedState,
    BecomeLeaderOrFollower,
    ControlRequest,
    PartitionMetadata,
    StopReplicas,
    UpdateMetadata,
)
from odradek.core.kernel.access import Operation
from odradek.core.kernel.cluster_view import LeaderAndIsr
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from odradek.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from odradek.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from support.between_brokers import BetweenBrokers, extend_table
from support.controlling import OTHER, name_of, topic_id
from support.in_memory import US, Harness

T, U, X = TopicName("t"), TopicName("u"), TopicName("x")
T0, T1, U0, X0 = name_of("t"), name_of("t", 1), name_of("u"), name_of("x")
IDS = {name: topic_id(name) for name in (T, U, X)}
STATE = LeaderAndIsr(US, LeaderEpoch(3), (US,), controller_epoch=7)
NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
STALE = [ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH]

# X is not assigned to this broker.
BECOME = BecomeLeaderOrFollower(
    {
        T0: AssignedState(STATE, (US,), is_new=True),
        U0: AssignedState(STATE, (US,), is_new=True),
        T1: AssignedState(STATE, (US,), is_new=True),
        X0: AssignedState(STATE._replace(leader=OTHER, isr=(OTHER,)), (OTHER,)),
    },
    IDS,
    (),
)


@pytest.fixture
def between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BetweenBrokers:
    extend_table(monkeypatch)
    return BetweenBrokers(Harness(tmp_path))


def sent(request: BecomeLeaderOrFollower | UpdateMetadata | StopReplicas, broker_epoch: int = 10) -> ControlRequest:
    return ControlRequest(US, broker_epoch, OTHER, 7, request)


def become(version: int) -> LeaderAndIsrRequest:
    return leader_and_isr.to_message(sent(BECOME), BECOME, version, "PLAINTEXT")


def stop(version: int, *, deletes: bool = False) -> StopReplicaRequest:
    request = StopReplicas({T0: LeaderEpoch(3), X0: LeaderEpoch(3)}, deletes)
    return stop_replica.to_message(sent(request), request, version)


def update(version: int) -> UpdateMetadataRequest:
    request = UpdateMetadata({T0: PartitionMetadata(STATE, (US,), ())}, IDS, (), is_full=False)
    return update_metadata.to_message(sent(request), request, version)


@pytest.mark.parametrize("version", range(8))
def test_broker_leads_the_requested_partitions(between: BetweenBrokers, version: int) -> None:
    answer = between.request(become(version), version, LeaderAndIsrResponse)
    assert answer.error_code == NONE
    if version < 5:
        ends = sorted((one.topic_name, one.partition_index, one.error_code) for one in answer.partition_errors)
        assert ends == [("t", 0, NONE), ("t", 1, NONE), ("u", 0, NONE), ("x", 0, UNKNOWN)]
        assert not answer.topics
    else:
        assert not answer.partition_errors
        assert {
            topic.topic_id: [(one.partition_index, one.error_code) for one in topic.partition_errors]
            for topic in answer.topics
        } == {IDS[T]: [(0, NONE), (1, NONE)], IDS[U]: [(0, NONE)], IDS[X]: [(0, UNKNOWN)]}
    assert leader_and_isr.errors(BECOME, answer) == {X0: UNKNOWN}, "the controller reads it so"
    assert {one for one, partition in between.harness.broker.partitions.items() if partition.leading} == {T0, T1, U0}
    (applied,) = between.controller_requests
    assert applied[:4] == (US, 10 if version >= 2 else NO_EPOCH, OTHER, 7)


def test_topics_without_an_id_share_one_response_entry(between: BetweenBrokers) -> None:
    request = leader_and_isr.to_message(sent(BECOME), BECOME._replace(topic_ids={}), 7, "PLAINTEXT")
    answer = between.request(request, 7, LeaderAndIsrResponse, respond=lambda _: {})
    (topic,) = answer.topics
    assert topic.topic_id == ZERO_UUID and len(topic.partition_errors) == 4


@pytest.mark.parametrize("code", STALE)
@pytest.mark.parametrize("version", range(8))
def test_stale_epoch_is_returned_for_each_partition(between: BetweenBrokers, version: int, code: ErrorCode) -> None:
    answer = between.request(become(version), version, LeaderAndIsrResponse, respond=lambda _: Refused(code))
    check_refused(answer, version, code)


def check_refused(answer: LeaderAndIsrResponse, version: int, code: ErrorCode) -> None:
    assert answer.error_code == code
    named = [(one.topic_name, one.partition_index, one.error_code) for one in answer.partition_errors]
    by_id = [
        (topic.topic_id, one.partition_index, one.error_code)
        for topic in answer.topics
        for one in topic.partition_errors
    ]
    assert sorted(named) == ([(one.topic, one.partition, code) for one in sorted(BECOME.partitions)] * (version < 5))
    assert sorted(by_id) == (
        [(IDS[one.topic], one.partition, code) for one in sorted(BECOME.partitions)] * (version > 4)
    )
    assert leader_and_isr.errors(BECOME, answer).keys() == BECOME.partitions.keys()


@pytest.mark.parametrize("version", range(5))
def test_broker_stops_the_requested_replicas(between: BetweenBrokers, version: int) -> None:
    between.request(become(7), 7, LeaderAndIsrResponse)
    between.controller_requests.clear()
    answer = between.request(stop(version), version, StopReplicaResponse)
    assert answer.error_code == NONE
    ends = [(one.topic_name, one.partition_index, one.error_code) for one in answer.partition_errors]
    assert ends == [("t", 0, NONE), ("x", 0, NONE)]
    assert T0 not in between.harness.broker.partitions and T1 in between.harness.broker.partitions
    (applied,) = between.controller_requests
    assert applied[:4] == (US, 10 if version >= 1 else NO_EPOCH, OTHER, 7)


@pytest.mark.parametrize("version", range(5))
def test_stop_failures_are_returned_by_partition(between: BetweenBrokers, version: int) -> None:
    failed = {X0: ErrorCode.KAFKA_STORAGE_ERROR}
    answer = between.request(stop(version, deletes=True), version, StopReplicaResponse, respond=lambda _: failed)
    assert stop_replica.errors(answer) == failed
    assert len(answer.partition_errors) == 2


@pytest.mark.parametrize("version", [3, 4])
def test_one_request_stops_and_deletes_replicas(between: BetweenBrokers, version: int) -> None:
    states = [
        StopReplicaPartitionState(partition_index=index, leader_epoch=5, delete_partition=index == 0)
        for index in range(3)
    ]
    topics = [StopReplicaTopicState(topic_name="t", partition_states=states)]
    request = StopReplicaRequest(controller_id=OTHER, controller_epoch=7, topic_states=topics)

    def failed(one: ControlRequest) -> Errors:
        assert isinstance(one.request, StopReplicas)
        return {name: ErrorCode.FENCED_LEADER_EPOCH for name in one.request.partitions if one.request.deletes}

    answer = between.request(request, version, StopReplicaResponse, respond=failed)
    assert stop_replica.errors(answer) == {T0: ErrorCode.FENCED_LEADER_EPOCH}
    assert sorted(one.partition_index for one in answer.partition_errors) == [0, 1, 2]
    assert [one.request for one in between.controller_requests] == [
        StopReplicas({T1: LeaderEpoch(5), name_of("t", 2): LeaderEpoch(5)}, deletes=False),
        StopReplicas({T0: LeaderEpoch(5)}, deletes=True),
    ]


def test_newer_controller_between_stop_and_delete_is_detected(between: BetweenBrokers) -> None:
    states = [StopReplicaPartitionState(partition_index=index, delete_partition=index == 0) for index in range(2)]
    topics = [StopReplicaTopicState(topic_name="t", partition_states=states)]
    request = StopReplicaRequest(controller_id=OTHER, controller_epoch=7, topic_states=topics)
    ends: Iterator[Errors | Refused] = iter([{}, Refused(ErrorCode.STALE_CONTROLLER_EPOCH)])
    answer = between.request(request, 4, StopReplicaResponse, respond=lambda _: next(ends))
    assert answer == StopReplicaResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH, partition_errors=[])


@pytest.mark.parametrize("code", STALE)
@pytest.mark.parametrize("version", range(5))
def test_a_stale_epoch_stops_nothing(between: BetweenBrokers, version: int, code: ErrorCode) -> None:
    answer = between.request(stop(version), version, StopReplicaResponse, respond=lambda _: Refused(code))
    assert answer == StopReplicaResponse(error_code=code, partition_errors=[])


def test_empty_request_of_a_stale_controller_is_refused(between: BetweenBrokers) -> None:
    between.harness.broker.controlled.broker_epoch = LeaderEpoch(10)
    between.harness.broker.controlled.controller_epoch = 8
    nothing = StopReplicaRequest(controller_id=OTHER, controller_epoch=7)
    assert between.request(nothing, 4, StopReplicaResponse).error_code == ErrorCode.STALE_CONTROLLER_EPOCH


@pytest.mark.parametrize("version", range(9))
def test_metadata_update_is_visible_to_clients(between: BetweenBrokers, version: int) -> None:
    assert between.request(update(version), version, UpdateMetadataResponse).error_code == NONE
    topic = between.harness.broker.view.topics[T]
    assert topic.id == (IDS[T] if version >= 7 else ZERO_UUID)
    assert [(one.leader, one.leader_epoch) for one in topic.partitions] == [(US, 3)]
    assert between.controller_requests[0].broker_epoch == (10 if version >= 5 else NO_EPOCH)


@pytest.mark.parametrize("code", STALE)
@pytest.mark.parametrize("version", range(9))
def test_metadata_update_with_a_stale_epoch_is_refused(between: BetweenBrokers, version: int, code: ErrorCode) -> None:
    answer = between.request(update(version), version, UpdateMetadataResponse, respond=lambda _: Refused(code))
    assert answer == UpdateMetadataResponse(error_code=code)


def test_broker_detects_stale_epochs(between: BetweenBrokers) -> None:
    between.harness.broker.controlled.broker_epoch = LeaderEpoch(11)
    for message, version, response in (
        (become(7), 7, LeaderAndIsrResponse),
        (stop(4), 4, StopReplicaResponse),
        (update(8), 8, UpdateMetadataResponse),
    ):
        assert between.request(message, version, response).error_code == ErrorCode.STALE_BROKER_EPOCH  # type: ignore[attr-defined]
    between.harness.broker.controlled.broker_epoch = LeaderEpoch(10)
    between.harness.broker.controlled.controller_epoch = 8
    assert between.request(become(7), 7, LeaderAndIsrResponse).error_code == ErrorCode.STALE_CONTROLLER_EPOCH


DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_requests_without_cluster_action_are_refused(between: BetweenBrokers) -> None:
    between.may(*(set(Operation) - {Operation.CLUSTER_ACTION}))
    for version in range(8):
        check_refused(between.request(become(version), version, LeaderAndIsrResponse), version, DENIED)
    for version in range(5):
        answer = between.request(stop(version), version, StopReplicaResponse)
        assert answer.error_code == DENIED
        assert stop_replica.errors(answer) == {T0: DENIED, X0: DENIED}
    for version in range(9):
        assert between.request(update(version), version, UpdateMetadataResponse).error_code == DENIED
    assert not between.handle_requests() and not between.harness.broker.partitions


def test_request_not_handled_in_time_closes_the_connection(between: BetweenBrokers) -> None:
    """The controller retries; the late execution changes nothing."""
    outcome = between.harness.send(become(7), 7)
    assert isinstance(outcome, ParkedRequest)
    with pytest.raises(ConnectionAbortedError, match="timed out"):
        between.harness.finished(outcome)
    assert between.handle_requests() == 1
    assert between.request(become(7), 7, LeaderAndIsrResponse).error_code == NONE


def test_requests_of_several_connections_are_handled_in_order(between: BetweenBrokers) -> None:
    outcomes = [between.harness.send(update(8), 8), between.harness.send(become(7), 7)]
    assert between.handle_requests() == 2
    assert [type(one.request) for one in between.controller_requests] == [UpdateMetadata, BecomeLeaderOrFollower]
    for outcome in outcomes:
        assert between.harness.finished(outcome)
