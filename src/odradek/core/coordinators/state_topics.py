"""The topics in which coordinators keep their state: how they are made, and which partition has which key."""

from __future__ import annotations

from odradek.base.units import TopicName
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.kernel.cluster_view import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.core.topics.topic_plans import TopicSpec

OFFSETS_FACTOR = "offsets.topic.replication.factor"
TRANSACTIONS_FACTOR, TRANSACTIONS_MIN_ISR = "transaction.state.log.replication.factor", "transaction.state.log.min.isr"
# The defaults of a broker that is alone, where Kafka's would have state topics wait for brokers that never come.
ALONE = {OFFSETS_FACTOR: "1", TRANSACTIONS_FACTOR: "1", TRANSACTIONS_MIN_ISR: "1"}
INT32_SIGN = 1 << 31
_INT32 = (1 << 32) - 1


def spec(name: TopicName, configs: BrokerConfigs) -> TopicSpec:
    """Returns how a topic of this name is made on first use: a state topic its own way, any other by the defaults."""
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
