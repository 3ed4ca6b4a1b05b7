"""A template for repeated commits with the same committer and partitions but other offsets.

Most consumers commit repeatedly and change only the offsets. So the log batch is encoded once, and each commit writes
its numbers into a copy:

│ batch header with two times │ record with an offset and a time │ another record │ ...

The committer is checked each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from odradek.base.number_places import places as numbers_at
from odradek.base.units import TimestampMs
from odradek.core.coordinators.durable import PendingWrite
from odradek.core.coordinators.state_log import NON_TRANSACTIONAL
from odradek.core.groups.group_offset_commit import Committer, OffsetAndMetadata, record, validate_commit
from odradek.core.groups.shard.group_shard import GroupShard
from odradek.core.groups.shard.offsets import CommittedOffsets
from odradek.core.kernel.cluster_view import TopicInfo
from odradek.core.kernel.moment import Moment
from odradek.record.crc import crc32c
from odradek.record.internal.offset_commit_records import OffsetCommitValue, offset_commit_value
from odradek.record.record_batch import CHECKSUMMED_FROM, CRC_POSITION

_NUMBER = Struct(">q")
_put = _NUMBER.pack_into
_put_crc = Struct(">I").pack_into


class RepeatedCommit:
    """Commits of one committer for the same partitions, without transaction or expiry time."""

    __slots__ = ("_batch", "_names", "_offsets_at", "_places", "_times_at", "committer")

    def __init__(self, shard: GroupShard, committer: Committer, places: Sequence[OffsetAndMetadata]) -> None:
        self.committer = committer
        clear, full = (_encoded(shard, committer, places, number) for number in (0, -1))
        self._batch = clear
        at = iter(numbers_at(clear, full, [_NUMBER.size] * (2 + 2 * len(places))))
        self._times_at, self._offsets_at = [next(at), next(at)], []
        for _ in places:
            self._offsets_at.append(next(at))
            self._times_at.append(next(at))
        assert len(self._times_at) == len(places) + 2 and next(at, None) is None, "every number has its place"
        self._places = places
        self._names = list(dict.fromkeys(place.topic.name for place in places))

    def topics(self) -> list[TopicInfo]:
        """Return the topics of the partitions, each once."""
        return list({place.topic.name: place.topic for place in self._places}.values())

    def commit(self, shard: GroupShard, offsets: Sequence[int], now: Moment) -> PendingWrite:
        """Commit these offsets, one for each partition, or raise Refused and change nothing."""
        committer = self.committer
        group, check = validate_commit(shard, committer, now)
        if check is not None:
            for place in self._places:
                check(place.topic.name, place.partition)
        written = shard.log.append_encoded(self._with_numbers(offsets, now.wall), now)
        shard.offsets.put_all(committer.group_id, self._values(offsets, now.wall), NON_TRANSACTIONAL.id)
        shard.groups.setdefault(committer.group_id, group)
        return written

    def _values(self, offsets: Sequence[int], time: int) -> CommittedOffsets:
        values: dict[str, dict[int, OffsetCommitValue]] = {name: {} for name in self._names}
        for place, offset in zip(self._places, offsets, strict=True):
            values[place.topic.name][place.partition] = offset_commit_value(
                offset=offset,
                leader_epoch=place.leader_epoch,
                metadata=place.metadata or "",
                commit_timestamp=time,
                topic_id=place.topic.id,
            )
        return values

    def _with_numbers(self, offsets: Sequence[int], time: int) -> bytearray:
        batch = bytearray(self._batch)
        for at in self._times_at:
            _put(batch, at, time)
        for at, offset in zip(self._offsets_at, offsets, strict=True):
            _put(batch, at, offset)
        _put_crc(batch, CRC_POSITION, crc32c(memoryview(batch)[CHECKSUMMED_FROM:]))
        assert len(batch) == len(self._batch)
        return batch


def _encoded(shard: GroupShard, committer: Committer, places: Sequence[OffsetAndMetadata], number: int) -> bytes:
    """Encode the batch with `number` as every offset and time, and without a checksum."""
    time = TimestampMs(number)
    records = [record(committer.group_id, place._replace(offset=number), time) for place in places]
    batch = bytearray(shard.log.encoded(records, time))
    _put_crc(batch, CRC_POSITION, 0)
    return bytes(batch)
