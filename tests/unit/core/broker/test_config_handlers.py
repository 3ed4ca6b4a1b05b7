"""Configurations that other brokers have changed, applied in slices."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.api.request.sliced_response import whole
from odradek.base.units import LeaderEpoch, TopicName, TopicPartition
from odradek.core.broker.config_handlers import apply_remote_configs
from odradek.core.broker.effects import Altered
from odradek.core.controller.broker_request_batch import StopReplicas
from support.in_memory import Harness
from support.transactional import make_topic

TOPIC = TopicName("t")


@pytest.mark.parametrize("deletes", [True, False])
def test_replica_may_be_removed_between_slices_of_a_configuration(tmp_path: Path, *, deletes: bool) -> None:
    """LeaderAndIsr of a new topic may arrive before UpdateMetadata, and the topic may be deleted in between."""
    harness = Harness(tmp_path)
    make_topic(harness, TOPIC, partitions=3)
    broker = harness.broker
    broker.view.remove(TOPIC)
    slices = apply_remote_configs(broker, Altered(0, {TOPIC: {"retention.ms": "7"}}), harness.now)
    next(slices)
    next(slices)
    removed = TopicPartition(TOPIC, 2)
    stop = StopReplicas({removed: LeaderEpoch(-1)}, deletes)
    assert whole(broker.replicas.stop(stop, harness.now)) == {}
    assert removed not in broker.partitions
    for _ in slices:
        pass
    kept = broker.partitions[TopicPartition(TOPIC, 0)]
    assert kept.log.config.retention_ms == 7
