"""A commit of offsets, by a group member or by a client that only stores offsets in the group.

The whole commit is one batch in the log. A commit without membership to an unknown group creates a group that has
offsets but no members.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import INT64_MAX
from odradek.base.uuids import ZERO_UUID
from odradek.core.coordinators.durable import PendingWrite
from odradek.core.coordinators.state_log import NON_TRANSACTIONAL, ProducerIdAndEpoch, StateRecord
from odradek.core.groups.shard.group import CommitCheck, Group
from odradek.core.groups.shard.group_shard import GroupShard
from odradek.core.groups.shard.offsets import NEVER, record_of
from odradek.core.kernel.cluster_view import TopicInfo
from odradek.core.kernel.moment import Moment
from odradek.record.internal.offset_commit_records import OffsetCommitKey, OffsetCommitValue

NO_RETENTION = -1
GROUP_ID_NOT_FOUND_SINCE = 9  # The first version of OffsetCommit with this error.


class Committer(NamedTuple):
    """The committer, as named in the request.

    `version` is the version of OffsetCommit or, with a producer, of TxnOffsetCommit. With a producer, the offsets
    take effect when its transaction commits.
    """

    group_id: str
    member_id: str
    instance_id: str | None
    epoch: int
    version: int
    producer: ProducerIdAndEpoch = NON_TRANSACTIONAL

    @property
    def is_transactional(self) -> bool:
        return self.producer.id >= 0


class OffsetAndMetadata(NamedTuple):
    """The offset to store for one partition."""

    topic: TopicInfo
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None

    def has_more_than(self, length_max: int) -> bool:
        """Return whether the metadata is longer than `length_max` UTF-16 code units, Java's measure."""
        text = self.metadata or ""
        if len(text) * 2 <= length_max:
            return False
        return len(text.encode("utf-16-le", "surrogatepass")) // 2 > length_max


class OffsetCommitResult(NamedTuple):
    """An error code for each partition.

    Partitions with NONE are committed when `written` is safe. `written` is None if all were refused.
    """

    codes: list[ErrorCode]
    written: PendingWrite | None

    def codes_after(self, failure: ErrorCode) -> list[ErrorCode]:
        """Return the codes once the result of the write is known."""
        return [code or failure for code in self.codes] if failure else self.codes


def commit(
    shard: GroupShard,
    committer: Committer,
    places: Sequence[OffsetAndMetadata],
    now: Moment,
    retention_ms: int = NO_RETENTION,
) -> OffsetCommitResult:
    """Commit offsets, or raise Refused for the whole commit."""
    group, check = validate_commit(shard, committer, now)
    if check is not None:
        for place in places:
            check(place.topic.name, place.partition)
    length_max = shard.runtime.configs.int("offset.metadata.max.bytes")
    expires = expiry(now, retention_ms)
    codes, records = [], []
    for place in places:
        if place.has_more_than(length_max):
            codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            continue
        codes.append(ErrorCode.NONE)
        records.append(record(committer.group_id, place, now.wall, expires))
    assert len(codes) == len(places) >= len(records)
    if not records:
        return OffsetCommitResult(codes, None)
    written = shard.write(records, now, committer.producer)
    shard.groups.setdefault(committer.group_id, group)
    return OffsetCommitResult(codes, written)


def expiry(now: Moment, retention_ms: int) -> int:
    return NEVER if retention_ms == NO_RETENTION else min(now.wall + retention_ms, INT64_MAX)


def validate_commit(shard: GroupShard, committer: Committer, now: Moment) -> tuple[Group, CommitCheck | None]:
    """Return the group, possibly a new one, and the check of each partition if needed, or raise Refused."""
    group = shard.groups.get(committer.group_id)
    if group is not None:
        check = group.check_commit(
            committer.member_id,
            committer.instance_id,
            committer.epoch,
            is_transactional=committer.is_transactional,
            version=committer.version,
            now=now,
        )
        return group, check
    if committer.epoch < 0:
        return shard.simple_group(committer.group_id), None
    if committer.is_transactional or committer.version < GROUP_ID_NOT_FOUND_SINCE:
        raise Refused(ErrorCode.ILLEGAL_GENERATION, f"group {committer.group_id!r} does not exist")
    raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"group {committer.group_id!r} does not exist")


def record(group_id: str, place: OffsetAndMetadata, now: int, expires: int = NEVER) -> StateRecord:
    key = OffsetCommitKey(group=group_id, topic=place.topic.name, partition=place.partition)
    value = OffsetCommitValue(
        offset=place.offset,
        leader_epoch=place.leader_epoch if expires == NEVER else -1,  # The version with an expiry has neither
        metadata=place.metadata or "",
        commit_timestamp=now,
        expire_timestamp=expires,
        topic_id=place.topic.id if expires == NEVER else ZERO_UUID,  # of these two fields.
    )
    return record_of(key, value)
