"""Offsets that a group shall forget: some of them, all of a topic that is gone, or all with the group itself."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicName
from odradek.core.coordinators.durable import Written
from odradek.core.coordinators.state_log import StateRecord
from odradek.core.groups.group import CLASSIC, CONSUMERS, Group
from odradek.core.groups.offsets import tombstone, tombstones
from odradek.core.groups.shard import GroupShard
from odradek.core.moment import Moment

RECORDS_PER_BATCH = 10_000  # A batch with all offsets of a large cluster's topic would be too large.


class Deleted(NamedTuple):
    """A code for each place; None if there was nothing to forget."""

    codes: list[ErrorCode]
    written: Written | None


def delete(shard: GroupShard, group_id: str, places: Collection[tuple[TopicName, int]], now: Moment) -> Deleted:
    """Raises Refused(GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP)."""
    group = shard.group(group_id)
    if group.type == CLASSIC and not group.is_empty and group.protocol_type != CONSUMERS:
        raise Refused(ErrorCode.NON_EMPTY_GROUP, f"members of {group_id!r} are no consumers")
    subscribed = {topic for topic in {topic for topic, _ in places} if group.is_subscribed_to(topic)}
    forgotten = {
        (topic, partition): tombstone(group_id, topic, partition)
        for topic, partition in places
        if topic not in subscribed and shard.offsets.has(group_id, topic, partition)
    }
    codes = [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic in subscribed else ErrorCode.NONE for topic, _ in places]
    return Deleted(codes, write_all(shard, list(forgotten.values()), now))


def delete_group(shard: GroupShard, group_id: str, now: Moment) -> None:
    """With all its offsets, also those that a transaction is about to commit.

    Raises Refused(GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP).
    """
    group = shard.group(group_id)
    group.check_delete()
    forget_group(shard, group, now)


def forget_group(shard: GroupShard, group: Group, now: Moment) -> None:
    """Raises Refused."""
    write_all(shard, tombstones(shard.offsets.places_of_group(group.id)) + group.tombstones(), now)


def write_all(shard: GroupShard, records: Sequence[StateRecord], now: Moment) -> Written | None:
    """In as many batches as it takes; the last of them, None if there is nothing to write.  Raises Refused."""
    written = None
    for start in range(0, len(records), RECORDS_PER_BATCH):
        written = shard.write(list(records[start : start + RECORDS_PER_BATCH]), now)
    return written
