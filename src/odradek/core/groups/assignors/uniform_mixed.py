"""Uniform, for members that are subscribed to different topics.

    keep what each member owns ──> give what is free to the least loaded subscriber ──> move while it evens things out

A partition moves only to a member that has at least two fewer, so what is even already stays, and it ends: each move
makes the sum of the squares of all loads smaller.  Loads are even in the end among the subscribers of each topic, as
far as that topic's partitions can make them so.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from odradek.base.uuids import Uuid
from odradek.core.groups.assignors.spec import Assignment, MemberSpec, Owned, assignment_of, in_order, kept_partitions

MOVES_PER_PARTITION_MAX = 16  # A long chain of subscriptions can pass partitions on from end to end many times.

Heap = list[tuple[int, int]]


def assign(members: Mapping[str, MemberSpec], counts: Mapping[Uuid, int]) -> dict[str, Assignment]:
    """Every partition of `counts` to one of the topic's subscribers."""
    group = _Group(members, counts)
    for topic in group.topics:
        group.hand_out(topic)
    group.balance()
    return group.assignments()


class _Group:
    """Members by their place in the order of their ids."""

    def __init__(self, members: Mapping[str, MemberSpec], counts: Mapping[Uuid, int]) -> None:
        self._ids = sorted(members)
        self._counts = counts
        self._loads = [0] * len(self._ids)
        self._subscribers: dict[Uuid, list[int]] = {topic: [] for topic in counts}
        self._topics_of = [members[member_id].topics & counts.keys() for member_id in self._ids]
        for place, topics in enumerate(self._topics_of):
            for topic in topics:
                self._subscribers[topic].append(place)
        # By topic and member, what was its own before first: it is moved last.
        self._owned: dict[Uuid, dict[int, list[int]]] = {topic: {} for topic in counts}
        self._taken: dict[Uuid, set[int]] = {topic: set() for topic in counts}
        kept, _ = kept_partitions(members, counts)
        for place, owned in enumerate(kept.values()):
            for topic, partition in in_order(owned):
                self._give(topic, partition, place)
        self._moves_left = MOVES_PER_PARTITION_MAX * sum(counts.values())
        # Those that load each of their subscribers most come first: what follows can still even it out.
        self.topics = sorted(counts, key=lambda topic: (-counts[topic] / len(self._subscribers[topic]), topic))

    def _give(self, topic: Uuid, partition: int, place: int) -> None:
        self._owned[topic].setdefault(place, []).append(partition)
        self._taken[topic].add(partition)
        self._loads[place] += 1

    def hand_out(self, topic: Uuid) -> None:
        least = [(self._loads[place], place) for place in self._subscribers[topic]]
        heapify(least)
        for partition in range(self._counts[topic]):
            if partition not in self._taken[topic]:
                load, place = heappop(least)
                self._give(topic, partition, place)
                heappush(least, (load + 1, place))

    def balance(self) -> None:
        """A topic is looked at again when the load of one of its subscribers changed."""
        waiting = dict.fromkeys(self.topics)
        while waiting and self._moves_left > 0:
            topic = next(iter(waiting))
            del waiting[topic]
            for place in self._balance(topic):
                waiting.update(dict.fromkeys(sorted(self._topics_of[place] - {topic})))

    def _balance(self, topic: Uuid) -> set[int]:
        """Whose load changed."""
        owned, loads, changed = self._owned[topic], self._loads, set[int]()
        most = [(-loads[place], place) for place, partitions in owned.items() if partitions]
        least = [(loads[place], place) for place in self._subscribers[topic]]
        heapify(most)
        heapify(least)
        while self._moves_left > 0 and (pair := self._uneven(owned, most, least)) is not None:
            giver, taker = pair
            owned.setdefault(taker, []).append(owned[giver].pop())
            loads[giver] -= 1
            loads[taker] += 1
            self._moves_left -= 1
            changed.update(pair)
            for place in pair:
                heappush(most, (-loads[place], place))
                heappush(least, (loads[place], place))
        return changed

    def _uneven(self, owned: Mapping[int, list[int]], most: Heap, least: Heap) -> tuple[int, int] | None:
        """Who can give one to whom; entries of loads that have changed since are dropped."""
        while most and (-most[0][0] != self._loads[most[0][1]] or not owned.get(most[0][1])):
            heappop(most)
        while least[0][0] != self._loads[least[0][1]]:
            heappop(least)
        if not most or -most[0][0] - least[0][0] < 2:
            return None
        return most[0][1], least[0][1]

    def assignments(self) -> dict[str, Assignment]:
        owned: list[Owned] = [[] for _ in self._ids]
        for topic, by_place in self._owned.items():
            for place, partitions in by_place.items():
                owned[place].extend((topic, partition) for partition in partitions)
        return {member_id: assignment_of(owned[place]) for place, member_id in enumerate(self._ids)}
