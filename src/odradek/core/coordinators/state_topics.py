"""The topics in which coordinators keep their state, as they are made when somebody first needs them."""

from __future__ import annotations

from odradek.base.units import TopicName
from odradek.core.cluster import CONSUMER_OFFSETS, TRANSACTION_STATE, ClusterView
from odradek.core.configs.broker import BrokerConfigs
from odradek.core.topic_plans import TopicSpec


def spec(name: TopicName, configs: BrokerConfigs, view: ClusterView) -> TopicSpec:
    """What a topic of this name is to be, when it is made without being described; any other gets the defaults."""
    if name == CONSUMER_OFFSETS:
        prefix, more = "offsets.topic", {"compression.type": "producer"}
    elif name == TRANSACTION_STATE:
        prefix, more = "transaction.state.log", {"compression.type": "uncompressed"}
    else:
        return TopicSpec(name)
    replicas = _replicas(f"{prefix}.replication.factor", configs, view)
    if name == TRANSACTION_STATE:
        more["unclean.leader.election.enable"] = "false"
        more["min.insync.replicas"] = str(min(configs.int("transaction.state.log.min.isr"), replicas))
    settings = {"cleanup.policy": "compact", "segment.bytes": str(configs.int(f"{prefix}.segment.bytes")), **more}
    return TopicSpec(name, configs.int(f"{prefix}.num.partitions"), replicas, configs=settings)


def _replicas(key: str, configs: BrokerConfigs, view: ClusterView) -> int:
    """The default of three is for a cluster that has three brokers: a smaller one keeps as many as it can.

    Who sets it means it: then the topic is not made before there are so many.
    """
    wanted = configs.int(key)
    return wanted if key in configs.names_set() else min(wanted, max(len(view.brokers), 1))
