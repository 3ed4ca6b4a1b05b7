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

RETRY_MS = 500  # The delay before retrying a removal that could not be written.

_REASONS = {
    MemberTimer.SESSION: "the session of member {!r} expired",
    MemberTimer.REBALANCE: "member {!r} did not revoke its partitions within the rebalance timeout",
    MemberTimer.JOIN: "member {!r} did not rejoin within the rebalance timeout",
    MemberTimer.SYNC: "member {!r} did not sync within the rebalance timeout",
}


def on_timer_expired(group: ConsumerGroup, timer: MemberTimer, member_id: str, now: Moment) -> None:
    """Remove a member after its timer has fired, or retry later if the log can't be written now."""
    member = group.kept.members.get(member_id)
    if member is None or group.shard.groups.get(group.id) is not group:
        return
    try:
        remove(group, [member], _REASONS[timer].format(member_id), now)
    except Refused as refused:
        _LOG.warning("failed to fence member %r of group %r (will retry): %s", member_id, group.id, refused)
        group.set(timer, member_id, RETRY_MS, now)


def remove(group: ConsumerGroup, members: Sequence[Member], reason: str, now: Moment) -> PendingWrite | None:
    """Remove members as one change, which frees their partitions, or raise Refused and remove none."""
    draft = Draft(group.shard, group.id, group)
    member_ids = {member.id for member in members}
    assert member_ids and len(member_ids) == len(members), "members are removed once"
    if migration.can_downgrade(draft, member_ids):
        return migration.downgrade(draft, member_ids, reason, now)
    for member in members:
        draft.remove(member)
    for member in members:
        steps.forget(draft, member.metadata.regex)
    draft.reasons.append(reason)
    steps.raise_epoch(draft)
    steps.assign_nothing(draft)
    return draft.commit(now)[1]
