"""The topics in which coordinators keep their state: how they are made, and which partition has which key."""

from __future__ import annotations

from odradek.base.units import TopicName
from odradek.core.cluster import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.core.configs.broker import BrokerConfigs
from odradek.core.topic_plans import TopicSpec

INT32_SIGN = 1 << 31
_INT32 = (1 << 32) - 1


def spec(name: TopicName, configs: BrokerConfigs) -> TopicSpec:
    """Returns how a topic of this name is made on first use: a state topic its own way, any other by the defaults."""
    if name == CONSUMER_OFFSETS:
        prefix, more = "offsets.topic", {"compression.type": "producer"}
    elif name == TRANSACTION_STATE:
        prefix, more = "transaction.state.log", {"compression.type": "uncompressed"}
    else:
        return TopicSpec(name)
    replicas = _replicas(f"{prefix}.replication.factor", configs)
    if name == TRANSACTION_STATE:
        more["unclean.leader.election.enable"] = "false"
        more["min.insync.replicas"] = str(min(configs.int("transaction.state.log.min.isr"), replicas))
    settings = {"cleanup.policy": "compact", "segment.bytes": str(configs.int(f"{prefix}.segment.bytes")), **more}
    return TopicSpec(name, configs.int(f"{prefix}.num.partitions"), replicas, configs=settings)


def _replicas(key: str, configs: BrokerConfigs) -> int:
    """Returns the replication factor: the one that is set, else 1, so far."""
    return configs.int(key) if key in configs.names_set() else 1


def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 code units, as a signed 32-bit number."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for place in range(0, len(data), 2):
        value = (31 * value + (data[place] << 8 | data[place + 1])) & _INT32
    return value - (1 << 32) if value & INT32_SIGN else value


def partition_for(key: str, count: int) -> int:
    """Returns which of `count` partitions has a group or a transactional id: by Java's hash of the text, as Kafka.

    The one hash without an absolute value, -2^31, counts as 0.
    """
    value = abs(java_hash(key))
    return (0 if value == INT32_SIGN else value) % count
