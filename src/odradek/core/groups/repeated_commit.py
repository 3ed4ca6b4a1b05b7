"""A commit like one before it: the same committer and partitions, other offsets.

Consumers commit again and again, and nothing else changes for most of them.  So the batch for the log is made once, and
each commit writes its numbers into a copy:

│ batch header with two times │ record with an offset and a time │ another record │ ...

What is asked of the committer is asked each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from odradek.base.units import TimestampMs
from odradek.core.cluster import TopicInfo
from odradek.core.coordinators.durable import Written
from odradek.core.coordinators.state_log import NOBODY
from odradek.core.groups.offset_commit import Committer, Place, committing, record
from odradek.core.groups.shard import GroupShard
from odradek.core.moment import Moment
from odradek.record.batch import CHECKSUMMED_FROM, CRC_POSITION
from odradek.record.crc import crc32c
from odradek.record.internal.offsets import OffsetCommitKey, OffsetCommitValue

_NUMBER = Struct(">q")
_put = _NUMBER.pack_into
_put_crc = Struct(">I").pack_into
_TIME_MARK = TimestampMs(0x3A7F19C2E45B6D08)  # As nothing else in a batch could be; offsets are counted from theirs.
_OFFSET_MARK = 0x5C21D7940B8EA300


class RepeatedCommit:
    """For one committer and its places, but for their offsets; in no transaction, and with no expiry of its own."""

    __slots__ = ("_batch", "_offsets_at", "_records", "_times_at", "who")

    def __init__(self, shard: GroupShard, who: Committer, places: Sequence[Place]) -> None:
        """ValueError if a name looks like a number that is to be found in the batch."""
        self.who = who
        marked = [
            record(who.group_id, place._replace(offset=_OFFSET_MARK + number), _TIME_MARK)
            for number, place in enumerate(places)
        ]
        self._batch = shard.log.encoded(marked, _TIME_MARK)
        self._offsets_at = [self._only(_OFFSET_MARK + number) for number in range(len(places))]
        self._times_at = self._all(_TIME_MARK)
        if len(self._times_at) != 2 + len(places):
            raise ValueError("a name looks like a time")
        self._records: list[tuple[OffsetCommitKey, Place]] = [
            (OffsetCommitKey(group=who.group_id, topic=place.topic.name, partition=place.partition), place)
            for place in places
        ]

    def topics(self) -> list[TopicInfo]:
        """Each once."""
        return list({place.topic.name: place.topic for _, place in self._records}.values())

    def _only(self, mark: int) -> int:
        (at,) = self._all(mark)
        return at

    def _all(self, mark: int) -> list[int]:
        sought, found, at = _NUMBER.pack(mark), [], -1
        while (at := self._batch.find(sought, at + 1)) >= 0:
            found.append(at)
        return found

    def commit(self, shard: GroupShard, offsets: Sequence[int], now: Moment) -> Written:
        """Raises Refused, and nothing happened."""
        who = self.who
        group, check = committing(shard, who, now)
        if check is not None:
            for _, place in self._records:
                check(place.topic.name, place.partition)
        written = shard.log.append_encoded(self._with_numbers(offsets, now.wall), now)
        for (key, place), offset in zip(self._records, offsets, strict=True):
            value = OffsetCommitValue(
                offset=offset,
                leader_epoch=place.leader_epoch,
                metadata=place.metadata or "",
                commit_timestamp=now.wall,
                topic_id=place.topic.id,
            )
            shard.offsets.replay(key, value, NOBODY.id)
        shard.groups.setdefault(who.group_id, group)
        return written

    def _with_numbers(self, offsets: Sequence[int], time: int) -> bytearray:
        batch = bytearray(self._batch)
        for at in self._times_at:
            _put(batch, at, time)
        for at, offset in zip(self._offsets_at, offsets, strict=True):
            _put(batch, at, offset)
        _put_crc(batch, CRC_POSITION, crc32c(memoryview(batch)[CHECKSUMMED_FROM:]))
        return batch
