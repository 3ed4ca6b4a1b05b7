"""Deletion of offsets unused for offsets.retention.minutes, and of groups that become empty.

Each offsets.retention.check.interval.ms, all offsets are checked in parts. Checking every offset of a large broker at
once would delay all other requests.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator

from odradek.base.errors import Refused
from odradek.base.units import MINUTE_MS, TopicName
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.groups.group_offset_delete import forget_group
from odradek.core.groups.shard.group import Group
from odradek.core.groups.shard.group_shard import GroupShard
from odradek.core.groups.shard.offsets import NEVER, GroupOffsets, GroupTopicPartition, tombstones
from odradek.core.kernel.moment import Moment
from odradek.record.internal.offset_commit_records import OffsetCommitValue

_LOG = logging.getLogger(__name__)

OFFSETS_AT_ONCE = 10_000  # Checked in one tick.
CHECKED_AT_ONCE = 100


class Expiry:
    """Expiry of one broker's offsets, which checks about `at_once` offsets in one tick."""

    def __init__(self, configs: BrokerConfigs, at_once: int = OFFSETS_AT_ONCE) -> None:
        self._retention_ms = configs.int("offsets.retention.minutes") * MINUTE_MS
        self._interval_ms = configs.int("offsets.retention.check.interval.ms")
        self._at_once = at_once
        self._last: int | None = None
        self._left: deque[tuple[GroupShard, str]] = deque()  # Groups still to be checked.

    def tick(self, shards: Iterable[GroupShard], now: Moment) -> Iterator[None]:
        """Check some groups; called about once a second.

        Groups and offsets may change between two slices.
        """
        here = dict.fromkeys(shards)
        if self._last is None:
            self._last = now.steady
        if now.steady - self._last >= self._interval_ms and not self._left:
            self._last = now.steady
            self._left.extend((shard, group_id) for shard in here for group_id in shard.groups)
        seen = 0
        while self._left and seen < self._at_once:
            shard, group_id = self._left.popleft()
            group = shard.groups.get(group_id)
            if group is not None and shard in here:  # Both the group and the shard still exist.
                seen += 1 + shard.offsets.count_of_group(group_id)
                try:
                    yield from expire(shard, group, self._retention_ms, now)
                except Refused as refused:
                    _LOG.warning("failed to expire offsets of group %r (will retry): %s", group_id, refused)
            yield


def expire(shard: GroupShard, group: Group, retention_ms: int, now: Moment) -> Iterator[None]:
    """Delete the expired offsets of one group, and the group if nothing remains of it, or raise Refused."""
    offsets = shard.offsets
    for topic in list(offsets.of_group(group.id)):
        indexes = list(offsets.of_group(group.id).get(topic, ()))
        for start in range(0, len(indexes), CHECKED_AT_ONCE):
            since = group.offsets_expire_after(now)
            if since is None or group.is_subscribed_to(TopicName(topic)):
                break
            places = [(group.id, topic, index) for index in indexes[start : start + CHECKED_AT_ONCE]]
            expired = [place for place in places if _has_expired(offsets, place, since, retention_ms, now)]
            if expired:
                shard.write(tombstones(expired), now)
            yield
            if shard.groups.get(group.id) is not group:
                return
    is_left = offsets.of_group(group.id) or offsets.has_pending_of(group.id)
    if group.is_empty and not is_left:
        forget_group(shard, group, now)
        _LOG.info("removed group %r, which has no members and no offsets", group.id)


def _has_expired(offsets: GroupOffsets, place: GroupTopicPartition, since: int, retention_ms: int, now: Moment) -> bool:
    value = offsets.find_offset(*place)
    return value is not None and now.wall >= _due(value, since, retention_ms) and not offsets.is_pending(*place)


def _due(value: OffsetCommitValue, since: int, retention_ms: int) -> int:
    if value.expire_timestamp != NEVER:
        return value.expire_timestamp
    return (since or value.commit_timestamp) + retention_ms
