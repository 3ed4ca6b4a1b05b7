"""The topics of coordinator state: their settings, and the mapping of keys to partitions."""

from __future__ import annotations

from odradek.base.units import TopicName
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.kernel.cluster_view import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.core.topics.topic_plans import TopicSpec

OFFSETS_FACTOR = "offsets.topic.replication.factor"
TRANSACTIONS_FACTOR, TRANSACTIONS_MIN_ISR = "transaction.state.log.replication.factor", "transaction.state.log.min.isr"
# Defaults for a single broker; with Kafka's defaults, state topics would wait for brokers that never start.
ALONE = {OFFSETS_FACTOR: "1", TRANSACTIONS_FACTOR: "1", TRANSACTIONS_MIN_ISR: "1"}
INT32_SIGN = 1 << 31
_INT32 = (1 << 32) - 1


def spec(name: TopicName, configs: BrokerConfigs) -> TopicSpec:
    """Return the spec for creating a topic on first use; topics other than state topics use defaults."""
    if name == CONSUMER_OFFSETS:
        prefix, factor, more = "offsets.topic", OFFSETS_FACTOR, {"compression.type": "producer"}
    elif name == TRANSACTION_STATE:
        prefix, factor, more = "transaction.state.log", TRANSACTIONS_FACTOR, {"compression.type": "uncompressed"}
        more["unclean.leader.election.enable"] = "false"
        more["min.insync.replicas"] = str(configs.int(TRANSACTIONS_MIN_ISR))
    else:
        return TopicSpec(name)
    settings = {"cleanup.policy": "compact", "segment.bytes": str(configs.int(f"{prefix}.segment.bytes")), **more}
    return TopicSpec(name, configs.int(f"{prefix}.num.partitions"), configs.int(factor), configs=settings)


def java_hash(text: str) -> int:
    """Return Java's String.hashCode: over UTF-16 code units, as a signed 32-bit number."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for place in range(0, len(data), 2):
        value = (31 * value + (data[place] << 8 | data[place + 1])) & _INT32
    return value - (1 << 32) if value & INT32_SIGN else value


def partition_for(key: str, count: int) -> int:
    """Return the partition of a group or transactional id out of `count`, by Java's hash as in Kafka.

    The one hash without an absolute value, -2^31, becomes 0.
    """
    value = abs(java_hash(key))
    assert value <= INT32_SIGN
    index = (0 if value == INT32_SIGN else value) % count
    assert 0 <= index < count
    return index
