"""Uniform: members own as many partitions as each other, give or take one, and keep what they have.

When all are subscribed to the same topics there is one right number for each of them, and the least that has to move
is known beforehand.  Otherwise see uniform_mixed.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.base.uuids import Uuid
from odradek.core.groups.assignors import uniform_mixed
from odradek.core.groups.assignors.spec import Assignment, MemberSpec, Owned, assignment_of, in_order, kept_partitions


def assign(members: Mapping[str, MemberSpec], counts: Mapping[Uuid, int]) -> dict[str, Assignment]:
    """Every partition of `counts` to one of the topic's subscribers."""
    if len({member.topics for member in members.values()}) > 1:
        return uniform_mixed.assign(members, counts)
    if not members:
        return {}
    kept, left = kept_partitions(members, counts)
    loads = {member_id: sum(map(len, owned.values())) for member_id, owned in kept.items()}
    quotas = _quotas(loads, sum(counts.values()))
    for member_id, load in loads.items():
        if load > quotas[member_id]:
            kept[member_id] = _cut(kept[member_id], quotas[member_id], left)
    missing = {member_id: quota - loads[member_id] for member_id, quota in quotas.items() if quota > loads[member_id]}
    for member_id, given in _handed_out(missing, in_order(left)).items():
        kept[member_id] = assignment_of([*in_order(kept[member_id]), *given])
    return kept


def _quotas(loads: Mapping[str, int], total: int) -> dict[str, int]:
    """One more than the others get those that have it already, then the first by id."""
    least, extra = divmod(total, len(loads))
    having = [member_id for member_id, load in loads.items() if load > least]
    others = [member_id for member_id, load in loads.items() if load <= least]
    quotas = dict.fromkeys(loads, least)
    quotas.update(dict.fromkeys([*having, *others][:extra], least + 1))
    return quotas


def _cut(owned: Assignment, quota: int, left: Mapping[Uuid, set[int]]) -> Assignment:
    """What is above its quota goes to `left`."""
    listed = in_order(owned)
    for topic, partition in listed[quota:]:
        left[topic].add(partition)
    return assignment_of(listed[:quota])


def _handed_out(missing: Mapping[str, int], left: Owned) -> dict[str, Owned]:
    """In turn, so that each topic is spread over many members."""
    given: dict[str, Owned] = {member_id: [] for member_id in missing}
    partitions = iter(left)
    waiting = list(given)
    while waiting:
        for member_id in waiting:
            given[member_id].append(next(partitions))
        waiting = [member_id for member_id in waiting if len(given[member_id]) < missing[member_id]]
    assert next(partitions, None) is None, "quotas add up to all partitions"
    return given
