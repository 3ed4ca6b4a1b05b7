"""Members leave a classic group of their own accord, or are sent away by an administrator."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.base.errors import ErrorCode, Refused
from odradek.core.groups.classic.classic_group import ClassicGroup
from odradek.core.groups.classic.messages import Leaver, Left
from odradek.core.groups.shard.history import because, listed
from odradek.core.kernel.moment import Moment


def leave(group: ClassicGroup, leavers: Sequence[Leaver], now: Moment) -> Left:
    """Removes each leaver, with a code of its own; the others are asked to join again once."""
    codes, gone = [], []
    for leaver in leavers:
        try:
            gone.extend(_leave(group, leaver))
            codes.append(ErrorCode.NONE)
        except Refused as refused:
            codes.append(refused.code)
    if gone:
        group.rebalance(f"left: {listed(gone)}", now)
    else:
        group.pending_went(now)
    return Left(codes, group.written)


def _leave(group: ClassicGroup, leaver: Leaver) -> list[str]:
    """Removes a leaver, and returns its id with its reason; [] if it had not joined yet.  Raises Refused."""
    members = group.members
    if leaver.member_id in members.pending:
        members.forget_pending(leaver.member_id)
        return []
    by_instance = None
    if not leaver.member_id and leaver.instance_id is not None:
        by_instance = members.static(leaver.instance_id)
    member = by_instance or members.known(leaver.member_id, leaver.instance_id)
    members.remove(member.id)
    return [because(repr(member.id), leaver.reason)]
