"""Plans for new topics and partitions: validation and placement."""

from __future__ import annotations

import itertools

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId, TopicName
from odradek.base.uuids import Uuid
from odradek.core.kernel.cluster_view import BrokerInfo, ClusterView
from odradek.core.topics.topic_plans import Planner, TopicSpec

IDS = itertools.count(1)


def planner() -> Planner:
    return Planner(3, 1, lambda: 0, lambda: Uuid(next(IDS).to_bytes(16, "big")))


def view(*brokers: int) -> ClusterView:
    return ClusterView("c", BrokerId(1), {BrokerId(n): BrokerInfo(BrokerId(n)) for n in brokers})


def with_topic(name: str, brokers: ClusterView) -> ClusterView:
    brokers.put(planner().new_topic(TopicSpec(name), brokers))
    return brokers


def refusal(spec: TopicSpec, brokers: ClusterView) -> ErrorCode:
    with pytest.raises(Refused) as refused:
        planner().new_topic(spec, brokers)
    assert refused.value.detail
    return refused.value.code


def test_new_topic_uses_broker_defaults() -> None:
    topic = planner().new_topic(TopicSpec("t"), view(1))
    assert [partition.replicas for partition in topic.partitions] == [(1,), (1,), (1,)]
    assert topic.partitions[0].leader_epoch == 0


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "ä", "a b", "x" * 250, "a\0b", "a\n"])
def test_invalid_topic_name_is_refused(name: str) -> None:
    assert refusal(TopicSpec(name), view(1)) is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (TopicSpec("t", 0), ErrorCode.INVALID_PARTITIONS),
        (TopicSpec("t", -2), ErrorCode.INVALID_PARTITIONS),
        (TopicSpec("t", 10_001), ErrorCode.INVALID_PARTITIONS),
        (TopicSpec("t", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (TopicSpec("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (TopicSpec("t", 1, -1, [(0, [1])]), ErrorCode.INVALID_REQUEST),
        (TopicSpec("t", assignments=[(1, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicSpec("t", assignments=[(0, [1, 1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicSpec("t", assignments=[(0, [9])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicSpec("t", assignments=[(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicSpec("t", assignments=[(0, [1]), (0, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicSpec("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (TopicSpec("a_b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_invalid_topic_spec_is_refused(spec: TopicSpec, code: ErrorCode) -> None:
    assert refusal(spec, with_topic("a.b", with_topic("there", view(1)))) is code


def test_partition_count_can_only_grow() -> None:
    brokers = with_topic("t", view(1))
    topic = brokers.topics[TopicName("t")]
    assert len(planner().more_partitions(topic, 5, None, brokers)) == 2
    for count in (3, 2, -1):
        with pytest.raises(Refused) as refused:
            planner().more_partitions(topic, count, None, brokers)
        assert refused.value.code is ErrorCode.INVALID_PARTITIONS
    with pytest.raises(Refused) as refused:
        planner().more_partitions(topic, 5, [[1]], brokers)
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_new_partitions_are_placed_from_the_first_replica_on() -> None:
    """As Kafka's createPartitions: from the first partition's first replica, or the next broker after it."""
    brokers = view(1, 2, 4)
    brokers.put(planner().new_topic(TopicSpec("t", assignments=[(0, [2]), (1, [1])]), brokers))

    def grown() -> list[BrokerId]:
        return [one.leader for one in planner().more_partitions(brokers.topics[TopicName("t")], 6, None, brokers)]

    assert grown() == [1, 2, 4, 1]
    for removed, leaders in ((2, [4, 1, 4, 1]), (4, [1, 1, 1, 1])):
        brokers.brokers = {number: each for number, each in brokers.brokers.items() if number != removed}
        assert grown() == leaders


def test_growth_without_live_brokers_is_refused() -> None:
    brokers = with_topic("t", view(1))
    brokers.brokers = {}
    with pytest.raises(Refused) as refused:
        planner().more_partitions(brokers.topics[TopicName("t")], 5, None, brokers)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
