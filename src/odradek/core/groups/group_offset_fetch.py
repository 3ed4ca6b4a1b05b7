"""Reads the committed offsets of a group (OffsetFetch)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from odradek.base.errors import ErrorCode
from odradek.base.units import NO_EPOCH, NO_OFFSET, TopicName
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.groups.shard.group_shard import GroupShard
from odradek.record.internal.offset_commit_records import OffsetCommitValue


class Fetched(NamedTuple):
    """One partition's committed offset."""

    offset: int
    leader_epoch: int
    metadata: str
    code: ErrorCode = ErrorCode.NONE


NOTHING = Fetched(NO_OFFSET, NO_EPOCH, "")
_UNSTABLE = NOTHING._replace(code=ErrorCode.UNSTABLE_OFFSET_COMMIT)


def nothing_for(code: ErrorCode) -> Fetched:
    return NOTHING._replace(code=code)


class GroupReader:
    """Reads one group's offsets; with `is_stable` none that an open transaction may change (KIP-447)."""

    def __init__(self, shard: GroupShard, group_id: str, member_id: str | None, epoch: int, *, is_stable: bool) -> None:
        """Raises Refused for a member that may not ask.  An unknown group has committed nothing."""
        group = shard.groups.get(group_id)
        if group is not None:
            group.check_fetch(member_id, epoch)
        self._group_id = group_id
        self._topics = shard.offsets.of_group(group_id)
        self._pending = shard.offsets.pending_of(group_id) if is_stable else []

    def freeze(self) -> None:
        """Has all later reads see the offsets as they are now, whatever is committed meanwhile.

        Offsets from before a transaction's end together with some from after it would be what the group never had.
        """
        self._topics = {topic: dict(partitions) for topic, partitions in self._topics.items()}
        self._pending = [dict(places) for places in self._pending]

    def count(self) -> int:
        """How many offsets the group has committed."""
        return sum(map(len, self._topics.values()))

    def topics(self) -> Iterable[TopicName]:
        """Returns the topics of which the group has committed something."""
        return (TopicName(topic) for topic in self._topics)

    def find(self, topic: TopicName, topic_id: Uuid, partition: int) -> Fetched:
        """Returns the offset of one partition.  `topic_id` is that of the topic as it is now; zero matches any."""
        return self._fetched(topic, topic_id, partition, self._topics.get(topic, {}).get(partition))

    def all(self, topic: TopicName, topic_id: Uuid) -> Iterator[tuple[int, Fetched]]:
        """Yields a topic's committed offsets by partition; a first commit in an open transaction does not show.

        Offsets of a topic that was since deleted, and made anew, are left out.
        """
        for partition, value in self._topics[topic].items():
            if _is_of(topic_id, value):
                yield partition, self._fetched(topic, topic_id, partition, value)

    def _fetched(self, topic: TopicName, topic_id: Uuid, partition: int, value: OffsetCommitValue | None) -> Fetched:
        if self._pending:
            place = self._group_id, topic, partition
            if any(place in places for places in self._pending):
                return _UNSTABLE
        if value is None or not _is_of(topic_id, value):
            return NOTHING
        return Fetched(value.offset, value.leader_epoch, value.metadata)


def _is_of(topic_id: Uuid, value: OffsetCommitValue) -> bool:
    """True if the offset was committed for the topic with this id, or does not say, as old records."""
    return value.topic_id in (topic_id, ZERO_UUID) or topic_id == ZERO_UUID
