"""Controller updates applied in slices: clients see a topic, whole or not at all, once all of it is led."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.api.request.sliced_response import whole
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicName, TopicPartition
from odradek.core.broker.effects import Changed
from odradek.core.controller.broker_request_batch import BecomeLeaderOrFollower, StopReplicas, UpdateMetadata
from odradek.core.kernel.cluster_view import TopicInfo
from odradek.core.topics.topic_plans import TopicSpec
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse
from support.in_memory import Harness
from support.members import coordinator
from support.own_controller import PreparedRequest

PARTITIONS = 5
A, B = TopicName("a"), TopicName("b")
Seen = dict[str | None, int]


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def planned(harness: Harness, *names: TopicName) -> dict[TopicName, TopicInfo | None]:
    broker = harness.broker
    return {name: broker.planner.new_topic(TopicSpec(name, PARTITIONS), broker.view) for name in names}


def seen(harness: Harness) -> Seen:
    """Return the number of partitions of each topic in the metadata that clients get now."""
    answer = harness.request(MetadataRequest(topics=None), 12, MetadataResponse)
    return {topic.name: len(topic.partitions) for topic in answer.topics}


def led(harness: Harness) -> int:
    return sum(1 for one in harness.broker.partitions.values() if one.leading is not None)


def counts_after_slices(harness: Harness, prepared: PreparedRequest) -> Iterator[tuple[Seen, int]]:
    """Yield the visible topics and the number of led partitions after each slice."""
    for _ in prepared.apply(harness.broker, harness.now):
        yield seen(harness), led(harness)


def test_topics_appear_whole_and_one_by_one(harness: Harness) -> None:
    become, update = harness.controller.requests_for(planned(harness, A, B))
    assert isinstance(become.sent.request, BecomeLeaderOrFollower)
    assert isinstance(update.sent.request, UpdateMetadata)
    every = 2 * PARTITIONS
    assert list(counts_after_slices(harness, become)) == [({}, count) for count in range(1, every + 1)]
    assert list(counts_after_slices(harness, update)) == [
        ({"a": PARTITIONS}, every),
        ({"a": PARTITIONS, "b": PARTITIONS}, every),
    ]


def test_files_made_by_a_thread_are_invisible_before_the_update(harness: Harness, tmp_path: Path) -> None:
    become, _ = harness.controller.requests_for(planned(harness, A))
    become.make_files(harness.broker, harness.now.wall)
    assert len(list(tmp_path.glob("a-*"))) == PARTITIONS
    assert (seen(harness), led(harness)) == ({}, 0)
    assert [count for _, count in counts_after_slices(harness, become)] == list(range(1, PARTITIONS + 1))


def test_deleted_topics_disappear_whole_and_one_by_one(harness: Harness, tmp_path: Path) -> None:
    harness.learn(Changed(1, planned(harness, A, B)))
    update, stop = harness.controller.requests_for({A: None, B: None})
    assert isinstance(stop.sent.request, StopReplicas)
    every = 2 * PARTITIONS
    views = [one for one, _ in counts_after_slices(harness, update)]
    assert views[:2] == [{"a": PARTITIONS, "b": PARTITIONS}] * 2, "each is looked at first"
    assert views[2:4] == [{"b": PARTITIONS}, {}], "then groups hear of it"
    assert not any(views[4:])
    counts = []
    for _, count in counts_after_slices(harness, stop):
        counts.append(count)
        with pytest.raises(Refused) as refused:
            harness.broker.replica(A, 0)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert counts == list(range(every - 1, -1, -1))
    assert {path.name.rpartition(".")[2].rpartition("-")[2] for path in tmp_path.glob("*-delete")} == {"delete"}
    assert len(list(tmp_path.glob("*-delete"))) == every


def test_new_partitions_appear_once_all_are_led(harness: Harness) -> None:
    harness.learn(Changed(1, planned(harness, A)))
    topic = harness.broker.view.topics[A]
    grown = topic._replace(partitions=topic.partitions * 2)
    become, update = harness.controller.requests_for({A: grown})
    assert {name.partition for name in _named(become)} == set(range(PARTITIONS, 2 * PARTITIONS))
    assert [one for one, _ in counts_after_slices(harness, become)] == [{"a": PARTITIONS}] * PARTITIONS
    assert [one for one, _ in counts_after_slices(harness, update)] == [{"a": 2 * PARTITIONS}]


def test_coordinators_load_after_all_other_partitions_are_led(tmp_path: Path) -> None:
    """Markers that finish interrupted transactions may go to any partition."""
    harness = coordinator(tmp_path)
    harness.learn(Changed(1, planned(harness, A)))
    topics = list(harness.broker.view.topics.values())
    assert topics[0].is_internal, "it is named first"
    harness.announces_topics = False
    harness.kill()
    update, become = harness.controller.initial_requests(topics)
    whole(update.apply(harness.broker, harness.now))
    every = sum(len(topic.partitions) for topic in topics)
    begun = [(led(harness), len(list(harness.broker.groups.shards))) for _ in become.apply(harness.broker, harness.now)]
    assert begun[:every] == [(count, 0) for count in range(1, every + 1)]
    assert begun[every:] == [(every, count) for count in range(1, len(topics[0].partitions) + 1)]


def _named(prepared: PreparedRequest) -> set[TopicPartition]:
    assert isinstance(prepared.sent.request, BecomeLeaderOrFollower)
    return set(prepared.sent.request.partitions)
