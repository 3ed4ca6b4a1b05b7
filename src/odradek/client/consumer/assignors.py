"""Partition assignors of classic group leaders, compatible with Kafka's clients.

range        each topic separately: contiguous partitions, one more for the first members if there is a remainder
roundrobin   the partitions of all topics in turn, skipping members that do not subscribe to the topic

Members are sorted as in Kafka: first those with an instance id, by that id, then the others by member id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from odradek.base.units import TopicName, TopicPartition


class Subscriber(NamedTuple):
    """A member and its subscribed topics."""

    member_id: str
    instance_id: str | None
    topics: frozenset[str]


Assignment = dict[str, list[TopicPartition]]
Assignor = Callable[[Iterable[Subscriber], Mapping[str, int]], Assignment]


def _in_order(members: Iterable[Subscriber]) -> list[Subscriber]:
    return sorted(members, key=lambda each: (each.instance_id is None, each.instance_id or each.member_id))


def assign_range(members: Iterable[Subscriber], partitions: Mapping[str, int]) -> Assignment:
    """Assign each topic separately; `partitions` maps each existing topic to its number of partitions."""
    ordered = _in_order(members)
    assigned: Assignment = {each.member_id: [] for each in ordered}
    for topic, count in sorted(partitions.items()):
        subscribers = [each.member_id for each in ordered if topic in each.topics]
        if not subscribers:
            continue
        share, remainder = divmod(count, len(subscribers))
        start = 0
        for position, member_id in enumerate(subscribers):
            end = start + share + (position < remainder)
            assigned[member_id] += [TopicPartition(TopicName(topic), index) for index in range(start, end)]
            start = end
    return assigned


def assign_roundrobin(members: Iterable[Subscriber], partitions: Mapping[str, int]) -> Assignment:
    ordered = _in_order(members)
    assigned: Assignment = {each.member_id: [] for each in ordered}
    position = 0
    for topic, count in sorted(partitions.items()):
        if not any(topic in each.topics for each in ordered):
            continue
        for index in range(count):
            while topic not in ordered[position % len(ordered)].topics:
                position += 1
            assigned[ordered[position % len(ordered)].member_id].append(TopicPartition(TopicName(topic), index))
            position += 1
    return assigned


# In the order of preference that is sent to the group.
ASSIGNORS: dict[str, Assignor] = {"range": assign_range, "roundrobin": assign_roundrobin}
