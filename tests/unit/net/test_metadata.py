"""The cluster's metadata on a real tree: what was planned on old knowledge is done as far as it still makes sense."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import INT64_MAX, BrokerId, LeaderEpoch, ProducerId, TimestampMs, TopicName
from odradek.base.uuids import Uuid
from odradek.coordination.sqlite import SqliteTree
from odradek.core.cluster import BrokerInfo, Endpoint, PartitionInfo, TopicInfo
from odradek.core.effects import CreateTopics, DeleteTopics, Growth, GrowTopics, TakeProducerIds
from odradek.net.metadata import Metadata

US = BrokerId(1)
PARTITION = PartitionInfo(US, LeaderEpoch(0), (US,), (US,))
T = TopicName("t")


@pytest.fixture
def metadata(tmp_path: Path) -> Iterator[Metadata]:
    made = joined(tmp_path)
    yield made
    made.leave()


def joined(directory: Path) -> Metadata:
    metadata = Metadata(SqliteTree(directory / "metadata.sqlite"))
    metadata.prepare(US, 1000, "cluster")
    metadata.register(BrokerInfo(US, (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)), TimestampMs(1))
    return metadata


def topic(name: str = T, partitions: int = 1, number: int = 1) -> TopicInfo:
    return TopicInfo(
        TopicName(name), Uuid(number.to_bytes(16, "big")), (PARTITION,) * partitions, {"retention.ms": "1"}
    )


def create(metadata: Metadata, *topics: TopicInfo) -> None:
    changed = metadata.change(CreateTopics(1, topics))
    assert dict(changed.topics) == {one.name: one for one in topics}
    assert not changed.refused


def test_topics_are_made_seen_and_gone(metadata: Metadata) -> None:
    create(metadata, topic("a", 3), topic("b", 1, 2))
    view = metadata.view()
    assert (view.cluster_id, view.controller, list(view.brokers)) == ("cluster", US, [US])
    assert dict(view.topics) == {"a": topic("a", 3), "b": topic("b", 1, 2)}
    changed = metadata.change(DeleteTopics(2, {TopicName("a"): topic("a").id}))
    assert dict(changed.topics) == {"a": None}
    assert list(metadata.view().topics) == ["b"]


def test_one_refused_topic_does_not_keep_the_others(metadata: Metadata) -> None:
    create(metadata, topic("a"))
    changed = metadata.change(CreateTopics(2, (topic("a", 1, 2), topic("b", 1, 3))))
    assert changed.refused[TopicName("a")].code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert list(changed.topics) == ["b"]
    assert metadata.topics()[TopicName("a")].id == topic("a").id


def test_growth_of_a_topic_that_is_gone(metadata: Metadata) -> None:
    create(metadata, topic("a"))
    growth = {TopicName("a"): Growth(1, (PARTITION,)), TopicName("gone"): Growth(1, (PARTITION,))}
    changed = metadata.change(GrowTopics(2, growth))
    assert changed.refused[TopicName("gone")].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    grown = changed.topics[TopicName("a")]
    assert grown is not None and len(grown.partitions) == 2


@pytest.mark.parametrize(("wanted", "found"), [(2, None), (3, None), (5, 5)])
def test_growth_that_was_planned_before_another(metadata: Metadata, wanted: int, found: int | None) -> None:
    """Both saw one partition: the first makes three of it, the second as many as it said and no more."""
    create(metadata, topic(partitions=1))
    metadata.change(GrowTopics(2, {T: Growth(1, (PARTITION,) * 2)}))
    changed = metadata.change(GrowTopics(3, {T: Growth(1, (PARTITION,) * (wanted - 1))}))
    if found is None:
        assert changed.refused[T].code == ErrorCode.INVALID_PARTITIONS
    assert len(metadata.topics()[T].partitions) == (found or 3)


def test_a_topic_made_again_is_not_deleted_for_the_one_before(metadata: Metadata) -> None:
    create(metadata, topic(number=1))
    metadata.change(DeleteTopics(2, {T: topic(number=1).id}))
    create(metadata, topic(number=2))
    late = metadata.change(DeleteTopics(3, {T: topic(number=1).id}))
    assert late.refused[T].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert metadata.topics()[T].id == topic(number=2).id


def test_logs_from_elsewhere_are_adopted_once(tmp_path: Path) -> None:
    """Only by a tree that never had a topic: else the last one that was deleted could come back."""
    metadata = joined(tmp_path)
    assert not metadata.had_topics
    metadata.adopt([topic(partitions=2)])
    assert metadata.topics() == {T: topic(partitions=2)}
    metadata.change(DeleteTopics(2, {T: topic().id}))
    metadata.leave()
    metadata = joined(tmp_path)
    assert metadata.had_topics
    assert not metadata.topics()
    metadata.leave()


def test_a_broker_without_an_id_gets_one_that_nobody_had(tmp_path: Path) -> None:
    metadata = Metadata(SqliteTree(tmp_path / "metadata.sqlite"))
    first = metadata.prepare(None, 1000, "cluster")
    second = metadata.prepare(None, 1000, "another")
    assert (first.broker_id, second.broker_id) == (1001, 1002)
    assert second.cluster_id == "cluster"
    metadata.leave()


def test_producer_ids_begin_above_those_that_are_used(metadata: Metadata) -> None:
    used = [0, 0, 1001, 2000, INT64_MAX, INT64_MAX]  # The last ones some producer made up.
    blocks = [metadata.take_producer_ids(US, TakeProducerIds(ProducerId(at_least))) for at_least in used]
    first = [0, 1000, 2000, 3000, 4000, 5000]
    assert blocks == [(one, one + 999) for one in first]
