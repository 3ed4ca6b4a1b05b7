"""How both brokers are configured."""

from __future__ import annotations

SETTINGS = {
    "node.id": "1",
    "log.retention.ms": "-1",  # The records' times are fixed, and so older every day.
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
}
