"""A commit of a very large number of offsets, prepared in pieces and written as one batch.

    commit = LongCommit(shard, committer, now)
    commit.add(place)                       for each offset, in slices
    commit.encode()                         in a thread
    commit.finish(shard, now)               at once: checks the group's current state, writes and applies the whole

Readers of the group see none of these offsets before `finish`. The commit supersedes any commit written before it.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName
from odradek.core.coordinators.state_log import StateRecord
from odradek.core.groups.group_offset_commit import (
    NO_RETENTION,
    Committer,
    OffsetAndMetadata,
    OffsetCommitResult,
    expiry,
    record,
    validate_commit,
)
from odradek.core.groups.shard.group_shard import GroupShard
from odradek.core.kernel.moment import Moment
from odradek.record.internal.offset_commit_records import OffsetCommitValue


class LongCommit:
    """One commit of a very large number of offsets."""

    def __init__(self, shard: GroupShard, committer: Committer, now: Moment, retention_ms: int = NO_RETENTION) -> None:
        self._log = shard.log
        self._length_max = shard.runtime.configs.int("offset.metadata.max.bytes")
        self._committer = committer
        self._time = now.wall
        self._expires = expiry(now, retention_ms)
        self._codes: list[ErrorCode] = []
        self._records: list[StateRecord] = []
        self._values: dict[str, dict[int, OffsetCommitValue]] = {}
        self._places: dict[tuple[TopicName, int], None] = {}
        self._last = OffsetCommitValue(offset=0, metadata="", commit_timestamp=0)
        self._batch: bytearray | None = None

    def add(self, place: OffsetAndMetadata) -> None:
        assert self._batch is None, "a commit is complete when it is encoded"
        topic = place.topic.name
        self._places[topic, place.partition] = None
        if place.has_more_than(self._length_max):
            self._codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            return
        self._codes.append(ErrorCode.NONE)
        stored = record(self._committer.group_id, place, self._time, self._expires)
        value = stored.value
        assert isinstance(value, OffsetCommitValue)
        last, self._last = self._last, value
        if value.metadata == last.metadata:
            value.metadata = last.metadata  # Equal strings are stored once.
        self._records.append(stored)
        values = self._values.get(topic)
        if values is None:
            values = self._values[topic] = {}
        values[place.partition] = value

    def encode(self) -> None:
        """Encode the batch of all added offsets; Refused(INVALID_REQUEST) if a string is too long."""
        if self._records:
            self._records.reverse()
            self._batch = self._log.encoded(self._consumed(), self._time, self._committer.producer)

    def _consumed(self) -> Iterator[StateRecord]:
        """Yield the records and free each after encoding; freeing all at once takes as long as many slices."""
        while self._records:
            yield self._records.pop()

    def finish(self, shard: GroupShard, now: Moment) -> OffsetCommitResult:
        """Write the batch and apply the offsets, or raise Refused for the whole commit and change nothing."""
        assert not self._records, "all records of a commit are encoded before it is written"
        committer = self._committer
        group, check = validate_commit(shard, committer, now)
        if check is not None:
            for topic, partition in self._places:
                check(topic, partition)
        assert bool(self._values) == (self._batch is not None)
        if self._batch is None:
            return OffsetCommitResult(self._codes, None)
        written = shard.write_offsets(self._batch, committer.group_id, self._values, now, committer.producer)
        shard.groups.setdefault(committer.group_id, group)
        return OffsetCommitResult(self._codes, written)
