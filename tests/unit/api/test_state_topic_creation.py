"""State topics: created by the first coordinator lookup, once enough brokers for their replicas are alive."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, TopicName
from odradek.core.broker.effects import CreateTopics
from odradek.core.kernel.cluster_view import CONSUMER_OFFSETS, TRANSACTION_STATE, BrokerInfo, Endpoint
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from support.in_memory import US, Harness

CLUSTER = {
    "offsets_topic_replication_factor": "3",
    "transaction_state_log_replication_factor": "3",
    "transaction_state_log_min_isr": "2",
}
BOTH = [(0, CONSUMER_OFFSETS, None), (1, TRANSACTION_STATE, "2")]


def set_live_brokers(harness: Harness, *brokers: int) -> None:
    view = harness.broker.view
    others = {BrokerId(one): BrokerInfo(BrokerId(one), (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)) for one in brokers}
    view.brokers = {US: view.brokers[US], **others}


def finds(harness: Harness, kind: int) -> ErrorCode:
    request = FindCoordinatorRequest(key="k", key_type=kind)
    return ErrorCode(harness.request(request, 3, FindCoordinatorResponse).error_code)


@pytest.mark.parametrize(("kind", "topic", "min_isr"), BOTH)
def test_state_topics_are_not_created_with_too_few_brokers(
    tmp_path: Path, kind: int, topic: TopicName, min_isr: str | None
) -> None:
    harness = Harness(tmp_path, **CLUSTER)
    for alive in ((), (2,)):
        set_live_brokers(harness, *alive)
        assert finds(harness, kind) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert not harness.broker.take_effects(), "nothing is asked for"
    set_live_brokers(harness, 2, 3)
    harness.send(FindCoordinatorRequest(key="k", key_type=kind), 3)
    (change,) = harness.broker.take_effects()
    assert isinstance(change, CreateTopics)
    (made,) = change.topics
    assert made.name == topic
    assert {frozenset(one.replicas) for one in made.partitions} == {frozenset({US, 2, 3})}
    assert _min_isr(made.configs) == min_isr


def test_lone_broker_creates_state_topics_with_one_replica(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    for kind, topic, _ in BOTH:
        assert finds(harness, kind) is ErrorCode.NONE
        assert {one.replicas for one in harness.broker.view.topics[topic].partitions} == {(US,)}
    assert _min_isr(harness.broker.view.topics[TRANSACTION_STATE].configs) == "1"


def _min_isr(configs: Mapping[str, str]) -> str | None:
    return configs.get("min.insync.replicas")
