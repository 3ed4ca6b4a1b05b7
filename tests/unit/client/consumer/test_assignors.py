"""Assignments, compared with the independent implementation in kafka-python."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.coordinator.assignors.range import RangePartitionAssignor  # type: ignore[import-untyped]  # Has no types.
from kafka.coordinator.assignors.roundrobin import (  # type: ignore[import-untyped]  # As above.
    RoundRobinPartitionAssignor,
)

from odradek.base.units import TopicName, TopicPartition
from odradek.client.consumer.assignors import ASSIGNORS, Assignment, Subscriber, assign_range, assign_roundrobin

pytestmark = pytest.mark.slow

TOPICS = st.sampled_from(["a", "b", "c", "d"])
MEMBERS = st.dictionaries(st.sampled_from([f"m{n}" for n in range(6)]), st.frozensets(TOPICS), min_size=1)
PARTITIONS = st.dictionaries(TOPICS, st.integers(1, 7))


def subscribers(topics: Mapping[str, frozenset[str]]) -> list[Subscriber]:
    # Every other one is static, by an instance id that does not follow the order of the member ids.
    return [
        Subscriber(member, f"i{99 - number}" if number % 2 else None, those)
        for number, (member, those) in enumerate(sorted(topics.items()))
    ]


def by_kafka_python(assignor: type, members: list[Subscriber], partitions: Mapping[str, int]) -> Assignment:
    cluster = SimpleNamespace(
        partitions_for_topic=lambda topic: set(range(partitions[topic])) if topic in partitions else None
    )
    theirs = assignor.assign(  # type: ignore[attr-defined]  # Has no types.
        cluster,
        [  # In their order already: they group neighbours only.
            SimpleNamespace(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                metadata=SimpleNamespace(topics=list(each.topics)),
            )
            for each in sorted(members, key=lambda each: each.instance_id is None)
        ],
    )
    return {
        member: [
            TopicPartition(TopicName(topic), index) for topic, those in share.assigned_partitions for index in those
        ]
        for member, share in theirs.items()
    }


@pytest.mark.parametrize("name", list(ASSIGNORS))
@given(MEMBERS, PARTITIONS)
def test_every_partition_goes_to_one_member_that_wants_it(
    name: str, topics: dict[str, frozenset[str]], partitions: dict[str, int]
) -> None:
    assigned = ASSIGNORS[name](subscribers(topics), partitions)
    assert assigned.keys() == topics.keys()
    dealt = [partition for those in assigned.values() for partition in those]
    subscribed: set[str] = set().union(*topics.values()) & partitions.keys()
    assert sorted(dealt) == sorted((topic, index) for topic in subscribed for index in range(partitions[topic]))
    assert all(partition.topic in topics[member] for member, those in assigned.items() for partition in those)


@given(MEMBERS, PARTITIONS)
def test_range_matches_kafka_python(topics: dict[str, frozenset[str]], partitions: dict[str, int]) -> None:
    members = subscribers(topics)
    assert assign_range(members, partitions) == by_kafka_python(RangePartitionAssignor, members, partitions)


@given(st.sets(st.sampled_from([f"m{n}" for n in range(6)]), min_size=1), st.frozensets(TOPICS), PARTITIONS)
def test_roundrobin_matches_kafka_python(names: set[str], topics: frozenset[str], partitions: dict[str, int]) -> None:
    """All members subscribe to the same topics: kafka-python 3.0 fails if a member has to be skipped."""
    members = subscribers(dict.fromkeys(names, topics))
    assert assign_roundrobin(members, partitions) == by_kafka_python(RoundRobinPartitionAssignor, members, partitions)


def test_roundrobin_skips_members_without_the_topic() -> None:
    members = [
        Subscriber("c0", None, frozenset({"t0"})),
        Subscriber("c1", None, frozenset({"t0", "t1"})),
        Subscriber("c2", None, frozenset({"t0", "t1", "t2"})),
    ]
    dealt = assign_roundrobin(members, {"t0": 1, "t1": 2, "t2": 3})
    assert {member: list(map(str, those)) for member, those in dealt.items()} == {
        "c0": ["t0-0"],
        "c1": ["t1-0"],
        "c2": ["t1-1", "t2-0", "t2-1", "t2-2"],
    }


def test_static_members_come_first_by_their_instance_id() -> None:
    members = [
        Subscriber("z", "a-instance", frozenset({"t"})),
        Subscriber("a", None, frozenset({"t"})),
        Subscriber("b", "b-instance", frozenset({"t"})),
    ]
    assert {member: len(those) for member, those in assign_range(members, {"t": 4}).items()} == {"z": 2, "b": 1, "a": 1}
    dealt = assign_roundrobin(members, {"t": 3})
    assert [dealt[member][0].partition for member in ("z", "b", "a")] == [0, 1, 2]
