"""Inter-broker requests with every extreme value, sent to the brokers of a cluster that must keep working.

Each request is valid but for one field. Like Apache Kafka, brokers believe every valid request, whoever sends it, so
the named topic may break. All other topics work: they are created and written to, and their leaders move.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from test_testing_cluster import produce

from odradek.base.uuids import Uuid
from odradek.coordination import tree_layout as layout
from odradek.coordination.sqlite import METADATA_FILE, SqliteTree
from odradek.testing import Cluster
from odradek.testing.embedded_member import Member
from odradek.wire.catalog import APIS
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from odradek.wire.messages.controlled_shutdown import ControlledShutdownRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from odradek.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from odradek.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.wire.schema.schema import schema_of
from support.asking import leaders
from support.extremes import extremes_of
from support.raw_client import Closed, RawClient

VICTIM = "victim"
UNKNOWN_BROKER = 99
FROM_CONTROLLERS = (LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest)
VERSIONS = {
    LeaderAndIsrRequest: (4, 7),
    StopReplicaRequest: (3, 4),
    UpdateMetadataRequest: (6, 8),
    AlterPartitionRequest: (1, 2, 3),
    ControlledShutdownRequest: (3,),
    AllocateProducerIdsRequest: (0,),
    WriteTxnMarkersRequest: (0, 1),
    FetchRequest: (11, 17),
    OffsetForLeaderEpochRequest: (3, 4),
    AddPartitionsToTxnRequest: (4,),
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(default_replication_factor=3, replica_lag_time_max_ms=3_000) as cluster:
        cluster.create_topic(VICTIM, partitions=3)
        yield cluster


class Attacker:
    """A client that knows all that brokers know of the victim topic and of each other."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.controller = cluster.controller
        with SqliteTree(cluster.directory / METADATA_FILE) as tree:
            self._epoch = layout.decode_controller_epoch(tree.get(layout.CONTROLLER_EPOCH)[0])
        self._id: Uuid = self.controller.query_view(lambda view: view.topics[VICTIM].id)  # type: ignore[index]
        self._leader = leaders(self.controller.address, VICTIM)[0]
        self._brokers = [broker.id for broker in cluster]

    def message(self, kind: type, broker: Member, version: int) -> object:
        """Return a valid request of the kind for this broker."""
        header = {
            "controller_id": self.controller.id,
            "controller_epoch": self._epoch,
            "broker_epoch": broker.broker_epoch(),
        }
        if kind is LeaderAndIsrRequest:
            topic = LeaderAndIsrTopicState(topic_name=VICTIM, topic_id=self._id, partition_states=[self._state()])
            return LeaderAndIsrRequest(**header, topic_states=[topic], live_leaders=[])
        if kind is StopReplicaRequest:
            one = StopReplicaPartitionState(partition_index=2, leader_epoch=0, delete_partition=False)
            return StopReplicaRequest(
                **header, topic_states=[StopReplicaTopicState(topic_name=VICTIM, partition_states=[one])]
            )
        if kind is UpdateMetadataRequest:
            topic_state = UpdateMetadataTopicState(
                topic_name=VICTIM, topic_id=self._id, partition_states=[self._metadata()]
            )
            live = [self._live(one) for one in self._cluster]
            return UpdateMetadataRequest(**header, topic_states=[topic_state], live_brokers=live)
        return self._client_request(kind, version)

    def _client_request(self, kind: type, version: int) -> object:
        """Return a valid request of the kind between brokers, or to the controller."""
        epoch = self._cluster[self._leader].broker_epoch()
        made: dict[type, object] = {
            AlterPartitionRequest: self._alter(epoch, version),
            ControlledShutdownRequest: ControlledShutdownRequest(broker_id=UNKNOWN_BROKER, broker_epoch=0),
            AllocateProducerIdsRequest: AllocateProducerIdsRequest(broker_id=self._leader, broker_epoch=epoch),
            WriteTxnMarkersRequest: WriteTxnMarkersRequest(markers=[_marker()]),
            FetchRequest: self._fetch(version),
            OffsetForLeaderEpochRequest: OffsetForLeaderEpochRequest(replica_id=2, topics=[_epoch_request()]),
            AddPartitionsToTxnRequest: AddPartitionsToTxnRequest(transactions=[_transaction()]),
        }
        return made[kind]

    def _state(self) -> LeaderAndIsrPartitionState:
        return LeaderAndIsrPartitionState(
            partition_index=0,
            controller_epoch=self._epoch,
            leader=self._leader,
            leader_epoch=1,
            isr=self._brokers,
            partition_epoch=1,
            replicas=self._brokers,
        )

    def _metadata(self) -> UpdateMetadataPartitionState:
        return UpdateMetadataPartitionState(
            partition_index=0,
            controller_epoch=self._epoch,
            leader=self._leader,
            leader_epoch=0,
            isr=self._brokers,
            zk_version=0,
            replicas=self._brokers,
            offline_replicas=[],
        )

    def _live(self, broker: Member) -> UpdateMetadataBroker:
        host, _, port = broker.address.rpartition(":")
        endpoint = UpdateMetadataEndpoint(port=int(port), host=host, listener="PLAINTEXT", security_protocol=0)
        return UpdateMetadataBroker(id=broker.id, v0_host=host, v0_port=int(port), endpoints=[endpoint], rack=None)

    def _alter(self, epoch: int, version: int) -> AlterPartitionRequest:
        partition = RequestPartitionData(partition_index=0, leader_epoch=0, partition_epoch=0)
        if version < 3:
            partition.new_isr = [*self._brokers]
        else:
            partition.new_isr_with_epochs = [BrokerState(broker_id=one) for one in self._brokers]
        topic = RequestTopicData(topic_name=VICTIM, topic_id=self._id, partitions=[partition])
        return AlterPartitionRequest(broker_id=self._leader, broker_epoch=epoch, topics=[topic])

    def _fetch(self, version: int) -> FetchRequest:
        part = FetchPartition(partition=0, fetch_offset=0, log_start_offset=0, partition_max_bytes=1000)
        follower = next(one for one in self._brokers if one != self._leader)
        is_named = version < 15
        return FetchRequest(
            replica_id=follower if is_named else -1,
            replica_state=ReplicaState() if is_named else ReplicaState(replica_id=follower, replica_epoch=0),
            max_wait_ms=0,
            min_bytes=0,
            topics=[FetchTopic(topic=VICTIM, topic_id=self._id, partitions=[part])],
        )

    # Asking.

    def attack(self, kind: type) -> int:
        """Send every broker the request with every extreme; return the number of responses."""
        answered = 0
        for broker in self._cluster:
            for version in VERSIONS[kind]:
                base = self.message(kind, broker, version)
                answered += sum(self._try_request(broker, one, version) for one in extremes_of(base, version))
                if kind is UpdateMetadataRequest:
                    assert self._try_request(broker, base, version), "what an impostor said of brokers is over"
        return answered

    def _try_request(self, broker: Member, message: object, version: int) -> bool:
        if is_patient(message):
            return False
        key = schema_of(type(message)).api_key
        assert key is not None
        host, _, port = broker.address.rpartition(":")
        with RawClient(int(port), host=host) as client, suppress(Closed):
            client.request(message, version, APIS[key][1])
            return True
        return False


def is_patient(message: object) -> bool:
    """Return whether the request is a fetch that would wait for longer than a test."""
    return isinstance(message, FetchRequest) and message.max_wait_ms > 1 and message.min_bytes > 0


def _marker() -> WritableTxnMarker:
    topic = WritableTxnMarkerTopic(name=VICTIM, partition_indexes=[0])
    return WritableTxnMarker(
        producer_id=7, producer_epoch=0, transaction_result=True, topics=[topic], coordinator_epoch=0
    )


def _epoch_request() -> OffsetForLeaderTopic:
    return OffsetForLeaderTopic(topic=VICTIM, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])


def _transaction() -> AddPartitionsToTxnTransaction:
    topic = AddPartitionsToTxnTopic(name=VICTIM, partitions=[0])
    return AddPartitionsToTxnTransaction(
        transactional_id="x", producer_id=7, producer_epoch=0, verify_only=True, topics=[topic]
    )


@pytest.mark.parametrize("kind", VERSIONS, ids=lambda kind: kind.__name__.removesuffix("Request"))
def test_a_cluster_keeps_working_after_every_extreme_value(cluster: Cluster, kind: type) -> None:
    assert Attacker(cluster).attack(kind) > 0
    cluster.check()
    assert [path.name for path in cluster.directory.glob("**/*evil*")] == []
    if kind not in FROM_CONTROLLERS:  # The effects of requests about the brokers themselves end soon.
        cluster.await_in_sync()
        produce(cluster.address, VICTIM, b"value", partition=0)
        cluster.await_in_sync()
    cluster.create_topic("after", partitions=3)
    for partition in range(3):
        produce(cluster.address, "after", b"value", partition=partition)
    led_by = leaders(cluster[1].address, "after")[0]
    cluster.move_leader("after", 0, next(broker for broker in cluster if broker.id != led_by))
    produce(cluster.address, "after", b"value", partition=0)
    cluster.check()
