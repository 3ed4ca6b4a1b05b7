"""A cluster with a listener for brokers: only it serves inter-broker requests, and clients cannot exhaust it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from odradek.base.errors import ErrorCode
from odradek.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from odradek.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from odradek.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from odradek.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from odradek.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from odradek.wire.schema.api_keys import ApiKey
from support.raw_client import Closed, RawClient
from support.serving_cluster import ServingCluster, free_ports
from support.waiting import SECONDS_MAX

BROKERS = 2
CONNECTIONS_MAX = 12
CLUSTER_ACTION = 1 << 9


class TwoListeners:
    """Brokers 1 and 2, each with a port for clients and one for brokers."""

    def __init__(self, directory: Path, configs: dict[str, str]) -> None:
        self.internal_port = free_ports(BROKERS)
        port = free_ports(BROKERS)
        listeners = f"CLIENTS://localhost:{port},BROKERS://localhost:{self.internal_port}"
        self.serving = ServingCluster(
            directory,
            BROKERS,
            port=port,
            configs={
                "listeners": listeners,
                "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
                "inter.broker.listener.name": "BROKERS",
                "auto.create.topics.enable": "true",
                **configs,
            },
        )

    def client(self, broker: int) -> RawClient:
        return RawClient(self.serving.port + broker - 1)

    def broker(self, broker: int) -> RawClient:
        return RawClient(self.internal_port + broker - 1)


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[TwoListeners]:
    made = TwoListeners(tmp_path, getattr(request, "param", {}))
    with made.serving:
        yield made
    assert "Traceback" not in made.serving.errors()


def controller(cluster: TwoListeners) -> int:
    client = AdminClient({"bootstrap.servers": cluster.serving.address, "log_level": 0})
    found: int = client.list_topics(timeout=SECONDS_MAX).controller_id
    return found


def code_of(client: RawClient, message: object, version: int, answer: type) -> ErrorCode:
    return ErrorCode(client.request(message, version, answer).error_code)


def codes(client: RawClient, broker: int) -> list[ErrorCode]:
    """Return the error codes of inter-broker requests with controller epoch 0 and broker epoch 0."""
    header = {"controller_id": 1, "controller_epoch": 0, "broker_epoch": 0, "topic_states": []}
    return [
        code_of(client, LeaderAndIsrRequest(**header, live_leaders=[]), 5, LeaderAndIsrResponse),
        code_of(client, StopReplicaRequest(**header), 3, StopReplicaResponse),
        code_of(client, UpdateMetadataRequest(**header, live_brokers=[]), 7, UpdateMetadataResponse),
        code_of(client, ControlledShutdownRequest(broker_id=broker, broker_epoch=0), 3, ControlledShutdownResponse),
        code_of(client, AllocateProducerIdsRequest(broker_id=broker, broker_epoch=0), 0, AllocateProducerIdsResponse),
        code_of(client, AlterPartitionRequest(broker_id=broker, broker_epoch=0, topics=[]), 2, AlterPartitionResponse),
        code_of(client, AddPartitionsToTxnRequest(transactions=[]), 4, AddPartitionsToTxnResponse),
    ]


def test_inter_broker_requests_are_accepted_on_their_listener_only(cluster: TwoListeners) -> None:
    leader = controller(cluster)
    with cluster.client(leader) as outer, cluster.broker(leader) as inner:
        assert set(codes(outer, leader)) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
        assert ErrorCode.CLUSTER_AUTHORIZATION_FAILED not in codes(inner, leader)

        # As in Apache Kafka, both listeners list the same APIs; and an admin may end a transaction that hangs.
        apis = [one.request(ApiVersionsRequest(), 0, ApiVersionsResponse).api_keys for one in (outer, inner)]
        assert apis[0] == apis[1]
        assert ApiKey.LEADER_AND_ISR in {one.api_key for one in apis[0]}
        assert outer.request(WriteTxnMarkersRequest(markers=[]), 1, WriteTxnMarkersResponse).markers == []

        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        may = [one.request(request, 0, DescribeClusterResponse).cluster_authorized_operations for one in (outer, inner)]
        assert may[1] - may[0] == CLUSTER_ACTION


def test_transactions_and_auto_created_topics_use_the_broker_listener(cluster: TwoListeners) -> None:
    client = AdminClient({"bootstrap.servers": cluster.serving.address, "log_level": 0})
    client.create_topics([NewTopic("t", 4, 1)])["t"].result(SECONDS_MAX)
    producer = Producer({"bootstrap.servers": cluster.serving.address, "transactional.id": "x", "log_level": 0})
    producer.init_transactions(SECONDS_MAX)
    for _ in range(2):
        producer.begin_transaction()
        for partition in range(4):
            producer.produce("t", b"value", partition=partition)
        producer.commit_transaction(SECONDS_MAX)
    sender = Producer({"bootstrap.servers": cluster.serving.address_of(3 - controller(cluster)), "log_level": 0})
    sender.produce("on-sight", b"value")
    assert sender.flush(SECONDS_MAX) == 0


@pytest.mark.parametrize(
    "cluster",
    [{"max.connections": str(CONNECTIONS_MAX)}, {"max.connections.per.ip": str(CONNECTIONS_MAX)}],
    indirect=True,
    ids=["in-all", "per-address"],
)
def test_clients_that_use_all_connections_keep_no_broker_out(cluster: TwoListeners) -> None:
    leader = controller(cluster)
    with ExitStack() as stack:
        outer = [stack.enter_context(cluster.client(leader)) for _ in range(2 * CONNECTIONS_MAX)]
        assert 0 < sum(is_served(one) for one in outer) <= CONNECTIONS_MAX
        for one in [stack.enter_context(cluster.broker(leader)) for _ in range(CONNECTIONS_MAX // 2)]:
            assert is_served(one)
        with cluster.client(3 - leader) as other:  # This broker sends a request to the controller.
            request = MetadataRequest(topics=[MetadataRequestTopic(name="on-sight")], allow_auto_topic_creation=True)
            assert other.request(request, 4, MetadataResponse).topics[0].error_code == ErrorCode.NONE


def is_served(client: RawClient) -> bool:
    try:
        client.ping()
    except (Closed, ConnectionError):
        return False
    return True
