"""Kafka's layout of the tree: paths and names, as in Kafka 0.11 to 3.9 with ZooKeeper.

The values of the nodes are in znodes.py and exported here too, so that all of Kafka's layout is in one module. All
paths are relative to the chroot in zookeeper.connect.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote_plus

from odradek.base.units import INT32_MAX, BrokerId, TopicName
from odradek.coordination.fields import BadZnodeError
from odradek.coordination.tree import Tree, ensure_paths
from odradek.coordination.znodes import (
    WITH_FEATURES,
    BrokerRegistration,
    Controller,
    PartitionState,
    ProducerIdBlock,
    decode_broker,
    decode_cluster_id,
    decode_config,
    decode_config_change,
    decode_controller,
    decode_controller_epoch,
    decode_log_dir_event,
    decode_partition_state,
    decode_partitions,
    decode_producer_ids,
    decode_reassignment,
    decode_topic,
    encode_broker,
    encode_cluster_id,
    encode_config,
    encode_config_change,
    encode_controller,
    encode_controller_epoch,
    encode_log_dir_event,
    encode_partition_state,
    encode_partitions,
    encode_producer_ids,
    encode_reassignment,
    encode_topic,
)
from odradek.core.kernel.cluster_view import Replicas, TopicAssignment

# The values, in addition to the paths defined below.
__all__ = [
    "WITH_FEATURES",
    "BadZnodeError",
    "BrokerRegistration",
    "Controller",
    "PartitionState",
    "ProducerIdBlock",
    "Replicas",
    "TopicAssignment",
    "decode_broker",
    "decode_cluster_id",
    "decode_config",
    "decode_config_change",
    "decode_controller",
    "decode_controller_epoch",
    "decode_log_dir_event",
    "decode_partition_state",
    "decode_partitions",
    "decode_producer_ids",
    "decode_reassignment",
    "decode_topic",
    "encode_broker",
    "encode_cluster_id",
    "encode_config",
    "encode_config_change",
    "encode_controller",
    "encode_controller_epoch",
    "encode_log_dir_event",
    "encode_partition_state",
    "encode_partitions",
    "encode_producer_ids",
    "encode_reassignment",
    "encode_topic",
]

CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"

BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"

CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "config_change_"

DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"

ISR_CHANGES = "/isr_change_notification"
ISR_CHANGE_PREFIX = "isr_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = "log_dir_event_"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
FEATURE = "/feature"
MIGRATION = "/migration"

ACL = "/kafka-acl"
ACL_CHANGES = "/kafka-acl-changes"
PREFIXED_ACL = "/kafka-acl-extended/prefixed"
PREFIXED_ACL_CHANGES = "/kafka-acl-extended-changes"
ACL_CHANGE_PREFIX = "acl_changes_"
DELEGATION_TOKENS = "/delegation_token/tokens"
DELEGATION_TOKEN_CHANGES = "/delegation_token/token_changes"
DELEGATION_TOKEN_CHANGE_PREFIX = "token_change_"
CONSUMERS = "/consumers"

TOPIC_CONFIGS, CLIENT_CONFIGS, USER_CONFIGS, BROKER_CONFIGS, IP_CONFIGS = "topics", "clients", "users", "brokers", "ips"
CONFIG_TYPES = (TOPIC_CONFIGS, CLIENT_CONFIGS, USER_CONFIGS, BROKER_CONFIGS, IP_CONFIGS)
DEFAULT_ENTITY = "<default>"

_INT32_DIGITS = 10

# Paths that Kafka 3.9 creates at startup if missing.
STARTUP_PATHS = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    *(f"{CONFIG}/{type_}" for type_ in CONFIG_TYPES),
)


def ensure_startup_paths(tree: Tree) -> None:
    """Create all missing startup paths, in one change."""
    ensure_paths(tree, STARTUP_PATHS)


def broker(broker_id: BrokerId) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def broker_id(name: str) -> BrokerId:
    """Return the broker id of a registration by its node's name, or raise BadZnodeError."""
    # The length is checked first, because Python refuses to parse numbers with thousands of digits.
    if not (name.isascii() and name.isdecimal() and len(name) <= _INT32_DIGITS and int(name) <= INT32_MAX):
        raise BadZnodeError(f"{BROKER_IDS} contains {name[:100]!r}, which is not a broker id.")
    return BrokerId(int(name))


def topic(name: TopicName) -> str:
    return f"{TOPICS}/{name}"


def partitions(name: TopicName) -> str:
    return f"{TOPICS}/{name}/partitions"


def partition(name: TopicName, index: int) -> str:
    return f"{TOPICS}/{name}/partitions/{index}"


def partition_state(name: TopicName, index: int) -> str:
    return f"{TOPICS}/{name}/partitions/{index}/state"


def config(type_: str, name: str) -> str:
    """Return the path of a topic, broker or address configuration; `name` may be DEFAULT_ENTITY."""
    return f"{CONFIG}/{type_}/{name}"


def quota_config(user: str | None = None, client: str | None = None) -> str:
    """Return the path of quotas of a user, a client id, or both; DEFAULT_ENTITY means the default."""
    assert user is not None or client is not None, "quotas have an owner"
    parts = [CONFIG]
    for type_, name in ((USER_CONFIGS, user), (CLIENT_CONFIGS, client)):
        if name is not None:
            parts += [type_, name if name == DEFAULT_ENTITY else sanitized(name)]
    return "/".join(parts)


def delete_topic(name: TopicName) -> str:
    return f"{DELETE_TOPICS}/{name}"


def acl(resource_type: str, name: str, *, prefixed: bool = False) -> str:
    return f"{PREFIXED_ACL if prefixed else ACL}/{resource_type}/{name}"


def delegation_token(token_id: str) -> str:
    return f"{DELEGATION_TOKENS}/{token_id}"


def consumer_offset(group: str, name: TopicName, index: int) -> str:
    """Return the path of an offset written by OffsetCommit v0 and old consumers."""
    return f"{CONSUMERS}/{group}/offsets/{name}/{index}"


def consumer_owner(group: str, name: TopicName, index: int) -> str:
    return f"{CONSUMERS}/{group}/owners/{name}/{index}"


def consumer_id(group: str, consumer: str) -> str:
    return f"{CONSUMERS}/{group}/ids/{consumer}"


_SEQUENCE = re.compile(r"\d{10}")


def sequence_of(name: str, prefix: str) -> int:
    """Return the number of a sequential node, or raise ValueError.

    For change notifications it is their order.
    """
    match = _SEQUENCE.fullmatch(name.removeprefix(prefix))
    if not name.startswith(prefix) or match is None:
        raise ValueError(f"{name!r} is not {prefix} followed by ten digits")
    return int(match[0])


def sanitized(name: str) -> str:
    """Encode a user or client id as a node's name: URL-encoded as in Java, so both find the quotas."""
    return quote(name, safe="").replace("~", "%7E")


def unsanitized(text: str) -> str:
    return unquote_plus(text)
