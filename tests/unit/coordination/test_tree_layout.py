"""Paths and values of Kafka's znodes, compared with the trees of Apache Kafka 0.11.0.3 and 3.9.1."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.units import BrokerId, LeaderEpoch, TimestampMs, TopicName, TopicPartition
from odradek.base.uuids import Uuid, from_text
from odradek.coordination import claims
from odradek.coordination import tree_layout as layout
from odradek.coordination.sqlite import SqliteTree
from odradek.coordination.tree import check_path
from odradek.coordination.tree_layout import BadZnodeError
from odradek.core.kernel.cluster_view import BrokerInfo, Endpoint

# Content of the trees, by release and path.
GOLDEN: dict[str, dict[str, dict[str, str]]] = json.loads(
    (Path(__file__).parents[2] / "golden" / "znodes.json").read_text()
)
FLIGHTS = TopicName("flights")


def data_of(release: str, path: str) -> bytes:
    return GOLDEN[release][path]["data"].encode()


def as_json(data: bytes) -> object:
    return json.loads(data)


# Paths.


def test_startup_paths_are_those_of_kafka() -> None:
    missing = set(layout.STARTUP_PATHS) - set(GOLDEN["3.9.1"])
    assert not missing
    assert len(layout.STARTUP_PATHS) == 14


def test_every_path_of_kafkas_tree_is_known() -> None:
    made = {
        *(layout.STARTUP_PATHS),
        layout.CLUSTER_ID,
        layout.CONTROLLER,
        layout.CONTROLLER_EPOCH,
        layout.FEATURE,
        layout.broker(BrokerId(1)),
        layout.topic(FLIGHTS),
        layout.partitions(FLIGHTS),
        *(layout.partition(FLIGHTS, i) for i in (0, 1)),
        *(layout.partition_state(FLIGHTS, i) for i in (0, 1)),
        layout.config(layout.TOPIC_CONFIGS, FLIGHTS),
        layout.config(layout.BROKER_CONFIGS, layout.DEFAULT_ENTITY),
        layout.quota_config(user="a b*~@ü"),
        *(f"{layout.CONFIG_CHANGES}/{layout.CONFIG_CHANGE_PREFIX}{i:010d}" for i in (0, 1)),
    }
    parents = {"", "/admin", "/brokers", "/cluster", "/config"}
    assert made | parents == set(GOLDEN["3.9.1"])


def test_paths_are_formatted_as_in_kafka() -> None:
    assert layout.quota_config(client="app") == "/config/clients/app"
    assert layout.quota_config(user="alice", client="my app") == "/config/users/alice/clients/my%20app"
    assert layout.quota_config(user=layout.DEFAULT_ENTITY) == "/config/users/<default>"
    assert layout.delete_topic(FLIGHTS) == "/admin/delete_topics/flights"
    assert layout.acl("Topic", "flights") == "/kafka-acl/Topic/flights"
    assert layout.acl("Topic", "fl", prefixed=True) == "/kafka-acl-extended/prefixed/Topic/fl"
    assert layout.delegation_token("id") == "/delegation_token/tokens/id"
    assert layout.consumer_offset("g", FLIGHTS, 3) == "/consumers/g/offsets/flights/3"
    assert layout.consumer_owner("g", FLIGHTS, 3) == "/consumers/g/owners/flights/3"
    assert layout.consumer_id("g", "c") == "/consumers/g/ids/c"


def test_sequence_number_is_parsed() -> None:
    assert layout.sequence_of("config_change_0000000012", layout.CONFIG_CHANGE_PREFIX) == 12
    for bad in ("config_change_12", "isr_change_0000000012", "config_change_x0000000001"):
        with pytest.raises(ValueError, match="followed by ten digits"):
            layout.sequence_of(bad, layout.CONFIG_CHANGE_PREFIX)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_entity_name_becomes_a_valid_node_name(name: str) -> None:
    text = layout.sanitized(name)
    assert re.fullmatch(r"[A-Za-z0-9._%-]+", text)
    assert layout.unsanitized(text) == name
    check_path(f"/config/users/x{text}")


# Values written by Kafka.


def test_registration_by_kafka_3_9_is_decoded() -> None:
    data = data_of("3.9.1", "/brokers/ids/1")
    read = layout.decode_broker(BrokerId(1), data)
    assert read.broker == BrokerInfo(BrokerId(1), (Endpoint("PLAINTEXT", "127.0.0.1", 29491),), "r1")
    assert as_json(layout.encode_broker(read.broker, read.timestamp)) == as_json(data)


def test_registration_by_kafka_0_11_is_decoded() -> None:
    read = layout.decode_broker(BrokerId(0), data_of("0.11.0.3", "/brokers/ids/0"))
    assert read.broker == BrokerInfo(BrokerId(0), (Endpoint("PLAINTEXT", "127.0.0.1", 29591),), None)
    assert read.timestamp > 1_600_000_000_000


def test_registrations_of_versions_1_and_2_are_decoded() -> None:
    one = b'{"version":1,"host":"h","port":9092,"jmx_port":-1,"timestamp":"7"}'
    two = b'{"version":2,"host":"h","port":9092,"endpoints":["SSL://h:9093"],"jmx_port":9,"timestamp":7}'
    read = layout.decode_broker(BrokerId(3), one)
    assert (read.broker.endpoints, read.timestamp) == ((Endpoint("PLAINTEXT", "h", 9092),), 7)
    read = layout.decode_broker(BrokerId(3), two)
    assert (read.broker.endpoints, read.jmx_port, read.timestamp) == ((Endpoint("SSL", "h", 9093, "SSL"),), 9, 7)


def test_registration_with_custom_listeners_round_trips() -> None:
    endpoints = (Endpoint("INSIDE", "::1", 9094, "SASL_SSL"), Endpoint("OUTSIDE", "", 9092, "SSL"))
    broker = BrokerInfo(BrokerId(1), endpoints)
    data = layout.encode_broker(broker, TimestampMs(5), {"f": (1, 2)})
    value = as_json(data)
    assert isinstance(value, dict)
    assert (value["host"], value["port"], value["endpoints"]) == (None, -1, ["INSIDE://[::1]:9094", "OUTSIDE://:9092"])
    assert "rack" not in value
    read = layout.decode_broker(BrokerId(1), data)
    assert read.broker == broker
    assert read.features == {"f": (1, 2)}


def test_version_4_of_a_registration_differs_only_in_features() -> None:
    broker = BrokerInfo(BrokerId(1), (Endpoint("PLAINTEXT", "h", 9092),), "r")
    old, new = (as_json(layout.encode_broker(broker, TimestampMs(5), version=version)) for version in (4, 5))
    assert isinstance(old, dict)
    assert new == old | {"version": 5, "features": {}}
    assert old["version"] == 4


def test_topic_assignments_are_decoded_and_encoded() -> None:
    data = data_of("3.9.1", "/brokers/topics/flights")
    read = layout.decode_topic(data)
    assert read.partitions == {0: (1,), 1: (1,)}
    assert read.topic_id == from_text("GraLw6oOQkuTNKLn-38mfQ")
    assert as_json(layout.encode_topic(read)) == as_json(data)
    older = layout.decode_topic(data_of("0.11.0.3", "/brokers/topics/flights"))
    assert list(older.partitions.items()) == [(0, (0,)), (1, (0,))]
    assert "topic_id" not in layout.encode_topic(older).decode()


def test_topic_under_reassignment_round_trips() -> None:
    one, two, three = BrokerId(1), BrokerId(2), BrokerId(3)
    topic = layout.TopicAssignment({0: (one, two, three)}, Uuid(bytes(15) + b"\x05"), {0: (three,)}, {0: (one,)})
    assert layout.decode_topic(layout.encode_topic(topic)) == topic


@pytest.mark.parametrize("release", ["3.9.1", "0.11.0.3"])
def test_partition_states_are_decoded_and_encoded(release: str) -> None:
    data = data_of(release, "/brokers/topics/flights/partitions/0/state")
    read = layout.decode_partition_state(data)
    assert (read.leader_epoch, read.controller_epoch, read.recovery) == (0, 1, 0)
    assert read.isr == (read.leader,)
    assert as_json(layout.encode_partition_state(read)) == as_json(data)
    recovering = read._replace(recovery=1, leader=BrokerId(-1), leader_epoch=LeaderEpoch(7))
    assert layout.decode_partition_state(layout.encode_partition_state(recovering)) == recovering


def test_controller_and_epoch_are_decoded_and_encoded() -> None:
    data = data_of("3.9.1", "/controller")
    read = layout.decode_controller(data)
    assert (read.broker, read.kraft_controller_epoch) == (1, -1)
    assert as_json(layout.encode_controller(read)) == as_json(data)
    assert layout.decode_controller(data_of("0.11.0.3", "/controller")).broker == 0
    assert layout.decode_controller_epoch(data_of("3.9.1", "/controller_epoch")) == 1
    assert layout.encode_controller_epoch(12) == b"12"


def test_configs_and_their_changes_are_decoded_and_encoded() -> None:
    for path in ("/config/topics/flights", "/config/brokers/<default>"):
        data = data_of("3.9.1", path)
        assert as_json(layout.encode_config(layout.decode_config(data))) == as_json(data)
    assert layout.decode_config(data_of("0.11.0.3", "/config/topics/flights")) == {"retention.ms": "1000"}
    assert layout.decode_config(b"") == {}
    change = data_of("3.9.1", "/config/changes/config_change_0000000001")
    assert layout.decode_config_change(change) == "brokers/<default>"
    assert as_json(layout.encode_config_change("brokers/<default>")) == as_json(change)
    assert layout.decode_config_change(b'{"version":1,"entity_type":"topics","entity_name":"t"}') == "topics/t"


def test_producer_id_block_and_cluster_id_are_decoded_and_encoded() -> None:
    data = data_of("3.9.1", "/latest_producer_id_block")
    assert layout.decode_producer_ids(data) == layout.ProducerIdBlock(BrokerId(1), 0, 999)
    assert as_json(layout.encode_producer_ids(layout.ProducerIdBlock(BrokerId(1), 0, 999))) == as_json(data)
    data = data_of("3.9.1", "/cluster/id")
    assert as_json(layout.encode_cluster_id(layout.decode_cluster_id(data))) == as_json(data)


def test_elections_and_reassignments_round_trip() -> None:
    partitions = [TopicPartition(FLIGHTS, 0), TopicPartition(FLIGHTS, 7)]
    assert layout.decode_partitions(layout.encode_partitions(partitions)) == partitions
    reassignment = {partitions[0]: (BrokerId(1), BrokerId(2))}
    assert layout.decode_reassignment(layout.encode_reassignment(reassignment)) == reassignment


# Invalid values.


DECODERS: dict[str, Callable[[bytes], object]] = {
    "broker": lambda data: layout.decode_broker(BrokerId(1), data),
    "cluster id": layout.decode_cluster_id,
    "config": layout.decode_config,
    "config change": layout.decode_config_change,
    "controller": layout.decode_controller,
    "controller epoch": layout.decode_controller_epoch,
    "partition state": layout.decode_partition_state,
    "partitions": layout.decode_partitions,
    "producer ids": layout.decode_producer_ids,
    "reassignment": layout.decode_reassignment,
    "topic": layout.decode_topic,
}


@pytest.mark.parametrize(
    ("what", "data", "sentence"),
    [
        ("cluster id", b"", "The cluster id is not JSON: Expecting value: line 1 column 1 (char 0)."),
        ("cluster id", b"[1]", "The cluster id is not a JSON object."),
        ("cluster id", b"{}", "The cluster id has nothing for id, which must be a string."),
        ("cluster id", b'{"id":7}', "The cluster id has 7 for id, which must be a string."),
        ("broker", b'{"version":9}', None),  # A future version with the known fields is accepted.
        (
            "broker",
            b'{"version":4,"endpoints":["x"]}',
            "A broker's registration has ['x'] for endpoints, which must be NAME://host:port.",
        ),
        ("broker", b'{"version":4,"endpoints":"x"}', "which must be a list of strings."),
        ("topic", b'{"partitions":{"x":[1]}}', "partitions of A topic's assignment has a partition 'x'"),
        ("topic", b'{"partitions":{"1":[1.5]}}', "which must be a list of integers."),
        ("topic", b'{"partitions":{"1":[2,2]}}', "has [2, 2] for 1, which must be different broker ids."),
        ("topic", b'{"partitions":{"1":[-2]}}', "has [-2] for 1, which must be different broker ids."),
        ("topic", b'{"partitions":{},"topic_id":"short"}', "which must be 22 characters of base64."),
        ("topic", b'{"version":3}', "has nothing for partitions, which must be an object."),
        ("partition state", b'{"leader":true}', "A partition's state has True for leader"),
        ("partition state", b'{"leader":2147483648}', "which must be an integer."),
        ("config", b'{"config":{"a":1}}', "has 1 for a, which must be a string."),
        ("producer ids", b'{"broker":1,"block_start":"5","block_end":"4"}', "must be at or after block_start."),
        ("controller epoch", b"one", "The controller epoch is b'one', which must be a number."),
        ("controller", b'{"brokerid":"1"}', "which must be an integer."),
    ],
)
def test_invalid_value_is_described_in_the_error(what: str, data: bytes, sentence: str | None) -> None:
    if sentence is None:
        DECODERS[what](data)
        return
    with pytest.raises(BadZnodeError) as error:
        DECODERS[what](data)
    assert sentence in str(error.value)


NAMES = st.sampled_from(
    re.findall(
        r"\w+",
        "version id host port endpoints features rack config brokerid timestamp partitions topic_id leader isr 0 1 "
        "leader_epoch controller_epoch block_start block_end broker topic partition replicas entity_path",
    )
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)
GARBAGE = st.binary(max_size=50) | VALUES.map(lambda value: json.dumps(value).encode())


@given(st.sampled_from(sorted(DECODERS)), GARBAGE)
def test_any_bytes_are_decoded_or_refused(what: str, data: bytes) -> None:
    """Any content of a znode is decoded, or refused with BadZnodeError."""
    try:
        DECODERS[what](data)
    except BadZnodeError as error:
        assert str(error).endswith(".")


def test_deeply_nested_value_is_refused() -> None:
    with pytest.raises(BadZnodeError):
        layout.decode_topic(b"[" * 100_000)


# Claims.


def test_ids_are_claimed_in_sequence(tmp_path: Path) -> None:
    with SqliteTree(tmp_path / "tree") as tree:
        assert claims.cluster_id(tree, "first") == "first"
        assert claims.cluster_id(tree, "second") == "first"
        assert [claims.broker_id(tree, 1000) for _ in range(3)] == [1001, 1002, 1003]
        assert claims.producer_ids(tree, BrokerId(1)) == layout.ProducerIdBlock(BrokerId(1), 0, 999)
        assert claims.producer_ids(tree, BrokerId(2)) == layout.ProducerIdBlock(BrokerId(2), 1000, 1999)
        assert layout.decode_producer_ids(tree.get(layout.PRODUCER_ID_BLOCK)[0]).broker == 2
        last = layout.ProducerIdBlock(BrokerId(1), 0, 2**63 - 1)
        tree.set(layout.PRODUCER_ID_BLOCK, layout.encode_producer_ids(last))
        with pytest.raises(OverflowError):
            claims.producer_ids(tree, BrokerId(1))
