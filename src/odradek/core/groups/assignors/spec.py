"""What an assignor is told of a member, and what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from odradek.base.uuids import Uuid

Partitions: TypeAlias = frozenset[int]
Assignment: TypeAlias = Mapping[Uuid, Partitions]  # No topic without partitions.
Owned: TypeAlias = list[tuple[Uuid, int]]


class MemberSpec(NamedTuple):
    """One member.  `owned` is what it was last assigned; it may hold what is gone, or is another's too."""

    topics: frozenset[Uuid]
    owned: Assignment
    instance_id: str | None = None


def kept_partitions(members: Mapping[str, MemberSpec], counts: Mapping[Uuid, int]) -> dict[str, Owned]:
    """What each member owns and may go on to own, in order; of two owners the first one by id."""
    taken: set[tuple[Uuid, int]] = set()
    kept: dict[str, Owned] = {}
    for member_id in sorted(members):
        member = members[member_id]
        kept[member_id] = []
        for topic in sorted(member.owned.keys() & member.topics & counts.keys()):
            for partition in sorted(member.owned[topic]):
                if partition < counts[topic] and (topic, partition) not in taken:
                    taken.add((topic, partition))
                    kept[member_id].append((topic, partition))
    return kept


def assignment_of(owned: Iterable[tuple[Uuid, int]]) -> Assignment:
    by_topic: dict[Uuid, list[int]] = {}
    for topic, partition in owned:
        by_topic.setdefault(topic, []).append(partition)
    return {topic: Partitions(partitions) for topic, partitions in by_topic.items()}
