"""Reads of a group's committed offsets (OffsetFetch)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from odradek.base.errors import ErrorCode
from odradek.base.units import NO_EPOCH, NO_OFFSET, TopicName
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.groups.shard.group_shard import GroupShard
from odradek.record.internal.offset_commit_records import OffsetCommitValue


class CommittedOffset(NamedTuple):
    """The committed offset of one partition."""

    offset: int
    leader_epoch: int
    metadata: str
    code: ErrorCode = ErrorCode.NONE


NOTHING = CommittedOffset(NO_OFFSET, NO_EPOCH, "")
_UNSTABLE = NOTHING._replace(code=ErrorCode.UNSTABLE_OFFSET_COMMIT)


def nothing_for(code: ErrorCode) -> CommittedOffset:
    return NOTHING._replace(code=code)


class GroupReader:
    """Reader of one group's offsets; `is_stable` hides offsets pending in transactions (KIP-447)."""

    def __init__(self, shard: GroupShard, group_id: str, member_id: str | None, epoch: int, *, is_stable: bool) -> None:
        """Raise Refused for a member that may not fetch; an unknown group has no committed offsets."""
        group = shard.groups.get(group_id)
        if group is not None:
            group.check_fetch(member_id, epoch)
        self._group_id = group_id
        self._topics = shard.offsets.of_group(group_id)
        self._pending = shard.offsets.pending_of(group_id) if is_stable else []

    def freeze(self) -> None:
        """Make all later reads return the offsets of this moment, regardless of later commits.

        A mixture of offsets from before and after the end of a transaction would be a state that the group never had.
        """
        self._topics = {topic: dict(partitions) for topic, partitions in self._topics.items()}
        self._pending = [dict(places) for places in self._pending]

    def count(self) -> int:
        """Return the number of offsets that the group has committed."""
        return sum(map(len, self._topics.values()))

    def topics(self) -> Iterable[TopicName]:
        """Return the topics for which the group has committed offsets."""
        return (TopicName(topic) for topic in self._topics)

    def find_offset(self, topic: TopicName, topic_id: Uuid, partition: int) -> CommittedOffset:
        """Return the offset of one partition; `topic_id` is the topic's current id, zero matches any."""
        return self._fetched(topic, topic_id, partition, self._topics.get(topic, {}).get(partition))

    def all(self, topic: TopicName, topic_id: Uuid) -> Iterator[tuple[int, CommittedOffset]]:
        """Yield a topic's committed offsets by partition, without first commits of open transactions.

        Offsets of a deleted topic of the same name are omitted.
        """
        for partition, value in self._topics[topic].items():
            if _is_of(topic_id, value):
                yield partition, self._fetched(topic, topic_id, partition, value)

    def _fetched(
        self, topic: TopicName, topic_id: Uuid, partition: int, value: OffsetCommitValue | None
    ) -> CommittedOffset:
        if self._pending:
            place = self._group_id, topic, partition
            if any(place in places for places in self._pending):
                return _UNSTABLE
        if value is None or not _is_of(topic_id, value):
            return NOTHING
        return CommittedOffset(value.offset, value.leader_epoch, value.metadata)


def _is_of(topic_id: Uuid, value: OffsetCommitValue) -> bool:
    """Return whether the offset was committed for this topic id, or without one, as in old records."""
    return value.topic_id in (topic_id, ZERO_UUID) or topic_id == ZERO_UUID
