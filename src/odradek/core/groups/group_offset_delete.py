"""Deletion of committed offsets: some of a group's, or all of them with the group itself.

A group with a very large number of offsets is deleted in steps that do not block the event loop:

    deletion = LongDelete(shard, group_id, now)
    deletion.encode()                       in a thread
    deletion.finish(shard, now)             at once: checks the group's current state, deletes all of it or nothing
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicName
from odradek.core.coordinators.durable import PendingWrite
from odradek.core.coordinators.state_log import StateRecord
from odradek.core.groups.shard.group import CLASSIC, CONSUMERS, Group
from odradek.core.groups.shard.group_shard import GroupShard
from odradek.core.groups.shard.offsets import tombstone, tombstones
from odradek.core.kernel.moment import Moment

AT_ONCE_MAX = 200  # A group with at most this many offsets is deleted without LongDelete: two milliseconds.
RECORDS_PER_BATCH = 10_000  # A batch with all offsets of a large cluster's topic would be too large.


class OffsetDeleteResult(NamedTuple):
    """An error code for each partition; `written` is None if there was nothing to delete."""

    codes: list[ErrorCode]
    written: PendingWrite | None


def delete(
    shard: GroupShard, group_id: str, places: Collection[tuple[TopicName, int]], now: Moment
) -> OffsetDeleteResult:
    """Delete some offsets of a group, or raise Refused(GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP)."""
    group = shard.group(group_id)
    if group.type == CLASSIC and not group.is_empty and group.protocol_type != CONSUMERS:
        raise Refused(ErrorCode.NON_EMPTY_GROUP, f"group {group_id!r} has members that are not consumers")
    subscribed = {topic for topic in {topic for topic, _ in places} if group.is_subscribed_to(topic)}
    forgotten = {
        (topic, partition): tombstone(group_id, topic, partition)
        for topic, partition in places
        if topic not in subscribed and shard.offsets.has(group_id, topic, partition)
    }
    codes = [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic in subscribed else ErrorCode.NONE for topic, _ in places]
    return OffsetDeleteResult(codes, write_all(shard, list(forgotten.values()), now))


def delete_group(shard: GroupShard, group_id: str, now: Moment) -> None:
    """Delete a group with all its offsets, including pending transactional ones.

    Raises Refused(GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP).
    """
    group = shard.group(group_id)
    group.check_delete()
    forget_group(shard, group, now)


def forget_group(shard: GroupShard, group: Group, now: Moment) -> None:
    """Write the tombstones of a group and of all its offsets, or raise Refused."""
    write_all(shard, tombstones(shard.offsets.places_of_group(group.id)) + group.tombstones(), now)


def write_all(shard: GroupShard, records: Sequence[StateRecord], now: Moment) -> PendingWrite | None:
    """Write records in as many batches as needed.

    Returns the last write, or None without records. Raises Refused.
    """
    written = None
    for start in range(0, len(records), RECORDS_PER_BATCH):
        written = shard.write(list(records[start : start + RECORDS_PER_BATCH]), now)
    return written


class LongDelete:
    """Deletion of one group with a very large number of offsets.

    The constructor raises Refused as `delete_group` does.
    """

    def __init__(self, shard: GroupShard, group_id: str, now: Moment) -> None:
        shard.group(group_id).check_delete()
        self._group_id = group_id
        self._log = shard.log
        self._time = now.wall
        self._places = shard.offsets.places_of_group(group_id)
        self._batches: list[bytearray] = []

    def encode(self) -> None:
        """Encode, in batches, the tombstones of all offsets that the group had at construction."""
        for start in range(0, len(self._places), RECORDS_PER_BATCH):
            some = tombstones(self._places[start : start + RECORDS_PER_BATCH])
            self._batches.append(self._log.encoded(some, self._time))

    def finish(self, shard: GroupShard, now: Moment) -> None:
        """Write the tombstones and delete the offsets and the group.

        Raises Refused as `delete_group` does, or if the disk is full. Offsets without a written tombstone are kept.
        """
        assert bool(self._batches) == bool(self._places), "tombstones are encoded before they are written"
        group = shard.group(self._group_id)
        group.check_delete()
        written = 0
        try:
            for batch in self._batches:
                shard.log.append_encoded(batch, now)
                written += 1
            known = set(self._places)
            new = [place for place in shard.offsets.places_of_group(self._group_id) if place not in known]
            shard.write(tombstones(new) + group.tombstones(), now)
        except Refused:
            shard.offsets.forget(self._places[: written * RECORDS_PER_BATCH])
            raise
        assert self._group_id not in shard.groups, "the tombstone of a group deletes it"
        shard.offsets.forget_group(self._group_id)
