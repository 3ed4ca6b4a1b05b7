"""The coordinator's assignors: each partition to one subscriber, evenly, with as few moves as possible."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.uuids import Uuid
from odradek.core.groups.assignors import ASSIGNORS, Assignor
from odradek.core.groups.assignors.spec import Assignment, MemberSpec, Partitions

pytestmark = pytest.mark.slow

Members = dict[str, MemberSpec]
Counts = dict[Uuid, int]


def topic(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def members(count: int, *topics: int) -> Members:
    return {f"m{place:04}": MemberSpec(frozenset(map(topic, topics)), {}) for place in range(count)}


def after(group: Members, assigned: Mapping[str, Assignment]) -> Members:
    """Return the same members, each owning its assigned partitions."""
    return {member_id: group[member_id]._replace(owned=assigned[member_id]) for member_id in group}


def pairs(assigned: Mapping[str, Assignment]) -> dict[tuple[Uuid, int], str]:
    """Return the owner of each partition; no partition has two."""
    owners: dict[tuple[Uuid, int], str] = {}
    for member_id, by_topic in assigned.items():
        for topic_id, partitions in by_topic.items():
            assert partitions, "no topic without partitions"
            for partition in partitions:
                assert (topic_id, partition) not in owners
                owners[topic_id, partition] = member_id
    return owners


def sizes(assigned: Mapping[str, Assignment]) -> list[int]:
    return [sum(map(len, by_topic.values())) for by_topic in assigned.values()]


def moved(before: Mapping[str, Assignment], assigned: Mapping[str, Assignment]) -> int:
    owners = pairs(before)
    return sum(owners.get(partition, owner) != owner for partition, owner in pairs(assigned).items())


topics = st.integers(1, 5).map(topic)
owned = st.dictionaries(topics, st.frozensets(st.integers(0, 9), min_size=1), max_size=4)


@st.composite
def groups(draw: st.DrawFn, same: bool = False) -> tuple[Members, Counts]:
    """Draw members that may claim partitions of other members or of deleted topics."""
    common = draw(st.frozensets(topics, min_size=1))
    subscriptions = st.just(common) if same else st.frozensets(topics)
    instances = st.none() | st.uuids().map(str)
    specs = st.builds(MemberSpec, subscriptions, owned, instances)
    group = draw(st.dictionaries(st.text("abcdefgh", min_size=1, max_size=3), specs, min_size=1, max_size=8))
    subscribed = sorted({topic_id for spec in group.values() for topic_id in spec.topics})
    return group, {topic_id: draw(st.integers(0, 12)) for topic_id in subscribed}


@pytest.mark.share(2)
@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=groups())
def test_every_partition_is_assigned_to_one_of_its_subscribers(name: str, group: tuple[Members, Counts]) -> None:
    specs, counts = group
    assigned = ASSIGNORS[name](specs, counts)
    assert assigned.keys() == specs.keys()
    owners = pairs(assigned)
    assert owners.keys() == {(topic_id, n) for topic_id, count in counts.items() for n in range(count)}
    assert all(topic_id in specs[member_id].topics for (topic_id, _), member_id in owners.items())


@pytest.mark.share(2)
@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=groups())
def test_the_order_of_the_members_does_not_matter(name: str, group: tuple[Members, Counts]) -> None:
    specs, counts = group
    turned = dict(reversed(specs.items())), dict(reversed(counts.items()))
    assert ASSIGNORS[name](*turned) == ASSIGNORS[name](specs, counts)


@pytest.mark.share(2)
@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=groups())
def test_repeated_assignment_moves_nothing(name: str, group: tuple[Members, Counts]) -> None:
    specs, counts = group
    assigned = ASSIGNORS[name](specs, counts)
    assert ASSIGNORS[name](after(specs, assigned), counts) == assigned


@given(group=groups(same=True))
def test_uniform_is_balanced_within_one(group: tuple[Members, Counts]) -> None:
    specs, counts = group
    loads = sizes(ASSIGNORS["uniform"](specs, counts))
    assert max(loads) - min(loads) <= 1


@given(group=groups(same=True))
def test_uniform_reuses_the_assignments_of_unchanged_members(group: tuple[Members, Counts]) -> None:
    specs, counts = group
    assigned = ASSIGNORS["uniform"](specs, counts)
    again = ASSIGNORS["uniform"](after(specs, assigned), counts)
    assert all(again[member_id] is assigned[member_id] for member_id in specs)


@given(st.integers(1, 6), st.lists(st.integers(0, 8), max_size=30))
def test_uniform_moves_as_few_partitions_as_possible(count: int, owners: list[int]) -> None:
    """Start from any owners, some of which have left; keep as many partitions as each member's share allows."""
    group = members(count, 1)
    for place, member_id in enumerate(group):
        mine = Partitions(partition for partition, owner in enumerate(owners) if owner == place)
        group[member_id] = group[member_id]._replace(owned={topic(1): mine} if mine else {})
    assigned = ASSIGNORS["uniform"](group, {topic(1): len(owners)})
    least, extra = divmod(len(owners), count)
    had = [owners.count(place) for place in range(count)]
    most = sum(min(one, least) for one in had) + min(sum(one > least for one in had), extra)
    kept = sum(
        len(spec.owned.get(topic(1), Partitions()) & assigned[m].get(topic(1), Partitions()))
        for m, spec in group.items()
    )
    assert kept == most


@given(group=groups())
def test_uniform_assignment_cannot_be_balanced_further(group: tuple[Members, Counts]) -> None:
    specs, counts = group
    assigned = ASSIGNORS["uniform"](specs, counts)
    loads = dict(zip(assigned, sizes(assigned), strict=True))
    for (topic_id, _), owner in pairs(assigned).items():
        for member_id, spec in specs.items():
            if topic_id in spec.topics:
                assert loads[owner] - loads[member_id] <= 1


def test_uniform_takes_from_all_for_a_new_member() -> None:
    counts = {topic(1): 12}
    before = ASSIGNORS["uniform"](members(3, 1), counts)
    group = after(members(3, 1), before) | {"new": MemberSpec(frozenset({topic(1)}), {})}
    assigned = ASSIGNORS["uniform"](group, counts)
    assert sizes(assigned) == [3, 3, 3, 3]
    assert moved(before, assigned) == 3


def test_uniform_moves_only_the_partitions_of_a_leaving_member() -> None:
    counts = {topic(1): 7, topic(2): 5}
    before = ASSIGNORS["uniform"](members(4, 1, 2), counts)
    group = {member_id: spec for member_id, spec in after(members(4, 1, 2), before).items() if member_id != "m0000"}
    assigned = ASSIGNORS["uniform"](group, counts)
    assert sizes(assigned) == [4, 4, 4]
    assert moved({m: before[m] for m in group}, assigned) == 0


def test_uniform_spreads_each_topic() -> None:
    assigned = ASSIGNORS["uniform"](members(2, 1, 2), {topic(1): 2, topic(2): 2})
    assert [sorted(map(len, by_topic.values())) for by_topic in assigned.values()] == [[1, 1], [1, 1]]


def test_uniform_relieves_the_only_subscriber_of_another_topic() -> None:
    group = {
        "a": MemberSpec(frozenset({topic(1)}), {}),
        "b": MemberSpec(frozenset({topic(1), topic(2)}), {topic(1): Partitions(range(6))}),
    }
    assigned = ASSIGNORS["uniform"](group, {topic(1): 6, topic(2): 4})
    assert assigned["b"][topic(2)] == Partitions(range(4))
    assert len(assigned["a"][topic(1)]) == 5
    assert len(assigned["b"][topic(1)]) == 1


def test_uniform_keeps_even_assignments_of_mixed_subscriptions() -> None:
    group = {"a": MemberSpec(frozenset({topic(1)}), {topic(1): Partitions({1, 3})})}
    group["b"] = MemberSpec(frozenset({topic(1), topic(2)}), {topic(1): Partitions({0, 2})})
    assigned = ASSIGNORS["uniform"](group, {topic(1): 4, topic(2): 1})
    assert assigned["a"] == {topic(1): {1, 3}}
    assert assigned["b"] == {topic(1): {0, 2}, topic(2): {0}}


def test_ranges_are_consecutive_and_larger_for_the_first_members() -> None:
    assigned = ASSIGNORS["range"](members(3, 1), {topic(1): 8})
    assert [by_topic[topic(1)] for by_topic in assigned.values()] == [{0, 1, 2}, {3, 4, 5}, {6, 7}]


def test_ranges_of_topics_with_equal_size_are_equal() -> None:
    assigned = ASSIGNORS["range"](members(3, 1, 2), {topic(1): 8, topic(2): 8})
    assert all(by_topic[topic(1)] == by_topic[topic(2)] for by_topic in assigned.values())


def test_ranges_start_with_static_members() -> None:
    both = frozenset({topic(1)})
    group = {
        "a": MemberSpec(both, {}),
        "y": MemberSpec(both, {}, "i2"),
        "z": MemberSpec(both, {}, "i1"),
    }
    assigned = ASSIGNORS["range"](group, {topic(1): 3})
    assert {member_id: set(by_topic[topic(1)]) for member_id, by_topic in assigned.items()} == {
        "z": {0},
        "y": {1},
        "a": {2},
    }


def test_excess_members_are_assigned_nothing() -> None:
    for assign in ASSIGNORS.values():
        assert sorted(sizes(assign(members(5, 1), {topic(1): 2}))) == [0, 0, 0, 1, 1]


def test_group_without_members_or_topics_is_assigned_nothing() -> None:
    for assign in ASSIGNORS.values():
        assert assign({}, {}) == {}
        assert assign(members(2), {}) == {"m0000": {}, "m0001": {}}


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("mixed", [False, True])
def test_assignment_cost_grows_linearly_with_the_group(name: str, mixed: bool) -> None:
    assert lines_of_a_large_group(name, mixed, 200) <= 3 * lines_of_a_large_group(name, mixed, 100)


def lines_of_a_large_group(name: str, mixed: bool, count: int) -> int:
    """Return the lines run when a group doubles to the given number of members, with up to five partitions each."""
    assign: Assignor = ASSIGNORS[name]
    counts = {topic(number): count // 4 for number in range(20)}
    group = members(count, *range(20))
    if mixed:
        for place, member_id in enumerate(group):
            group[member_id] = MemberSpec(frozenset(topic(n) for n in range(20) if (n + place) % 3), {})
    first = assign(dict(list(group.items())[: count // 2]), counts)
    joined = {member_id: spec._replace(owned=first.get(member_id, {})) for member_id, spec in group.items()}
    lines, assigned = lines_run(lambda: assign(joined, counts))
    assert len(pairs(assigned)) == 5 * count
    if name == "uniform":
        assert set(sizes(assigned)) <= ({4, 5, 6} if mixed else {5})
    return lines


def lines_run(function: Callable[[], dict[str, Assignment]]) -> tuple[int, dict[str, Assignment]]:
    """Return the number of Python lines run, which does not depend on the machine's load."""
    lines = 0

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        found = function()
    finally:
        sys.settrace(before)
    return lines, found
