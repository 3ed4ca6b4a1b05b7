"""The input and output of an assignor, and functions shared by assignors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple, TypeAlias

from odradek.base.uuids import Uuid

Partitions: TypeAlias = frozenset[int]
Assignment: TypeAlias = Mapping[Uuid, Partitions]  # Without topics that have no partitions.
Owned: TypeAlias = list[tuple[Uuid, int]]


class MemberSpec(NamedTuple):
    """One member.

    `owned` is its last assignment, which may include deleted partitions or partitions of another member.
    """

    topics: frozenset[Uuid]
    owned: Assignment
    instance_id: str | None = None


def kept_partitions(
    members: Mapping[str, MemberSpec], counts: Mapping[Uuid, int]
) -> tuple[dict[str, Assignment], dict[Uuid, set[int]]]:
    """Return the partitions that each member may keep, in member id order, and the rest by topic.

    If a partition has two owners, the first one keeps it. A member that keeps everything has the same Assignment
    object.
    """
    left = {topic: set(range(count)) for topic, count in counts.items()}
    kept: dict[str, Assignment] = {}
    for member_id in sorted(members):
        topics, owned, _ = members[member_id]
        mine = {}
        for topic, partitions in owned.items():
            if topic in topics and topic in left and (free := partitions & left[topic]):
                mine[topic] = free
                left[topic] -= free
        kept[member_id] = owned if mine == owned else mine
    assert kept.keys() == members.keys() and left.keys() == counts.keys()
    return kept, left


def in_order(assignment: Mapping[Uuid, Set[int]]) -> Owned:
    """List an assignment's partitions by topic, then by number."""
    return [(topic, partition) for topic in sorted(assignment) for partition in sorted(assignment[topic])]


def assignment_of(owned: Iterable[tuple[Uuid, int]]) -> Assignment:
    by_topic: dict[Uuid, list[int]] = {}
    for topic, partition in owned:
        by_topic.setdefault(topic, []).append(partition)
    return {topic: Partitions(partitions) for topic, partitions in by_topic.items()}
