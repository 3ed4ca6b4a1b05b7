"""Requests of classic members (JoinGroup, ...), passed to the classic or consumer group named.

All functions raise Refused, also for a group that does not exist.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.base.errors import ErrorCode, Refused
from odradek.core.groups.classic import ClassicGroup, leaving, syncing
from odradek.core.groups.classic import classic_joining as joining
from odradek.core.groups.classic.messages import (
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeaveGroupResult,
    Leaver,
    SyncGroup,
    SyncGroupResult,
)
from odradek.core.groups.consumer import ConsumerGroup, classic_members
from odradek.core.groups.shard.group_shard import GroupShard
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.promise import Promise


def join(shard: GroupShard, group_id: str, request: JoinGroup, now: Moment) -> Promise[JoinGroupResult]:
    group = shard.groups.get(group_id)
    if isinstance(group, ConsumerGroup) and not group.is_empty:
        return classic_members.join(group, request, now)
    return joining.join(shard, group_id, request, now)


def sync(shard: GroupShard, group_id: str, request: SyncGroup, now: Moment) -> Promise[SyncGroupResult]:
    group = _group(shard, group_id)
    if isinstance(group, ConsumerGroup):
        return classic_members.sync(group, request, now)
    return syncing.sync(group, request, now)


def heartbeat(shard: GroupShard, group_id: str, request: Heartbeat, now: Moment) -> None:
    group = _group(shard, group_id)
    if isinstance(group, ConsumerGroup):
        classic_members.heartbeat(group, request, now)
    else:
        syncing.heartbeat(group, request, now)


def leave(shard: GroupShard, group_id: str, leavers: Sequence[Leaver], now: Moment) -> LeaveGroupResult:
    group = _group(shard, group_id)
    if isinstance(group, ConsumerGroup):
        return classic_members.leave(group, leavers, now)
    return leaving.leave(group, leavers, now)


def _group(shard: GroupShard, group_id: str) -> ClassicGroup | ConsumerGroup:
    group = shard.groups.get(group_id)
    if group is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group_id!r} does not exist")
    assert isinstance(group, ClassicGroup | ConsumerGroup), "a group with members is classic or consumer"
    return group
