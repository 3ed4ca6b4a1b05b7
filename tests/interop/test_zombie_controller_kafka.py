"""Requests of a deposed controller: Odradek and Apache Kafka 3.9.1 refuse them with the same response.

Broker 1 was the controller before broker 2 was elected. In its name each broker gets, over a real socket, every
controller request in every version that both support: no visible state changes. Both carry out the requests of the
present controller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kafka_zookeeper import OLD_KAFKA, V3
from mixed_cluster import OURS, THEIRS, MixedCluster, mixed_cluster

from odradek.api.cluster import leader_and_isr, stop_replica, update_metadata
from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, LeaderEpoch, TopicName, TopicPartition
from odradek.coordination import tree_layout as layout
from odradek.core.controller.broker_request_batch import (
    AssignedState,
    BecomeLeaderOrFollower,
    ControlRequest,
    PartitionMetadata,
    StopReplicas,
    UpdateMetadata,
)
from odradek.core.kernel.cluster_view import BrokerInfo, Endpoint, LeaderAndIsr
from odradek.wire.client_codec import decode_response
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from odradek.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from odradek.wire.schema.api_keys import ApiKey
from support.raw_client import RawClient, frame

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("asks a running Apache Kafka the same as this broker")]

LED, STOPPED = TopicName("led"), TopicName("stopped")
ORDERS = [[1, 2], [2, 1]]  # Partition 0 is led by broker 1, partition 1 by broker 2.
LATER = 1000  # The difference between claimed and present leader epochs.
NOWHERE = BrokerInfo(BrokerId(9), (Endpoint("PLAINTEXT", "127.0.0.1", 9),))
# A broker of Apache Kafka follows no broker that it has not learned of.
KEYS = (ApiKey.UPDATE_METADATA, ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA)
# From these versions on a request names the broker epoch that it is for.
WITH_BROKER_EPOCH = {ApiKey.LEADER_AND_ISR: 2, ApiKey.UPDATE_METADATA: 5, ApiKey.STOP_REPLICA: 1}
ANSWERS: Mapping[ApiKey, type[Any]] = {
    ApiKey.LEADER_AND_ISR: LeaderAndIsrResponse,
    ApiKey.UPDATE_METADATA: UpdateMetadataResponse,
    ApiKey.STOP_REPLICA: StopReplicaResponse,
}
Request = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
METADATA_VERSION, OFFSETS_VERSION = 12, 7


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_deposed_controller_changes_nothing(tmp_path: Path) -> None:
    with mixed_cluster(tmp_path, V3, (OURS, THEIRS)) as cluster:
        cluster.create(LED, ORDERS, min_insync_replicas="2")
        cluster.create(STOPPED, [[1, 2]] * 5)
        cluster.write_to_all()
        deposed = epoch(cluster)
        cluster.make_controller(2)
        cluster.await_in_sync()
        with Zombie(cluster) as zombie:
            present = epoch(cluster)
            assert deposed < present
            before, states = zombie.seen(), cluster.states(LED)
            for key, version in zombie.versions():
                code = ErrorCode.STALE_CONTROLLER_EPOCH
                assert zombie.refused(key, version, deposed, zombie.registered) == code
                if version >= WITH_BROKER_EPOCH[key]:
                    code = ErrorCode.STALE_BROKER_EPOCH
                    assert zombie.refused(key, version, present, zombie.former) == code
                    assert zombie.refused(key, version, deposed, zombie.former) == code
                assert zombie.seen() == before
            assert cluster.states(LED) == states
            cluster.write_to_all()
            assert cluster.different() == []
            check_present(zombie, present)
        assert "Traceback" not in cluster.errors()


def epoch(cluster: MixedCluster) -> int:
    return layout.decode_controller_epoch(cluster.tree.get(layout.CONTROLLER_EPOCH)[0])


def check_present(zombie: Zombie, present: int) -> None:
    """Check that both brokers carry out the same requests with the present epoch."""
    for key, version in zombie.versions():
        request = zombie.request(key, version, present, zombie.registered, later=version)
        for _, answer in zombie.answers(key, version, request):
            assert answer.error_code == ErrorCode.NONE
            parts = [answer, *getattr(answer, "topics", ())]  # By topic from LeaderAndIsr 5 on.
            assert not any(one.error_code for part in parts for one in getattr(part, "partition_errors", ()))
    last = LATER + zombie.last(ApiKey.LEADER_AND_ISR)
    for number, (metadata, names, _) in zombie.seen().items():
        assert [(one.leader_id, list(one.isr_nodes)) for one in metadata[1]] == [(NOWHERE.id, [NOWHERE.id])] * 2
        assert {name for name in names if re.fullmatch(r"(led|stopped)-\d", name)} == {f"{LED}-0", f"{LED}-1"}
        for index, known in enumerate(zombie.epochs):
            codes = [zombie.epoch_answer(number, index, one) for one in (known, known + last, known + last + 1)]
            assert codes == [
                ErrorCode.FENCED_LEADER_EPOCH,
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.UNKNOWN_LEADER_EPOCH,
            ]


class Zombie:
    """Connections of a deposed controller to both brokers, for `with`."""

    def __init__(self, cluster: MixedCluster) -> None:
        self.cluster = cluster
        self._clients = {number: RawClient(place.port) for number, place in cluster.places.items()}
        stats = [cluster.tree.exists(layout.broker(BrokerId(number))) for number in cluster.places]
        epochs = [stat.czxid for stat in stats if stat is not None]
        # One number for both, so that they get the same bytes: the greater one is never a former one.
        self.registered, self.former = max(epochs), min(epochs) - 1
        self.epochs = [state.leader_epoch for state in cluster.states(LED)]
        self._ids = {
            name: layout.decode_topic(cluster.tree.get(layout.topic(name))[0]).topic_id for name in (LED, STOPPED)
        }

    def __enter__(self) -> Zombie:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.close()

    def versions(self) -> Iterator[tuple[ApiKey, int]]:
        """Yield the APIs and versions that both brokers support."""
        for key in KEYS:
            yield from ((key, version) for version in range(self.last(key) + 1))

    def last(self, key: ApiKey) -> int:
        lasts = []
        for client in self._clients.values():
            ranges = client.request(ApiVersionsRequest(), 0, ApiVersionsResponse).api_keys
            (found,) = [one for one in ranges if one.api_key == key]
            assert found.min_version == 0
            lasts.append(found.max_version)
        return min(lasts)

    def refused(self, key: ApiKey, version: int, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        """Send both brokers the same request; return the code of their responses, equal byte for byte."""
        request = self.request(key, version, controller_epoch, broker_epoch)
        (ours, answer), (theirs, _) = self.answers(key, version, request)
        assert ours == theirs, (key, version, answer)
        return ErrorCode(answer.error_code)

    def answers(self, key: ApiKey, version: int, request: Request) -> list[tuple[bytes, Any]]:
        """Return each broker's response to the same bytes."""
        found = []
        for client in self._clients.values():
            client.send(frame(request, version))
            data = client.read_frame()
            found.append((data, decode_response(ANSWERS[key], version, memoryview(data))[1]))
        return found

    def request(
        self, key: ApiKey, version: int, controller_epoch: int, broker_epoch: int, *, later: int = 0
    ) -> Request:
        def sent(request: BecomeLeaderOrFollower | UpdateMetadata | StopReplicas) -> ControlRequest:
            return ControlRequest(BrokerId(1), broker_epoch, BrokerId(1), controller_epoch, request)

        states = {
            TopicPartition(LED, index): LeaderAndIsr(
                NOWHERE.id,
                LeaderEpoch(known + LATER + later),
                (NOWHERE.id,),
                controller_epoch=controller_epoch,
                partition_epoch=LATER + later,
            )
            for index, known in enumerate(self.epochs)
        }
        match key:
            case ApiKey.LEADER_AND_ISR:
                both = BrokerId(1), BrokerId(2)
                assigned = {one: AssignedState(state, both) for one, state in states.items()}
                become = BecomeLeaderOrFollower(assigned, {LED: self._ids[LED]}, (NOWHERE,))
                return leader_and_isr.to_message(sent(become), become, version, "PLAINTEXT")
            case ApiKey.UPDATE_METADATA:
                metadata = {one: PartitionMetadata(state, (NOWHERE.id,), ()) for one, state in states.items()}
                update = UpdateMetadata(metadata, {LED: self._ids[LED]}, (NOWHERE,), is_full=False)
                return update_metadata.to_message(sent(update), update, version)
            case _:  # One partition for each version.
                stop = StopReplicas({TopicPartition(STOPPED, version): LeaderEpoch(LATER)}, deletes=True)
                return stop_replica.to_message(sent(stop), stop, version)

    # Visible state.

    def seen(self) -> dict[int, tuple[tuple[object, Any], set[str], list[ErrorCode]]]:
        """Return what each broker reports to clients, its folder, and the epochs in which it leads."""
        return {number: (self._metadata(number), self._names(number), self._leads(number)) for number in self._clients}

    def _metadata(self, number: int) -> tuple[object, Any]:
        topics = [MetadataRequestTopic(name=LED)]
        metadata_request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        response = self._clients[number].request(metadata_request, METADATA_VERSION, MetadataResponse)
        brokers = sorted((one.node_id, one.host, one.port) for one in response.brokers)
        (topic,) = response.topics
        return (response.controller_id, brokers), sorted(topic.partitions, key=lambda one: one.partition_index)

    def _names(self, number: int) -> set[str]:
        return {path.name for path in self.cluster.places[number].data.iterdir() if path.is_dir()}

    def _leads(self, number: int) -> list[ErrorCode]:
        return [self.epoch_answer(number, index, known) for index, known in enumerate(self.epochs)]

    def epoch_answer(self, number: int, index: int, leader_epoch: int) -> ErrorCode:
        """Return the response to a request that takes the broker for the leader, or a follower, in this epoch."""
        partition = ListOffsetsPartition(partition_index=index, current_leader_epoch=leader_epoch, timestamp=-1)
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name=LED, partitions=[partition])]
        )
        answer = self._clients[number].request(request, OFFSETS_VERSION, ListOffsetsResponse)
        return ErrorCode(answer.topics[0].partitions[0].error_code)
