"""The range assignor, which assigns consecutive partitions of each topic in member order.

Members with the same subscriptions own the same partition numbers of equally sized topics, so records with equal keys
reach one member. Static members come first, ordered by instance id, so a restart moves none of their partitions.
Nothing else carries over from one assignment to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from odradek.base.uuids import Uuid
from odradek.core.groups.assignors.spec import Assignment, MemberSpec, Partitions


def assign(members: Mapping[str, MemberSpec], counts: Mapping[Uuid, int]) -> dict[str, Assignment]:
    """Assign every partition of `counts` to one of the topic's subscribers."""
    assigned: dict[str, dict[Uuid, Partitions]] = {member_id: {} for member_id in members}
    ordered = sorted(members, key=lambda member_id: _place(member_id, members[member_id]))
    for topic, count in counts.items():
        subscribers = [member_id for member_id in ordered if topic in members[member_id].topics]
        for member_id, share in zip(subscribers, _shares(count, len(subscribers)), strict=True):
            if share:
                assigned[member_id][topic] = frozenset(share)
    return dict(assigned)


def _place(member_id: str, member: MemberSpec) -> tuple[bool, str]:
    return member.instance_id is None, member.instance_id or member_id


def _shares(count: int, members: int) -> list[range]:
    """Split `count` partitions into consecutive shares of nearly equal size, the larger ones first."""
    bounds = [0]
    for place in range(members):
        bounds.append(bounds[-1] + count // members + (place < count % members))
    assert bounds[-1] == count or not members
    return [range(start, end) for start, end in pairwise(bounds)]
