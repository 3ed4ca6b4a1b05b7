"""Broker epochs in requests between brokers: Apache Kafka 3.9.1 and Odradek return the same responses.

The tables contain the responses of an Apache Kafka 3.9.1 cluster under ZooKeeper. Kafka ends a ControlledShutdown for
an unregistered broker with a known epoch in an exception (UNKNOWN_SERVER_ERROR); Odradek returns STALE_BROKER_EPOCH.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kafka_zookeeper import OLD_KAFKA, V3
from mixed_cluster import OURS, THEIRS, MixedCluster

from odradek.base.errors import ErrorCode
from odradek.base.units import INT32_MAX, INT64_MAX, BrokerId, TopicName
from odradek.base.uuids import Uuid
from odradek.coordination import tree_layout as layout
from odradek.wire.client_codec import decode_response, encode_request
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from odradek.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from odradek.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from support.raw_client import RawClient

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("asks a running Apache Kafka the same as this broker")]

TOPIC = TopicName("t")
CONTROLLER, LEADER, UNKNOWN_BROKER = 1, 2, 99
APIS: dict[str, tuple[type, range, bool]] = {  # The answer, the versions, and True for what a controller is asked.
    "AlterPartition": (AlterPartitionResponse, range(4), True),
    "AllocateProducerIds": (AllocateProducerIdsResponse, range(1), True),
    "LeaderAndIsr": (LeaderAndIsrResponse, range(8), False),
    "StopReplica": (StopReplicaResponse, range(5), False),
    "UpdateMetadata": (UpdateMetadataResponse, range(9), False),
    "ControlledShutdown": (ControlledShutdownResponse, range(4), True),
}
FIRST_WITH_EPOCH = {"LeaderAndIsr": 2, "StopReplica": 1, "UpdateMetadata": 5, "ControlledShutdown": 2}

OK, STALE = ErrorCode.NONE, ErrorCode.STALE_BROKER_EPOCH
UNAVAILABLE, UNREGISTERED = ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.BROKER_ID_NOT_REGISTERED
CRASH = ErrorCode.UNKNOWN_SERVER_ERROR

# For the epochs that `sent` returns: -2^63, -2, -1, 0, 1, own - 1, own, own + 1, 10^15, 2^63 - 1.
EXACT = (STALE, STALE, STALE, STALE, STALE, STALE, OK, STALE, STALE, STALE)
NOT_OLDER = (STALE, STALE, OK, STALE, STALE, STALE, OK, OK, OK, OK)
OF_UNKNOWN_BROKER = (CRASH, CRASH, UNAVAILABLE, CRASH, CRASH, CRASH, CRASH, CRASH, CRASH, CRASH)
ANSWERS = {
    "AlterPartition": EXACT,
    "AlterPartition of nobody": (STALE,) * len(EXACT),
    "AllocateProducerIds": EXACT,
    "AllocateProducerIds of nobody": (UNREGISTERED,) * len(EXACT),
    "LeaderAndIsr": NOT_OLDER,
    "StopReplica": NOT_OLDER,
    "UpdateMetadata": NOT_OLDER,
    "ControlledShutdown of nobody": OF_UNKNOWN_BROKER,
    "ControlledShutdown": NOT_OLDER,
}
WITHOUT_EPOCH = {  # Versions that carry none.
    "LeaderAndIsr": OK,
    "StopReplica": OK,
    "UpdateMetadata": OK,
    "ControlledShutdown of nobody": UNAVAILABLE,
    "ControlledShutdown": OK,
}


def _api(name: str) -> str:
    return name.partition(" ")[0]


def sent(own: int) -> tuple[int, ...]:
    return (-INT64_MAX - 1, -2, -1, 0, 1, own - 1, own, own + 1, 10**15, INT64_MAX)


class EpochRequests:
    """Connections to the controller and to another broker, which leads the topic."""

    def __init__(self, cluster: MixedCluster) -> None:
        self._cluster = cluster
        self._controller = RawClient(cluster.places[CONTROLLER].port)
        self._broker = RawClient(cluster.places[LEADER].port)
        stat = cluster.tree.exists(layout.broker(BrokerId(LEADER)))
        assert stat is not None
        self.own = stat.czxid
        self._controller_epoch = layout.decode_controller_epoch(cluster.tree.get(layout.CONTROLLER_EPOCH)[0])
        assignment = layout.decode_topic(cluster.tree.get(layout.topic(TOPIC))[0])
        self._topic_id: Uuid = assignment.topic_id

    def close(self) -> None:
        self._controller.close()
        self._broker.close()

    def table(self) -> dict[str, dict[int, tuple[ErrorCode, ...]]]:
        """Return the answers by API and version; ControlledShutdown comes last, since it takes the leadership."""
        return {name: {version: self._row(name, version) for version in APIS[_api(name)][1]} for name in ANSWERS}

    def _row(self, name: str, version: int) -> tuple[ErrorCode, ...]:
        answer, _, is_for_controller = APIS[_api(name)]
        client = self._controller if is_for_controller else self._broker
        broker = LEADER if name == _api(name) else UNKNOWN_BROKER
        messages = (self._message(_api(name), version, broker, epoch) for epoch in sent(self.own))
        return tuple(_code(client, message, version, answer) for message in messages)

    def of_later_controllers(self) -> set[ErrorCode]:
        """Return the broker's responses to controllers of epochs without an election."""
        later = (self._controller_epoch + 1, INT32_MAX)
        requests = [
            LeaderAndIsrRequest(controller_id=CONTROLLER, controller_epoch=one, live_leaders=[]) for one in later
        ]
        return {_code(self._broker, message, 7, LeaderAndIsrResponse) for message in requests}

    def _message(self, api: str, version: int, broker: int, epoch: int) -> object:
        header = {"controller_id": CONTROLLER, "controller_epoch": self._controller_epoch, "broker_epoch": epoch}
        match api:
            case "AlterPartition":
                return self._alter(broker, epoch, version)
            case "AllocateProducerIds":
                return AllocateProducerIdsRequest(broker_id=broker, broker_epoch=epoch)
            case "LeaderAndIsr":
                return LeaderAndIsrRequest(**header, live_leaders=[])
            case "StopReplica":
                return StopReplicaRequest(**header)
            case "UpdateMetadata":
                live = [self._live(number) for number in (CONTROLLER, LEADER)]
                return UpdateMetadataRequest(**header, live_brokers=live)
            case _:
                return ControlledShutdownRequest(broker_id=broker, broker_epoch=epoch)

    def _live(self, number: int) -> UpdateMetadataBroker:
        port = self._cluster.places[number].port
        endpoint = UpdateMetadataEndpoint(port=port, host="127.0.0.1", listener="PLAINTEXT", security_protocol=0)
        return UpdateMetadataBroker(id=number, v0_host="127.0.0.1", v0_port=port, endpoints=[endpoint])

    def _alter(self, broker: int, epoch: int, version: int) -> AlterPartitionRequest:
        """Request the current ISR."""
        stat = self._cluster.tree.exists(layout.partition_state(TOPIC, 0))
        assert stat is not None
        partition = RequestPartitionData(partition_index=0, leader_epoch=0, partition_epoch=stat.version)
        if version < 3:
            partition.new_isr = [LEADER, CONTROLLER]
        else:
            partition.new_isr_with_epochs = [BrokerState(broker_id=one) for one in (LEADER, CONTROLLER)]
        topic = RequestTopicData(topic_name=TOPIC, topic_id=self._topic_id, partitions=[partition])
        return AlterPartitionRequest(broker_id=broker, broker_epoch=epoch, topics=[topic])


def _code(client: RawClient, message: object, version: int, answer: type) -> ErrorCode:
    # The header of ControlledShutdown v0 has no room for a client id.
    has_client = not (isinstance(message, ControlledShutdownRequest) and version == 0)
    client.send(b"".join(encode_request(message, version, 1, "raw" if has_client else "")))  # type: ignore[arg-type]
    decoded: Any = decode_response(answer, version, memoryview(client.read_frame()))[1]
    return ErrorCode(decoded.error_code)


def expected(name: str, version: int, kind: str) -> tuple[ErrorCode, ...]:
    codes = ANSWERS[name]
    if version < FIRST_WITH_EPOCH.get(_api(name), 0):
        return (WITHOUT_EPOCH[name],) * len(codes)
    return codes if kind == THEIRS else tuple(STALE if code is CRASH else code for code in codes)


@pytest.mark.parametrize("kind", [THEIRS, OURS])
def test_broker_epochs_are_checked_as_in_kafka(tmp_path: Path, kind: str) -> None:
    with ExitStack() as stack:
        cluster = MixedCluster(stack, tmp_path, V3, (kind, kind), {})
        cluster.create(TOPIC, [[LEADER, CONTROLLER]])
        cluster.await_in_sync()
        requests = EpochRequests(cluster)
        stack.callback(requests.close)
        assert requests.own > 2, "or 1 would be the epoch before"
        if kind == OURS:  # Apache Kafka accepts them, and then ignores its real controller.
            assert requests.of_later_controllers() == {ErrorCode.STALE_CONTROLLER_EPOCH}
        found = requests.table()
        assert cluster.leaders(TOPIC) == [CONTROLLER], "the broker has handed over"
    for name, versions in found.items():
        for version, codes in versions.items():
            assert codes == expected(name, version, kind), (name, version)
