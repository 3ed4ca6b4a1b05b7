"""The content of Kafka's znodes, from and to bytes.

Values are written in the newest form of Kafka 3.9, and read in every form since 0.11. A registration, for example:

    {"version":5,"host":"127.0.0.1","port":9092,"jmx_port":-1,"timestamp":"1795249618701","rack":"r1",
     "endpoints":["PLAINTEXT://127.0.0.1:9092"],"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},
     "features":{}}

Surprising: longs are strings, the host is null and the port -1 if no listener is PLAINTEXT, and partitions are
strings. Every decode_ function raises BadZnodeError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from odradek.base.units import BrokerId, LeaderEpoch, TimestampMs, TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID, from_text, to_text
from odradek.coordination.fields import BadZnodeError, Fields, encode
from odradek.core.kernel.cluster_view import PLAINTEXT, BrokerInfo, Endpoint, Replicas, TopicAssignment

# /cluster/id


def encode_cluster_id(cluster_id: str) -> bytes:
    return encode({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    return Fields.parse("The cluster id", data).text("id")


# /brokers/ids/[id]

Features = Mapping[str, tuple[int, int]]  # Name to the lowest and highest level.
_NO_FEATURES: Features = MappingProxyType({})
WITH_FEATURES = 5  # The version of a registration with the broker's supported features.


class BrokerRegistration(NamedTuple):
    """A broker's registration."""

    broker: BrokerInfo
    timestamp: TimestampMs
    jmx_port: int = -1
    features: Features = _NO_FEATURES


def encode_broker(
    broker: BrokerInfo, timestamp: TimestampMs, features: Features = _NO_FEATURES, *, version: int = WITH_FEATURES
) -> bytes:
    """Encode version 4 or 5, which brokers of Kafka 0.11 can read, too."""
    assert version in (WITH_FEATURES - 1, WITH_FEATURES), version
    # For readers of version 1: only a PLAINTEXT listener can be given without its protocol.
    plain = next((endpoint for endpoint in broker.endpoints if endpoint.protocol == PLAINTEXT), None)
    value: dict[str, object] = {
        "version": version,
        "host": None if plain is None else plain.host,
        "port": -1 if plain is None else plain.port,
        "jmx_port": -1,
        "timestamp": str(timestamp),
        "endpoints": [
            f"{endpoint.listener}://{_bracketed(endpoint.host)}:{endpoint.port}" for endpoint in broker.endpoints
        ],
        "listener_security_protocol_map": {endpoint.listener: endpoint.protocol for endpoint in broker.endpoints},
    }
    if broker.rack is not None:
        value["rack"] = broker.rack
    if version >= WITH_FEATURES:
        value["features"] = {name: {"min_version": low, "max_version": high} for name, (low, high) in features.items()}
    return encode(value)


def decode_broker(broker_id: BrokerId, data: bytes) -> BrokerRegistration:
    """Decode versions 1 to 5."""
    fields = Fields.parse("A broker's registration", data)
    levels = fields.inner("features")
    return BrokerRegistration(
        BrokerInfo(broker_id, _endpoints(fields), fields.optional_text("rack")),
        TimestampMs(fields.int64("timestamp", -1)),
        fields.int32("jmx_port", -1),
        {name: _levels(levels.inner(name)) for name in levels.names()},
    )


_ENDPOINT = re.compile(r"(?P<name>[^:/]*)://\[?(?P<host>[^\]]*?)\]?:(?P<port>-?\d{1,5})")


def _endpoints(fields: Fields) -> tuple[Endpoint, ...]:
    if fields.int32("version") == 1:
        return (Endpoint(PLAINTEXT, fields.text("host"), fields.int32("port")),)
    protocols = fields.inner("listener_security_protocol_map").text_map()
    return tuple(_endpoint(fields, text, protocols) for text in fields.texts("endpoints"))


def _endpoint(fields: Fields, text: str, protocols: Mapping[str, str]) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None:
        raise fields.bad("endpoints", "NAME://host:port")
    name = match["name"]
    # Before version 4 a listener was named by its protocol.
    return Endpoint(name, match["host"], int(match["port"]), protocols.get(name, name))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _levels(fields: Fields) -> tuple[int, int]:
    return fields.int32("min_version"), fields.int32("max_version")


# /controller and /controller_epoch


class Controller(NamedTuple):
    broker: BrokerId
    timestamp: TimestampMs
    kraft_controller_epoch: int = -1


def encode_controller(controller: Controller) -> bytes:
    broker, timestamp, epoch = controller
    return encode({"version": 2, "brokerid": broker, "timestamp": str(timestamp), "kraftControllerEpoch": epoch})


def decode_controller(data: bytes) -> Controller:
    """Decode versions 1 and 2."""
    fields = Fields.parse("The controller", data)
    timestamp = TimestampMs(fields.int64("timestamp", -1))
    return Controller(BrokerId(fields.int32("brokerid")), timestamp, fields.int32("kraftControllerEpoch", -1))


def encode_controller_epoch(epoch: int) -> bytes:
    """Encode as decimal text, not JSON."""
    return b"%d" % epoch


def decode_controller_epoch(data: bytes) -> int:
    if not data.isdigit() or len(data) > 10:
        raise BadZnodeError(f"The controller epoch is {data[:100]!r}, which must be a number.")
    return int(data)


# /brokers/topics/[topic] and its partitions


def encode_topic(assignment: TopicAssignment) -> bytes:
    value: dict[str, object] = {
        "version": 3,
        "partitions": _by_text(assignment.partitions),
        "adding_replicas": _by_text(assignment.adding),
        "removing_replicas": _by_text(assignment.removing),
    }
    if assignment.topic_id != ZERO_UUID:
        value["topic_id"] = to_text(assignment.topic_id)
    return encode(value)


def decode_topic(data: bytes) -> TopicAssignment:
    """Decode versions 1 to 3."""
    fields = Fields.parse("A topic's assignment", data)
    if not fields.has("partitions"):
        raise fields.bad("partitions", "an object")
    text = fields.optional_text("topic_id")
    try:
        topic_id = ZERO_UUID if text is None else from_text(text)
    except ValueError:
        raise fields.bad("topic_id", "22 characters of base64") from None
    names = ("partitions", "adding_replicas", "removing_replicas")
    partitions, adding, removing = (_replicas(fields.inner(name)) for name in names)
    return TopicAssignment(partitions, topic_id, adding, removing)


def _by_text(replicas: Replicas) -> dict[str, list[BrokerId]]:
    return {str(partition): list(brokers) for partition, brokers in replicas.items()}


def _replicas(fields: Fields) -> Replicas:
    found = {partition: _broker_ids(brokers) for partition, brokers in fields.replicas().items()}
    for partition, brokers in found.items():
        if min(brokers, default=0) < 0 or len({*brokers}) < len(brokers):
            raise fields.bad(str(partition), "different broker ids")
    return found


def _broker_ids(numbers: Iterable[int]) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


class PartitionState(NamedTuple):
    """The state of a partition; the version of its znode is the partition epoch.

    `recovery` is 1 while an uncleanly elected leader still has to recover (KIP-704).
    """

    leader: BrokerId
    leader_epoch: LeaderEpoch
    controller_epoch: int
    isr: tuple[BrokerId, ...]
    recovery: int = 0


def encode_partition_state(state: PartitionState) -> bytes:
    value: dict[str, object] = {
        "version": 1,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "controller_epoch": state.controller_epoch,
        "isr": list(state.isr),
    }
    if state.recovery:
        value["leader_recovery_state"] = state.recovery
    return encode(value)


def decode_partition_state(data: bytes) -> PartitionState:
    fields = Fields.parse("A partition's state", data)
    return PartitionState(
        BrokerId(fields.int32("leader")),
        LeaderEpoch(fields.int32("leader_epoch")),
        fields.int32("controller_epoch"),
        _broker_ids(fields.int32s("isr")),
        fields.int32("leader_recovery_state", 0),
    )


# /config/[type]/[name] and /config/changes/config_change_[seq]


def encode_config(config: Mapping[str, str]) -> bytes:
    return encode({"version": 1, "config": dict(config)})


def decode_config(data: bytes) -> dict[str, str]:
    """Decode a configuration, which is empty without data."""
    return Fields.parse("An entity's configuration", data).inner("config").text_map() if data else {}


def encode_config_change(entity_path: str) -> bytes:
    """Encode the entity whose configuration changed, such as topics/flights."""
    return encode({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes) -> str:
    fields = Fields.parse("A configuration change", data)
    if fields.int32("version") == 1:  # Before 0.10.1.
        return f"{fields.text('entity_type')}/{fields.text('entity_name')}"
    return fields.text("entity_path")


# /latest_producer_id_block


class ProducerIdBlock(NamedTuple):
    """The producer ids that a broker allocated last, both ends included."""

    broker: BrokerId
    first: int
    last: int


def encode_producer_ids(block: ProducerIdBlock) -> bytes:
    broker, first, last = block
    return encode({"version": 1, "broker": broker, "block_start": str(first), "block_end": str(last)})


def decode_producer_ids(data: bytes) -> ProducerIdBlock:
    fields = Fields.parse("The producer id block", data)
    block = ProducerIdBlock(BrokerId(fields.int32("broker")), fields.int64("block_start"), fields.int64("block_end"))
    if not 0 <= block.first <= block.last:
        raise fields.bad("block_end", "at or after block_start")
    return block


# Requests to the controller: /log_dir_event_notification, /isr_change_notification, /admin

_DIRECTORY_FAILED = 1


def encode_log_dir_event(broker: BrokerId) -> bytes:
    """Encode a broker's failure of a data directory."""
    return encode({"version": 1, "broker": broker, "event": _DIRECTORY_FAILED})


def decode_log_dir_event(data: bytes) -> BrokerId:
    return BrokerId(Fields.parse("A log directory event", data).int32("broker"))


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode the partitions of an ISR change, or of a preferred replica election."""
    named = [{"topic": topic, "partition": partition} for topic, partition in partitions]
    return encode({"version": 1, "partitions": named})


def decode_partitions(data: bytes) -> list[TopicPartition]:
    return [_topic_partition(entry) for entry in Fields.parse("A list of partitions", data).objects("partitions")]


def encode_reassignment(replicas: Mapping[TopicPartition, Sequence[BrokerId]]) -> bytes:
    """Encode the target replicas of partitions."""
    assignments = [
        {"topic": topic, "partition": partition, "replicas": list(brokers)}
        for (topic, partition), brokers in replicas.items()
    ]
    return encode({"version": 1, "partitions": assignments})


def decode_reassignment(data: bytes) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    assignments = Fields.parse("A reassignment", data).objects("partitions")
    return {_topic_partition(entry): _broker_ids(entry.int32s("replicas")) for entry in assignments}


def _topic_partition(fields: Fields) -> TopicPartition:
    return TopicPartition(TopicName(fields.text("topic")), fields.int32("partition"))
