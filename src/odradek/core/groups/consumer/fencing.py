"""Removal of members that leave or miss a deadline; the group continues without them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from odradek.base.errors import Refused
from odradek.core.coordinators.durable import PendingWrite
from odradek.core.groups.consumer import migration
from odradek.core.groups.consumer import rebalance_steps as steps
from odradek.core.groups.consumer.consumer_group import ConsumerGroup, MemberTimer
from odradek.core.groups.consumer.consumer_member import Member
from odradek.core.groups.consumer.draft import Draft
from odradek.core.kernel.moment import Moment

_LOG = logging.getLogger(__name__)

AGAIN_MS = 500  # The delay before retrying a removal that could not be written.

_TOO_LATE = {
    MemberTimer.SESSION: "the session of member {!r} expired",
    MemberTimer.REBALANCE: "member {!r} did not revoke its partitions within the rebalance timeout",
    MemberTimer.JOIN: "member {!r} did not rejoin within the rebalance timeout",
    MemberTimer.SYNC: "member {!r} did not sync within the rebalance timeout",
}


def rang(group: ConsumerGroup, alarm: MemberTimer, member_id: str, now: Moment) -> None:
    """Remove a member after its alarm, or retry later if the log can't be written now."""
    member = group.kept.members.get(member_id)
    if member is None or group.shard.groups.get(group.id) is not group:
        return
    try:
        remove(group, [member], _TOO_LATE[alarm].format(member_id), now)
    except Refused as refused:
        _LOG.warning("failed to fence member %r of group %r (will retry): %s", member_id, group.id, refused)
        group.set(alarm, member_id, AGAIN_MS, now)


def remove(group: ConsumerGroup, members: Sequence[Member], reason: str, now: Moment) -> PendingWrite | None:
    """Remove members as one change, which frees their partitions, or raise Refused and remove none."""
    draft = Draft(group.shard, group.id, group)
    gone = {member.id for member in members}
    assert gone and len(gone) == len(members), "members are removed once"
    if migration.can_downgrade(draft, gone):
        return migration.downgrade(draft, gone, reason, now)
    for member in members:
        draft.remove(member)
    for member in members:
        steps.forget(draft, member.said.regex)
    draft.reasons.append(reason)
    steps.raise_epoch(draft)
    steps.assign_nothing(draft)
    return draft.commit(now)[1]
