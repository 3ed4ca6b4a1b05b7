"""Transactions that are open in a partition, and that nobody knows."""

from __future__ import annotations

from pathlib import Path

from odradek.base.units import LeaderEpoch, TopicName, TopicPartition
from odradek.core.transactions.markers import hanging
from support.in_memory import Harness
from support.transactional import Transactional, make_topic


def test_their_end_does_not_fence_the_coordinator_that_writes_there_next(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    make_topic(harness, "t")
    producer = Transactional(harness)
    producer.begin()
    producer.write("t", b"a")
    name = TopicPartition(TopicName("t"), 0)
    partition = harness.broker.partitions[name]
    partition.info = partition.info._replace(leader_epoch=LeaderEpoch(5))
    ((_, marker),) = hanging({name: partition}, {})
    assert marker.producer == producer.producer
    assert marker.coordinator_epoch == 0, "that of the coordinator's own partition, not of this one"
    assert list(hanging({name: partition}, {producer.producer.id: producer.state})) == []
    harness.broker.end_transaction(name, marker, harness.now)
    assert list(hanging({name: partition}, {})) == []
