"""Uniform: members own as many partitions as each other, give or take one, and keep what they have.

When all are subscribed to the same topics there is one right number for each of them, and the least that has to move
is known beforehand.  Otherwise see uniform_mixed.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.base.uuids import Uuid
from odradek.core.groups.assignors import uniform_mixed
from odradek.core.groups.assignors.spec import Assignment, MemberSpec, Owned, assignment_of, kept_partitions


def assign(members: Mapping[str, MemberSpec], counts: Mapping[Uuid, int]) -> dict[str, Assignment]:
    """Every partition of `counts` to one of the topic's subscribers."""
    if len({member.topics for member in members.values()}) > 1:
        return uniform_mixed.assign(members, counts)
    if not members:
        return {}
    kept = kept_partitions(members, counts)
    quotas = _quotas(kept, sum(counts.values()))
    free = _give_up(kept, quotas, counts)
    _hand_out(kept, quotas, free)
    return {member_id: assignment_of(owned) for member_id, owned in kept.items()}


def _quotas(kept: Mapping[str, Owned], total: int) -> dict[str, int]:
    """One more than the others get those that have it already, then the first by id."""
    least, extra = divmod(total, len(kept))
    by_need = sorted(kept, key=lambda member_id: len(kept[member_id]) <= least)  # Stable: by id among equals.
    return {member_id: least + (place < extra) for place, member_id in enumerate(by_need)}


def _give_up(kept: dict[str, Owned], quotas: Mapping[str, int], counts: Mapping[Uuid, int]) -> Owned:
    """What is above a quota goes; then all that nobody owns, topic by topic."""
    for member_id, owned in kept.items():
        del owned[quotas[member_id] :]
    taken = {partition for owned in kept.values() for partition in owned}
    return [
        (topic, partition)
        for topic in sorted(counts)
        for partition in range(counts[topic])
        if (topic, partition) not in taken
    ]


def _hand_out(kept: dict[str, Owned], quotas: Mapping[str, int], free: Owned) -> None:
    """In turn, so that each topic is spread over many members."""
    waiting = [member_id for member_id in sorted(kept) if len(kept[member_id]) < quotas[member_id]]
    partitions = iter(free)
    while waiting:
        for member_id in waiting:
            kept[member_id].append(next(partitions))
        waiting = [member_id for member_id in waiting if len(kept[member_id]) < quotas[member_id]]
    assert next(partitions, None) is None, "quotas add up to all partitions"
