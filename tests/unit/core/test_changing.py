"""A change of topics is carried out bit by bit; each topic is seen whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicName, TopicPartition
from odradek.core.cluster import TopicInfo
from odradek.core.effects import Changed
from odradek.core.topic_plans import TopicSpec
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse
from support.in_memory import Harness

PARTITIONS = 5
A, B = TopicName("a"), TopicName("b")


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def planned(harness: Harness, *names: TopicName) -> dict[TopicName, TopicInfo | None]:
    broker = harness.broker
    return {name: broker.planner.new_topic(TopicSpec(name, PARTITIONS), broker.view) for name in names}


def seen(harness: Harness) -> dict[str | None, int]:
    """How many partitions each topic has for a client that asks in between; the broker has all of them, or none."""
    answer = harness.ask(MetadataRequest(topics=None), 12, MetadataResponse)
    broker = harness.broker
    for name in (A, B):
        here = [index for index in range(PARTITIONS) if TopicPartition(name, index) in broker.partitions]
        assert len(here) == (PARTITIONS if name in broker.view.topics else 0)
    return {topic.name: len(topic.partitions) for topic in answer.topics}


def test_topics_appear_whole_and_one_after_the_other(harness: Harness) -> None:
    change = harness.broker.changing(Changed(1, planned(harness, A, B)), harness.now)
    views = [seen(harness) for _ in change]
    assert views == [{}] * PARTITIONS + [{"a": PARTITIONS}] * PARTITIONS
    assert seen(harness) == {"a": PARTITIONS, "b": PARTITIONS}


def test_topics_go_whole_and_one_after_the_other(harness: Harness, tmp_path: Path) -> None:
    harness.broker.changed(Changed(1, planned(harness, A, B)), harness.now)
    views = []
    for _ in harness.broker.changing(Changed(2, {A: None, B: None}), harness.now):
        views.append(seen(harness))
        with pytest.raises(Refused) as refused:
            harness.broker.replica(A, PARTITIONS - 1)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert views[: 2 * PARTITIONS] == [{"b": PARTITIONS}] * PARTITIONS + [{}] * PARTITIONS
    assert {path.name.rpartition(".")[2].rpartition("-")[2] for path in tmp_path.glob("*-delete")} == {"delete"}
    assert len(list(tmp_path.glob("*-delete"))) == 2 * PARTITIONS


def test_a_topic_shows_its_new_partitions_when_all_are_there(harness: Harness) -> None:
    harness.broker.changed(Changed(1, planned(harness, A)), harness.now)
    topic = harness.broker.view.topics[A]
    grown = topic._replace(partitions=topic.partitions * 2)
    counts = [seen(harness) for _ in harness.broker.changing(Changed(2, {A: grown}), harness.now)]
    assert counts == [{"a": PARTITIONS}] * 2 * PARTITIONS
    assert seen(harness) == {"a": 2 * PARTITIONS}
