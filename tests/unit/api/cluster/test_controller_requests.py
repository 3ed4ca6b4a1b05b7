"""Round trips of controller requests, in every version of their messages."""

from __future__ import annotations

import pytest

from odradek.api.cluster import leader_and_isr, stop_replica, update_metadata
from odradek.api.cluster.controller_requests import Versions, errors, to_message, version_of
from odradek.base.errors import ErrorCode
from odradek.base.units import NO_EPOCH, BrokerId, LeaderEpoch, TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.controller.broker_request_batch import (
    EPOCH_DURING_DELETE,
    AssignedState,
    BecomeLeaderOrFollower,
    ControlRequest,
    PartitionMetadata,
    StopReplicas,
    UpdateMetadata,
)
from odradek.core.kernel.cluster_view import BrokerInfo, Endpoint, LeaderAndIsr
from odradek.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from odradek.wire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from odradek.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from odradek.wire.schema.compile import decode, encode

A0, B0, A1 = (
    TopicPartition(TopicName("a"), 0),
    TopicPartition(TopicName("b"), 0),
    TopicPartition(TopicName("a"), 1),
)
IDS = {TopicName("a"): Uuid(b"a" * 16), TopicName("b"): Uuid(b"b" * 16)}
ONE, TWO = BrokerId(1), BrokerId(2)
BROKERS = (
    BrokerInfo(ONE, (Endpoint("OUTSIDE", "o", 9093, "SSL"), Endpoint("INSIDE", "i", 9092)), "r1"),
    BrokerInfo(TWO, (Endpoint("OUTSIDE", "p", 9094, "SASL_SSL"),)),
)
STATE = LeaderAndIsr(ONE, LeaderEpoch(5), (ONE, TWO), 0, 7, 9)
BECOME = BecomeLeaderOrFollower(
    {one: AssignedState(STATE, (ONE, TWO), adding=(TWO,), is_new=one == A1) for one in (A0, B0, A1)}, IDS, BROKERS
)


def sent(request: BecomeLeaderOrFollower | UpdateMetadata | StopReplicas) -> ControlRequest:
    return ControlRequest(TWO, 11, ONE, 7, request)


@pytest.mark.parametrize("version", range(8))
def test_leader_and_isr_survives_the_wire(version: int) -> None:
    message = to_message(sent(BECOME), Versions(version, 0, 0), "INSIDE")
    got = decode(LeaderAndIsrRequest, version, encode(message, version))
    assert (got.controller_id, got.controller_epoch) == (1, 7)
    assert got.broker_epoch == (11 if version >= 2 else -1)
    assert [(one.broker_id, one.host_name, one.port) for one in got.live_leaders] == [(1, "i", 9092), (2, "p", 9094)]
    if version < 2:
        states = {(one.topic_name, one.partition_index): one for one in got.ungrouped_partition_states}
    else:
        states = {(t.topic_name, one.partition_index): one for t in got.topic_states for one in t.partition_states}
        assert [topic.topic_name for topic in got.topic_states] == ["a", "b"], "each once"
    assert states.keys() == {("a", 0), ("b", 0), ("a", 1)}
    become = leader_and_isr.from_message(got, "INSIDE")
    assert become.partitions.keys() == BECOME.partitions.keys()
    for partition, assigned in become.partitions.items():
        lost = {"adding": ()} if version < 3 else {}
        lost |= {"is_new": False} if version < 1 else {}
        assert assigned == BECOME.partitions[partition]._replace(**lost)
    assert become.topic_ids == (IDS if version >= 5 else {})
    assert [(leader.id, leader.endpoints[0].host) for leader in become.live_leaders] == [(1, "i"), (2, "p")]
    one = states["a", 1]
    assert (one.leader, one.leader_epoch, one.isr, one.partition_epoch, one.controller_epoch) == (1, 5, [1, 2], 9, 7)
    assert one.is_new == (version >= 1) and not states["a", 0].is_new
    assert one.adding_replicas == ([2] if version >= 3 else [])


@pytest.mark.parametrize("version", range(9))
@pytest.mark.parametrize("is_full", [True, False])
def test_update_metadata_survives_the_wire(version: int, is_full: bool) -> None:
    partitions = {one: PartitionMetadata(STATE, (ONE, TWO), (TWO,)) for one in (A0, B0, A1)}
    message = to_message(sent(UpdateMetadata(partitions, IDS, BROKERS, is_full)), Versions(0, version, 0))
    got = decode(UpdateMetadataRequest, version, encode(message, version))
    if version < 5:
        states = {(one.topic_name, one.partition_index): one for one in got.ungrouped_partition_states}
    else:
        states = {(t.topic_name, one.partition_index): one for t in got.topic_states for one in t.partition_states}
    assert states.keys() == {("a", 0), ("b", 0), ("a", 1)}
    assert (states["b", 0].leader, states["b", 0].zk_version, states["b", 0].replicas) == (1, 9, [1, 2])
    assert states["b", 0].offline_replicas == ([2] if version >= 4 else [])
    assert got.type == (2 if is_full and version >= 8 else 0)
    update = update_metadata.from_message(got)
    assert update.partitions == {
        one: each._replace(offline=each.offline if version >= 4 else ()) for one, each in partitions.items()
    }
    assert update.topic_ids == (IDS if version >= 7 else {})
    assert update.is_full == (is_full and version >= 8)
    assert version < 3 or update.brokers == BROKERS
    assert [broker.id for broker in update.brokers] == [1, 2]
    first = got.live_brokers[0]
    if version == 0:
        assert (first.v0_host, first.v0_port) == ("i", 9092), "who knows no listeners knows no TLS"
        return
    assert [(at.host, at.port, at.security_protocol) for at in first.endpoints] == [("o", 9093, 1), ("i", 9092, 0)]
    assert version < 2 or (first.rack, got.live_brokers[1].rack) == ("r1", None)


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("deletes", [True, False])
def test_stop_replica_survives_the_wire(version: int, deletes: bool) -> None:
    stop = StopReplicas({A0: LeaderEpoch(5), B0: EPOCH_DURING_DELETE, A1: LeaderEpoch(6)}, deletes)
    got = decode(StopReplicaRequest, version, encode(to_message(sent(stop), Versions(0, 0, version)), version))
    (back,) = stop_replica.from_message(got)
    assert back.deletes == deletes
    assert back.partitions == (stop.partitions if version >= 3 else dict.fromkeys(stop.partitions, NO_EPOCH))
    if version >= 3:
        states = [(t.topic_name, one.partition_index, one) for t in got.topic_states for one in t.partition_states]
        assert [(name, index, one.leader_epoch, one.delete_partition) for name, index, one in states] == [
            ("a", 0, 5, deletes),
            ("a", 1, 6, deletes),
            ("b", 0, -2, deletes),
        ]
        return
    assert got.delete_partitions == deletes
    if version == 0:
        found = [(one.topic_name, one.partition_index) for one in got.ungrouped_partitions]
    else:
        found = [(topic.name, index) for topic in got.topics for index in topic.partition_indexes]
    assert sorted(found) == [("a", 0), ("a", 1), ("b", 0)]


def test_response_errors_are_parsed() -> None:
    become, stop = sent(BECOME), sent(StopReplicas({A0: LeaderEpoch(5)}, deletes=True))
    failed = [
        LeaderAndIsrPartitionError(topic_name="a", partition_index=index, error_code=code)
        for index, code in ((0, 56), (1, 0))
    ]
    named = LeaderAndIsrResponse(error_code=0, partition_errors=failed)
    by_id = [
        LeaderAndIsrTopicError(topic_id=IDS[TopicName("a")], partition_errors=failed),
        LeaderAndIsrTopicError(topic_id=Uuid(b"?" * 16), partition_errors=failed),
    ]
    for response in (named, LeaderAndIsrResponse(error_code=0, topics=by_id)):
        assert errors(become, response) == {A0: ErrorCode.KAFKA_STORAGE_ERROR}
    assert errors(become, LeaderAndIsrResponse(error_code=11)) is None, "it knows a newer controller"
    assert errors(sent(UpdateMetadata({}, {}, (), is_full=False)), UpdateMetadataResponse(error_code=0)) == {}
    unknown = StopReplicaPartitionError(topic_name="a", partition_index=0, error_code=9999)
    found = errors(stop, StopReplicaResponse(error_code=0, partition_errors=[unknown]))
    assert found == {A0: ErrorCode.UNKNOWN_SERVER_ERROR}, "of a Kafka to come"


def test_one_request_stops_one_replica_and_deletes_another() -> None:
    """Controllers of Kafka send such requests since version 3."""
    states = [
        StopReplicaPartitionState(partition_index=index, leader_epoch=5, delete_partition=index == 1)
        for index in (0, 1)
    ]
    request = StopReplicaRequest(
        controller_id=1,
        controller_epoch=7,
        topic_states=[StopReplicaTopicState(topic_name="a", partition_states=states)],
    )
    assert stop_replica.from_message(request) == (
        StopReplicas({A0: LeaderEpoch(5)}, deletes=False),
        StopReplicas({A1: LeaderEpoch(5)}, deletes=True),
    )


@pytest.mark.parametrize("version", range(8))
def test_topics_without_ids_are_sent_in_a_version_with_names(version: int) -> None:
    """Such topics are older than Kafka 2.8, in a cluster whose inter.broker.protocol.version was raised later."""
    recovering = {one: each._replace(state=STATE._replace(recovery=1)) for one, each in BECOME.partitions.items()}
    become = BECOME._replace(partitions=recovering, topic_ids=IDS | {TopicName("b"): ZERO_UUID})
    versions = Versions(version, 0, 0)
    version_sent = version_of(sent(become), versions)
    assert version_sent == min(version, 4)
    request = decode(LeaderAndIsrRequest, version_sent, encode(to_message(sent(become), versions), version_sent))
    assert leader_and_isr.from_message(request).partitions.keys() == BECOME.partitions.keys()
    refused = [LeaderAndIsrPartitionError(topic_name="b", partition_index=0, error_code=ErrorCode.KAFKA_STORAGE_ERROR)]
    answer = LeaderAndIsrResponse(error_code=0, partition_errors=refused)
    assert errors(sent(become), answer) == {B0: ErrorCode.KAFKA_STORAGE_ERROR}
