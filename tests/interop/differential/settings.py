"""Configuration of both brokers."""

from __future__ import annotations

SETTINGS = {
    "node.id": "1",
    "log.retention.ms": "-1",  # The records' timestamps are fixed, and thus older every day.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "300",  # So that scenarios need not wait long for sessions to expire.
    "group.consumer.assignment.interval.ms": "0",
    "group.max.size": "4",
    "group.consumer.max.size": "4",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "unstable.api.versions.enable": "true",  # InitProducerId v6.
}
