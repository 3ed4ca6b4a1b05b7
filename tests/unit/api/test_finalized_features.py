"""Finalized features and the APIs that depend on them, by the brokers that may join the cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.uuids import ZERO_UUID
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.malformed import Malformed
from support.between_brokers import BetweenBrokers
from support.in_memory import Harness
from support.transactional import Transactional, committed, make_topic

# Configurations with which a broker of Apache Kafka may join.
OTHERS = [
    {"inter_broker_protocol_version": "0.11.0"},
    {"inter_broker_protocol_version": "3.8"},
    {"zookeeper_connect": "zk1:2181/kafka"},
    {"zookeeper_connect": "zk1:2181/kafka", "inter_broker_protocol_version": "3.9"},
]
LAST = {ApiKey.PRODUCE: 11, ApiKey.TXN_OFFSET_COMMIT: 4, ApiKey.END_TXN: 4, ApiKey.INIT_PRODUCER_ID: 5}
OF_CONSUMER_GROUPS = {ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE}


def versions(harness: Harness) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    return harness.request(request, 4, ApiVersionsResponse)


@pytest.mark.parametrize(
    ("is_here", "node", "code"),
    [
        (None, -1, ErrorCode.NONE),
        (None, 0, ErrorCode.INVALID_REQUEST),
        (True, -1, ErrorCode.INVALID_REQUEST),
        (True, 0, ErrorCode.NONE),
        (True, 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        (False, -1, ErrorCode.INVALID_REQUEST),
        (False, 0, ErrorCode.REBOOTSTRAP_REQUIRED),
    ],
)
def test_cluster_and_broker_id_of_a_client_are_checked_together(
    tmp_path: Path, is_here: bool | None, node: int, code: ErrorCode
) -> None:
    """The results are those of Apache Kafka 4.4.0 (KIP-1242); `node` is the difference to the broker's id."""
    harness = Harness(tmp_path)
    cluster = None if is_here is None else harness.broker.view.cluster_id if is_here else "another"
    node_id = -1 if node < 0 else harness.broker.id + node
    request = ApiVersionsRequest(
        client_software_name="tests", client_software_version="1", cluster_id=cluster, node_id=node_id
    )
    assert harness.request(request, 5, ApiVersionsResponse).error_code == code


def test_lone_broker_finalizes_all_features(tmp_path: Path) -> None:
    found = versions(Harness(tmp_path))
    levels = {one.name: (one.min_version_level, one.max_version_level) for one in found.finalized_features}
    assert levels == {"group.version": (1, 1), "transaction.version": (2, 2)}
    assert {one.name: one.max_version for one in found.supported_features} == {
        "group.version": 1,
        "transaction.version": 2,
    }
    assert found.finalized_features_epoch == 0
    known = {one.api_key: one.max_version for one in found.api_keys}
    assert known.keys() >= OF_CONSUMER_GROUPS
    assert all(known[key] > last for key, last in LAST.items())


@pytest.mark.parametrize("configs", OTHERS)
def test_cluster_open_to_kafka_finalizes_no_features(tmp_path: Path, configs: dict[str, str]) -> None:
    harness = Harness(tmp_path, **configs)
    found = versions(harness)
    assert (found.finalized_features, found.supported_features, found.finalized_features_epoch) == ([], [], -1)
    known = {one.api_key: one.max_version for one in found.api_keys}
    assert not OF_CONSUMER_GROUPS.intersection(known)
    assert {key: known[key] for key in LAST} == LAST
    with pytest.raises(Malformed, match="EndTxn version 5; supported versions are 0 to 4"):
        harness.send(EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, committed=True), 5)
    with pytest.raises(Malformed, match="ConsumerGroupDescribe"):
        harness.send(ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False), 0)


@pytest.mark.parametrize("configs", OTHERS)
def test_transactions_are_stored_in_the_old_format(tmp_path: Path, configs: dict[str, str]) -> None:
    harness = Harness(tmp_path, **configs)
    make_topic(harness, "x")
    producer = Transactional(harness, version=1)
    producer.begin()
    assert producer.add(("x", 0)) == [ErrorCode.NONE]
    assert producer.write("x", b"a") == ErrorCode.NONE
    assert producer.end(commit=True, version=4) == ErrorCode.NONE
    assert committed(harness, "x") == [b"a"]
    harness.restart()
    harness.settle()
    assert producer.state.version == 0
    producer.begin()
    assert producer.producer.epoch == 1


def test_topics_have_no_ids_before_kafka_2_8(tmp_path: Path) -> None:
    for version, has_ids in (("2.7", False), ("2.8-IV0", True)):
        (tmp_path / version).mkdir()
        harness = Harness(tmp_path / version, inter_broker_protocol_version=version)
        topics = [
            CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for name in "ab"
        ]
        request = CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=False)
        for topic in harness.request(request, 7, CreateTopicsResponse).topics:
            assert topic.error_code == ErrorCode.NONE
            assert (topic.topic_id != ZERO_UUID) == has_ids
        assert set(harness.broker.view.topics) == {"a", "b"}


def test_markers_are_accepted_in_version_0_between_brokers(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    request = WriteTxnMarkersRequest(markers=[])
    with pytest.raises(Malformed):
        harness.send(request, 0)
    BetweenBrokers(harness)
    assert harness.request(request, 0, WriteTxnMarkersResponse).markers == []
