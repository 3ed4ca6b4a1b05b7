"""The uniform assignor, which balances members to within one partition and keeps existing assignments.

If all members have the same subscriptions, each has one exact quota and the minimum number of moves is known in
advance. Members with different subscriptions are balanced step by step (_Balancing):

    keep owned partitions ──> give free ones to the least loaded subscriber ──> move partitions while that evens loads

A partition moves only to a member that has at least two fewer, so even loads stay as they are. The process ends
because each move reduces the sum of the squares of all loads. In the end, loads are even among the subscribers of
each topic, as far as that topic's partitions allow.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from odradek.base.uuids import Uuid
from odradek.core.groups.assignors.spec import Assignment, MemberSpec, Owned, assignment_of, in_order, kept_partitions

MOVES_PER_PARTITION_MAX = 16  # A long chain of subscriptions can pass partitions from end to end many times.

Heap = list[tuple[int, int]]


def assign(members: Mapping[str, MemberSpec], counts: Mapping[Uuid, int]) -> dict[str, Assignment]:
    """Assign every partition of `counts` to one of the topic's subscribers."""
    if len({member.topics for member in members.values()}) > 1:
        return _assign_mixed(members, counts)
    if not members:
        return {}
    kept, left = kept_partitions(members, counts)
    loads = {member_id: sum(map(len, owned.values())) for member_id, owned in kept.items()}
    quotas = _quotas(loads, sum(counts.values()))
    for member_id, load in loads.items():
        if load > quotas[member_id]:
            kept[member_id] = _trim_to_quota(kept[member_id], quotas[member_id], left)
    missing = {member_id: quota - loads[member_id] for member_id, quota in quotas.items() if quota > loads[member_id]}
    for member_id, given in _distribute(missing, in_order(left)).items():
        kept[member_id] = assignment_of([*in_order(kept[member_id]), *given])
    assert kept.keys() == members.keys()
    return kept


def _quotas(loads: Mapping[str, int], total: int) -> dict[str, int]:
    """Return each member's quota; one extra partition goes to members above the minimum, then by id."""
    least, extra = divmod(total, len(loads))
    above_least = [member_id for member_id, load in loads.items() if load > least]
    not_above = [member_id for member_id, load in loads.items() if load <= least]
    quotas = dict.fromkeys(loads, least)
    quotas.update(dict.fromkeys([*above_least, *not_above][:extra], least + 1))
    assert sum(quotas.values()) == total
    return quotas


def _trim_to_quota(owned: Assignment, quota: int, left: Mapping[Uuid, set[int]]) -> Assignment:
    """Return the partitions that a member keeps within its quota; the rest is added to `left`."""
    listed = in_order(owned)
    for topic, partition in listed[quota:]:
        left[topic].add(partition)
    return assignment_of(listed[:quota])


def _distribute(missing: Mapping[str, int], left: Owned) -> dict[str, Owned]:
    """Distribute partitions in turn, so that each topic is spread over many members."""
    given: dict[str, Owned] = {member_id: [] for member_id in missing}
    partitions = iter(left)
    waiting = list(given)
    while waiting:
        for member_id in waiting:
            given[member_id].append(next(partitions))
        waiting = [member_id for member_id in waiting if len(given[member_id]) < missing[member_id]]
    assert next(partitions, None) is None, "the quotas of all members add up to the number of partitions"
    return given


# Members with different subscriptions.


def _assign_mixed(members: Mapping[str, MemberSpec], counts: Mapping[Uuid, int]) -> dict[str, Assignment]:
    balancing = _Balancing(members, counts)
    for topic in balancing.topics:
        balancing.distribute(topic)
    balancing.balance()
    return balancing.assignments()


class _Balancing:
    """The step-by-step balancing of one group; members are numbered in the order of their ids."""

    def __init__(self, members: Mapping[str, MemberSpec], counts: Mapping[Uuid, int]) -> None:
        self._ids = sorted(members)
        self._counts = counts
        self._loads = [0] * len(self._ids)
        self._subscribers: dict[Uuid, list[int]] = {topic: [] for topic in counts}
        self._topics_of = [members[member_id].topics & counts.keys() for member_id in self._ids]
        for place, topics in enumerate(self._topics_of):
            for topic in topics:
                self._subscribers[topic].append(place)
        # Partitions by topic and member; partitions owned before come first and are moved last.
        self._owned: dict[Uuid, dict[int, list[int]]] = {topic: {} for topic in counts}
        self._taken: dict[Uuid, set[int]] = {topic: set() for topic in counts}
        kept, _ = kept_partitions(members, counts)
        for place, owned in enumerate(kept.values()):
            for topic, partition in in_order(owned):
                self._assign(topic, partition, place)
        self._moves_left = MOVES_PER_PARTITION_MAX * sum(counts.values())
        # Topics with the highest load per subscriber come first, because later topics can still even it out.
        self.topics = sorted(counts, key=lambda topic: (-counts[topic] / len(self._subscribers[topic]), topic))

    def _assign(self, topic: Uuid, partition: int, place: int) -> None:
        assert partition not in self._taken[topic], "a partition has one owner"
        self._owned[topic].setdefault(place, []).append(partition)
        self._taken[topic].add(partition)
        self._loads[place] += 1

    def distribute(self, topic: Uuid) -> None:
        least = [(self._loads[place], place) for place in self._subscribers[topic]]
        heapify(least)
        for partition in range(self._counts[topic]):
            if partition not in self._taken[topic]:
                load, place = heappop(least)
                self._assign(topic, partition, place)
                heappush(least, (load + 1, place))
        assert len(self._taken[topic]) == self._counts[topic], "every partition has an owner"

    def balance(self) -> None:
        """Balance topic by topic, and a topic again if the load of one of its subscribers changes."""
        waiting = dict.fromkeys(self.topics)
        while waiting and self._moves_left > 0:
            topic = next(iter(waiting))
            del waiting[topic]
            for place in self._balance(topic):
                waiting.update(dict.fromkeys(sorted(self._topics_of[place] - {topic})))

    def _balance(self, topic: Uuid) -> set[int]:
        """Balance one topic and return the members whose load changed."""
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
            assert loads[giver] >= loads[taker], "a move evens the load"
            self._moves_left -= 1
            assert self._moves_left >= 0, "balancing ends"
            changed.update(pair)
            for place in pair:
                heappush(most, (-loads[place], place))
                heappush(least, (loads[place], place))
        return changed

    def _uneven(self, owned: Mapping[int, list[int]], most: Heap, least: Heap) -> tuple[int, int] | None:
        """Return the members to move a partition from and to, or None if loads are even.

        Drops outdated heap entries.
        """
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
