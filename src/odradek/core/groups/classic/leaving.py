"""LeaveGroup of a classic group: members leave or are removed by an administrator."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.base.errors import ErrorCode, Refused
from odradek.core.groups.classic.classic_group import ClassicGroup
from odradek.core.groups.classic.messages import LeaveGroupResult, Leaver
from odradek.core.groups.shard.history import because, listed
from odradek.core.kernel.moment import Moment


def leave(group: ClassicGroup, leavers: Sequence[Leaver], now: Moment) -> LeaveGroupResult:
    """Remove each leaver, with its own error code; the other members are asked once to rejoin."""
    codes, left = [], []
    for leaver in leavers:
        try:
            left.extend(_leave(group, leaver))
            codes.append(ErrorCode.NONE)
        except Refused as refused:
            codes.append(refused.code)
    if left:
        group.rebalance(f"left: {listed(left)}", now)
    else:
        group.on_pending_removed(now)
    return LeaveGroupResult(codes, group.written)


def _leave(group: ClassicGroup, leaver: Leaver) -> list[str]:
    """Remove a leaver and return its id with its reason, or [] if it had not joined yet, or raise Refused."""
    members = group.members
    if leaver.member_id in members.pending:
        members.forget_pending(leaver.member_id)
        return []
    by_instance = None
    if not leaver.member_id and leaver.instance_id is not None:
        by_instance = members.static(leaver.instance_id)
    member = by_instance or members.known(leaver.member_id, leaver.instance_id)
    members.remove(member.id)
    assert member.joining is None and member.syncing is None
    return [because(repr(member.id), leaver.reason)]
