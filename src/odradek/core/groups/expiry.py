"""Offsets that nobody has needed for offsets.retention.minutes go, and groups of which nothing is left with them.

Looked for every offsets.retention.check.interval.ms, a part at a time: looking at all offsets of a large broker at once
would keep everybody else waiting.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator

from odradek.base.errors import Refused
from odradek.base.units import MINUTE_MS, TopicName
from odradek.core.configs.broker import BrokerConfigs
from odradek.core.coordinators.state_log import StateRecord
from odradek.core.groups.group import Group
from odradek.core.groups.offset_delete import forget_group, write_all
from odradek.core.groups.offsets import NEVER, tombstone
from odradek.core.groups.shard import GroupShard
from odradek.core.moment import Moment
from odradek.record.internal.offsets import OffsetCommitValue

_LOG = logging.getLogger(__name__)

OFFSETS_AT_ONCE = 10_000  # Some milliseconds.


class Expiry:
    """Of one broker's groups.  About `at_once` offsets are looked at in one tick."""

    def __init__(self, configs: BrokerConfigs, at_once: int = OFFSETS_AT_ONCE) -> None:
        self._retention_ms = configs.int("offsets.retention.minutes") * MINUTE_MS
        self._interval_ms = configs.int("offsets.retention.check.interval.ms")
        self._at_once = at_once
        self._last: int | None = None
        self._left: deque[tuple[GroupShard, str]] = deque()  # Groups to be looked at yet.

    def tick(self, shards: Iterable[GroupShard], now: Moment) -> None:
        """About once a second."""
        here = set(shards)
        if self._last is None:
            self._last = now.steady
        if now.steady - self._last >= self._interval_ms and not self._left:
            self._last = now.steady
            self._left.extend((shard, group_id) for shard in here for group_id in shard.groups)
        seen = 0
        while self._left and seen < self._at_once:
            shard, group_id = self._left.popleft()
            group = shard.groups.get(group_id)
            if group is not None and shard in here:  # Neither it nor the shard went meanwhile.
                seen += 1 + self._look_at(shard, group, now)

    def _look_at(self, shard: GroupShard, group: Group, now: Moment) -> int:
        """How many offsets there were to look at."""
        count = sum(map(len, shard.offsets.of_group(group.id).values()))
        try:
            expire(shard, group, self._retention_ms, now)
        except Refused as refused:
            _LOG.warning("what has expired of group %r can't be removed now: %s", group.id, refused)
        return count


def expire(shard: GroupShard, group: Group, retention_ms: int, now: Moment) -> None:
    """Forget what has expired of one group, and the group if that was all of it.  Raises Refused."""
    write_all(shard, list(_expired(shard, group, retention_ms, now)), now)
    offsets = shard.offsets
    if group.is_empty and not offsets.of_group(group.id) and not offsets.has_pending_of(group.id):
        forget_group(shard, group, now)
        _LOG.info("group %r has no members and no offsets any more, and is forgotten", group.id)


def _expired(shard: GroupShard, group: Group, retention_ms: int, now: Moment) -> Iterator[StateRecord]:
    since = group.offsets_expire_after(now)
    if since is None:
        return
    for topic, partitions in shard.offsets.of_group(group.id).items():
        if group.is_subscribed_to(TopicName(topic)):
            continue
        for partition, value in partitions.items():
            if now.wall >= _due(value, since, retention_ms) and not shard.offsets.is_pending(
                group.id, topic, partition
            ):
                yield tombstone(group.id, topic, partition)


def _due(value: OffsetCommitValue, since: int, retention_ms: int) -> int:
    if value.expire_timestamp != NEVER:
        return value.expire_timestamp
    return (since or value.commit_timestamp) + retention_ms
