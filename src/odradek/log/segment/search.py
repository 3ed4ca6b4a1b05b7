"""Search of offsets by timestamp (KIP-79, KIP-734): time index, then batch headers, then records.

    begin_search (on the loop, log/log/timestamp_search.py) ──> Search, a value ──> run (in a thread)
    ──> TimestampAndOffset, None, or UnfinishedSearch

Producers set timestamps, which need not ascend.  So a search skips a segment or a batch only if its greatest timestamp
is too small.  It surveys the one batch that contains the record; for formats before 2 the result is the batch itself.

A search keeps the parts of the log that it needs as they were: sizes, index entries in memory, open files.  It only
reads, and only below an offset that readers may see.  Only retention, or a failing disk, changes that part of a log.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from odradek.base.errors import Refused
from odradek.base.limits import (
    SEARCHED_BATCH_BYTES_MAX,
    SEARCHED_PACKED_BYTES_MAX,
    SEARCHED_UNPACKED_BYTES_MAX,
    UNPACKED_BYTES_MAX,
)
from odradek.base.units import NO_OFFSET, NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs
from odradek.log.files.disk import Disk, DiskFailed, File
from odradek.log.files.disk_failures import LogDamaged
from odradek.log.segment.index import OffsetIndex, TimeIndex
from odradek.log.segment.index_validation import check_place, has_time
from odradek.log.segment.scan import CHECK_CHUNK_BYTES, WALK_CHUNK_BYTES, Damaged, FileBatch, walk
from odradek.record.compression import Codec
from odradek.record.record_batch import HEADER_BYTES, MAGIC, Batch, BatchHeader
from odradek.record.survey import survey
from odradek.record.unpack import unpack

Largest = tuple[TimestampMs, Offset]
_NOTHING: Largest = (NO_TIMESTAMP, NO_OFFSET)


class TimestampAndOffset(NamedTuple):
    """Timestamp, offset and leader epoch of a record."""

    timestamp: TimestampMs
    offset: Offset
    leader_epoch: LeaderEpoch


class UnfinishedSearch(NamedTuple):
    """Result of an unfinished search; another search from `start` continues it.

    If `is_large`, the next batch may need much memory, and only a search with is_large reads its records.
    """

    start: Offset
    is_large: bool


class SearchedSegment:
    """One segment as it was when the search began; every method may raise DiskFailed."""

    __slots__ = (
        "_disk",
        "_file",
        "_largest",
        "_noted",
        "_path",
        "base_offset",
        "disagreement",
        "offsets",
        "size",
        "times",
    )

    def __init__(
        self, disk: Disk, path: str, *, file: File | None, size: int, offsets: OffsetIndex, times: TimeIndex
    ) -> None:
        self._disk = disk
        self._path = path
        self._file = file
        self._largest: Largest | None = None
        self._noted = _NOTHING
        self.disagreement: str | None = None  # Between an index and the log, which must then rebuild its indexes.
        self.size = size
        self.base_offset = offsets.base_offset
        self.offsets = offsets  # Both are copies.
        self.times = times

    def note_largest(self, largest: Largest, *, is_all: bool) -> None:
        """Record the greatest timestamp known in memory; with `is_all` the file need not be read."""
        self._noted = largest
        if is_all:
            self._largest = largest

    @property
    def found_largest(self) -> Largest | None:
        """Return the result of `largest`, or None if `largest` was not called."""
        return self._largest

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self._path)
        return self._file

    def read(self, position: int, size: int) -> bytes:
        data = self.file.pread(position, size)
        if len(data) != size:
            raise DiskFailed(errno.EIO, f"read {len(data)} bytes at {position}, expected {size}", self._path)
        return data

    def largest(self) -> Largest:
        """Return the greatest timestamp and the last offset of the first batch that has it."""
        if self._largest is None:
            timestamp, offset = self.times.last_entry()
            if timestamp < 0 or timestamp < self.times.first_timestamp() or not self._agrees(timestamp, offset):
                # No batch has a timestamp, or a crash left zeros, or the index belongs to another segment.
                self._largest = _greatest_of(self.places(0, chunk_bytes=CHECK_CHUNK_BYTES), self._noted)
            else:
                self._largest = (timestamp, offset) if timestamp > self._noted[0] else self._noted
        return self._largest

    def largest_between(self, start: Offset, end: Offset) -> Largest:
        """Return the result of `largest` for the batches that reach `start` and begin below `end`."""
        largest = self.largest()
        if largest[0] < 0 or start <= largest[1] < end:
            return largest
        known = _NOTHING
        if largest[1] >= end:
            # Up to the batch of an offset index entry, the time index contains the greatest timestamp.
            known = self.times.entry_below(end)
            if known[1] < start or not self._agrees(*known):
                near, known = start, _NOTHING
            else:
                near = max(start, self.offsets.offset_below(end))
        else:
            near = start
        place = self.find_batch(near)
        return known if place is None else _greatest_of(_below(self.places(place.position), end), known)

    def first_near(self, timestamp: TimestampMs, start: Offset) -> FileBatch | None:
        """Return a batch from which a walk finds the first record of that time at or after `start`."""
        before, offset = self.times.entry_before(timestamp)
        is_usable = self.disagreement is None and offset >= start and self._agrees(before, offset)
        return self.find_batch(offset if is_usable else Offset(max(start, self.base_offset)))

    def _agrees(self, timestamp: TimestampMs, offset: Offset) -> bool:
        """Return whether the batch with `offset` has the time index's timestamp; record a mismatch."""
        if timestamp < 0:
            return True  # There is no entry.
        try:
            is_right = has_time(self.find_batch(offset), timestamp)
        except LogDamaged:
            return True  # The damage makes a comparison impossible.
        if not is_right:
            self.disagreement = f"the batch with offset {offset} does not have timestamp {timestamp}"
        return is_right

    def find_batch(self, offset: Offset) -> FileBatch | None:
        """Return the first batch that reaches `offset`; None if none does."""
        try:
            return self._find_from(self.offsets.at_or_before(offset), offset)
        except Damaged as damage:  # The index is damaged; only the log repairs it.
            why = damage.why
        try:
            found = self._find_from((self.base_offset, 0), offset)
        except Damaged as damage:
            raise self._failure(damage) from None
        self.disagreement = why
        return found

    def _find_from(self, entry: tuple[Offset, int], offset: Offset) -> FileBatch | None:
        start = entry[1]
        if not 0 <= start < max(self.size, 1):
            raise Damaged(self.offsets.path, start, f"the entry points outside of the segment's {self.size} bytes")
        for place in walk(self.file, start, self.size):
            if place.position == start and start:
                check_place(self.offsets, place, entry[0])
            if place.last_offset >= offset:
                return place
        return None

    def places(self, position: int, *, chunk_bytes: int = WALK_CHUNK_BYTES) -> Iterator[FileBatch]:
        """Yield the batches from `position` to the segment's end.  Raise DiskFailed for damage."""
        try:
            yield from walk(self.file, position, self.size, chunk_bytes=chunk_bytes)
        except Damaged as damage:
            raise self._failure(damage) from None

    def _failure(self, damage: Damaged) -> DiskFailed:
        if self.file.size() < self.size:
            return DiskFailed(
                errno.EIO, f"the file is shorter than the {self.size} bytes that were written", self._path
            )
        return LogDamaged(self._path, damage.position, damage.why)

    def damaged(self, place: FileBatch) -> LogDamaged:
        return LogDamaged(self._path, place.position, "the batch checksum does not match")


class Search(NamedTuple):
    """Search from `start` to below `end` for the first record at or after `timestamp`.

    A `timestamp` of None searches for the greatest timestamp.  A search reads the records of at most one batch, so
    that many searches take turns.
    """

    segments: Sequence[SearchedSegment]
    timestamp: TimestampMs | None
    start: Offset
    end: Offset
    is_large: bool
    source: Sequence[object]  # The log's segment list at that time: a roll or a cut replaces the list.
    record_bytes_max: int  # max.decompressed.message.bytes
    rest: Offset | None = None  # Start of the next search if none of the segments has the record.

    def is_of(self, source: Sequence[object]) -> bool:
        """Return whether `source` is the log's current list: no segment was added or removed since."""
        return self.source is source

    def run(self) -> TimestampAndOffset | UnfinishedSearch | None:
        """Search, up to one batch; return None if no such record exists.

        Raise Refused(CORRUPT_MESSAGE) if a batch can't be decoded, Refused(INVALID_RECORD) if it decodes to too
        many bytes, and DiskFailed if the disk fails.
        """
        assert self.start < self.end, "a search covers at least one offset"
        if self.timestamp is None:
            return self._greatest()
        for segment in self.segments:
            if segment.largest()[0] >= self.timestamp:
                found = self._in_segment(segment, self.timestamp)
                if found:
                    return found
        return None if self.rest is None else UnfinishedSearch(self.rest, False)

    def _greatest(self) -> TimestampAndOffset | UnfinishedSearch | None:
        """Return the first of the records with the greatest timestamp; None if none has a timestamp."""
        best, (timestamp, offset) = None, _NOTHING
        for segment in self.segments:
            largest = segment.largest_between(self.start, self.end)
            if largest[0] > timestamp:
                best, (timestamp, offset) = segment, largest
        place = best.find_batch(offset) if best else None
        return self._in_batch(best, place, timestamp) if best and place else None

    def _in_segment(
        self, segment: SearchedSegment, timestamp: TimestampMs
    ) -> TimestampAndOffset | UnfinishedSearch | None:
        near = segment.first_near(timestamp, self.start)
        if near is None:
            return None
        for place in _below(segment.places(near.position), self.end):
            if place.max_timestamp >= timestamp:
                return self._in_batch(segment, place, timestamp) or UnfinishedSearch(
                    Offset(place.last_offset + 1), False
                )
        return None

    def _in_batch(
        self, segment: SearchedSegment, place: FileBatch, timestamp: TimestampMs
    ) -> TimestampAndOffset | UnfinishedSearch | None:
        if place.magic != MAGIC:
            return TimestampAndOffset(place.max_timestamp, place.base_offset, place.leader_epoch)
        header = BatchHeader(segment.read(place.position, HEADER_BYTES))
        # If records were compacted away, the record at the first offset may be one of them.
        if header.is_log_append_time and header.records_count > header.last_offset_delta:
            return TimestampAndOffset(
                place.max_timestamp, Offset(max(place.base_offset, self.start)), place.leader_epoch
            )
        is_packed = header.codec is not Codec.NONE
        if not self.is_large and place.size > (SEARCHED_PACKED_BYTES_MAX if is_packed else SEARCHED_BATCH_BYTES_MAX):
            return UnfinishedSearch(self.start, True)
        batch = Batch.trusted(segment.read(place.position, place.size))
        bytes_max = UNPACKED_BYTES_MAX if self.is_large else SEARCHED_UNPACKED_BYTES_MAX
        try:
            payload = unpack(batch, self.record_bytes_max, bytes_max)
            found = survey(batch, payload, timestamp=timestamp, start=self.start).found
        except Refused:
            if not batch.is_intact:
                raise segment.damaged(place) from None
            if self.is_large:
                raise
            return UnfinishedSearch(
                self.start, True
            )  # The batch is too large or broken; a search with is_large finds out.
        return None if found is None else TimestampAndOffset(found.timestamp, found.offset, place.leader_epoch)


def _below(places: Iterator[FileBatch], end: Offset) -> Iterator[FileBatch]:
    for place in places:
        if place.base_offset >= end:
            return
        yield place


def _greatest_of(places: Iterator[FileBatch], largest: Largest) -> Largest:
    for place in places:
        if place.max_timestamp > largest[0]:
            largest = (place.max_timestamp, place.last_offset)
    return largest
