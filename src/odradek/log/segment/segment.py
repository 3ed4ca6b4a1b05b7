"""One segment of a log: a run of batches in a .log file with its indexes.

Lookups are cheapest where reads are most frequent.  Two small arrays hold the positions of the newest batches.  The
ends of the last reads are kept, too, because a consumer continues there.  Only other reads search the index and walk
the headers.

Files are opened on first use, and a sealed segment may be released again; slices in use keep its file open.
"""

from __future__ import annotations

import errno
import logging
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from odradek.base.units import INT32_MAX, INT64_MAX, MIB, NO_OFFSET, NO_TIMESTAMP, Offset, ProducerId, TimestampMs
from odradek.log.files.disk import Disk, DiskFailed, File, check_may_stay
from odradek.log.files.disk_failures import LogDamaged
from odradek.log.files.log_config import LogConfig
from odradek.log.files.log_file_names import LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, segment_stem
from odradek.log.files.page_cache import CachedFile, ReadableFile
from odradek.log.segment.damage import Damage, next_batch
from odradek.log.segment.index import OffsetIndex, TimeIndex
from odradek.log.segment.index_validation import check_entry, check_place, has_time
from odradek.log.segment.scan import CHECK_CHUNK_BYTES, WALK_CHUNK_BYTES, Damaged, FileBatch, batch_at, walk
from odradek.log.segment.search import SearchedSegment
from odradek.log.segment.transaction_index import TransactionIndex
from odradek.record.record_batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, Batch, BatchHeader

RECENT_BATCHES_MAX = 512
HINTS_MAX = 64
SEARCHED_BEHIND_DAMAGE_BYTES = 4 * MIB  # A batch that begins later is not found.
_BASE_OFFSET = Struct(">q")
_LOG = logging.getLogger(__name__)


class SegmentCut(NamedTuple):
    """Plan to shorten a segment, computed before any change."""

    position: int
    offset_entries: int
    time_entries: int
    largest: tuple[TimestampMs, Offset]  # The greatest timestamp of the kept batches after the last index entry.


class Segment:
    """Batches of a log in one .log file; every method may raise DiskFailed.

    `size` is the length of the valid bytes; a preallocated file is longer.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: Offset,
        now_ms: TimestampMs,
        *,
        size: int = 0,
        index_bytes: int = 0,
        time_index_bytes: int = 0,
        transaction_index_bytes: int = 0,
    ) -> None:
        assert size >= 0, "no segment is smaller than empty"
        stem = f"{directory}/{segment_stem(base_offset)}"
        self._disk = disk
        self.path = stem + LOG
        self.base_offset = base_offset
        self.size = size
        self.created_ms = now_ms
        self.offsets = OffsetIndex(disk, stem + OFFSET_INDEX, base_offset, index_bytes)
        self.times = TimeIndex(disk, stem + TIME_INDEX, base_offset, time_index_bytes)
        self.transactions = TransactionIndex(disk, stem + TRANSACTION_INDEX, base_offset, transaction_index_bytes)
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = NO_OFFSET
        self.index_is_full = False
        self._max_known = size == 0
        self._first = (-1, -1)  # Start and end of the batch that was located last.
        self._overhang = False
        self._since_index = 0
        self._file: File | None = None
        self._recent_ends = array("q")  # Last offsets, one per batch, and their positions.
        self._recent_positions = array("q")
        self._hints: dict[int, int] = {}
        self.damages: list[Damage] = []  # Found so far, ascending.
        self.was_cut = False  # If True, data read earlier may no longer exist.
        self.sync_failed = False  # In a cut: the kernel may have dropped earlier appends without reporting them again.

    @classmethod
    def create(cls, disk: Disk, directory: str, base_offset: Offset, now_ms: TimestampMs, config: LogConfig) -> Segment:
        """Create an empty segment with the three files that Kafka expects."""
        segment = cls(disk, directory, base_offset, now_ms)
        segment.make_files(config)
        return segment

    def make_files(self, config: LogConfig) -> None:
        """Create the files of an empty segment; this may be repeated after a failure."""
        assert not self.size
        file = self._disk.create(self.path)
        check_may_stay(file)
        self._file = file
        if config.preallocate:
            self._file.truncate(config.segment_bytes)
            self._overhang = True
        self.offsets.clear()
        self.times.clear()

    def delete_files(self) -> None:
        """Delete the files that make_files created before it failed."""
        for path in (self.path, self.offsets.path, self.times.path):
            self._disk.unlink(path)

    def set_directory(self, directory: str) -> None:
        """Use the files in this directory from now on."""
        self.release()
        stem = f"{directory}/{segment_stem(self.base_offset)}"
        self.path = stem + LOG
        self.offsets.path = stem + OFFSET_INDEX
        self.times.path = stem + TIME_INDEX
        self.transactions.path = stem + TRANSACTION_INDEX

    def use_disk(self, disk: Disk) -> None:
        """Open the files through another disk from now on, because they get new names (log/removal/swap.py)."""
        self._disk = disk
        self.offsets.use_disk(disk)
        self.times.use_disk(disk)
        self.transactions.use_disk(disk)

    def modified_ms(self) -> TimestampMs:
        """Return the modification time of the .log file."""
        return TimestampMs(self._disk.modified_ms(self.path))

    def time_of_first(self) -> TimestampMs:
        """Return the first batch's greatest timestamp; -1 if there is none."""
        if self.first_timestamp < 0 and self.size:
            first = self.find_batch(self.base_offset)
            self.first_timestamp = first.max_timestamp if first else NO_TIMESTAMP
        return self.first_timestamp

    @property
    def file(self) -> File:
        if self._file is None:
            file = self._disk.open(self.path)
            check_may_stay(file)
            self._file = file
        return self._file

    @property
    def name(self) -> str:
        """Return the .log file's name, without its directory."""
        return self.path.rpartition("/")[2]

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def release_file(self) -> None:
        """Release only the open file; cached positions keep the next append and read fast."""
        self._file = None

    def release(self) -> None:
        """Release the open file, and cached positions and index blocks."""
        self._file = None
        self._forget_places()
        self.offsets.forget_blocks()
        self.times.forget_blocks()

    # ------------------------------------------------------------------ append

    def prepare(self, config: LogConfig) -> None:
        """Load the values for the roll rules and the time index; call this before the first append."""
        if self.size:
            self.largest()
            self.time_of_first()
            self.times.last_timestamp()  # So that counting a written batch reads no file, which could fail.
        self._note_fullness(config)

    def must_roll(
        self, size: int, max_timestamp: TimestampMs, end: Offset, now_ms: TimestampMs, config: LogConfig
    ) -> bool:
        """Return whether an append of `size` bytes that ends at `end` needs a new segment, by Kafka's rules.

        An empty segment rolls only for an offset that is too far from its base offset.
        """
        if end - self.base_offset > INT32_MAX:
            return True
        if not self.size:
            return False
        if self.size > config.segment_bytes - size or self.index_is_full:
            return True
        first = self.first_timestamp
        waited = max_timestamp - first if first >= 0 else now_ms - self.created_ms
        limit = config.segment_ms
        return waited > limit - self._jitter(config) if config.segment_jitter_ms else waited > limit

    def _jitter(self, config: LogConfig) -> int:
        """Return a delay that spreads the rolls of partitions created together.

        It is derived from the name, so that it need not be stored.
        """
        return crc32(self.path.encode()) % max(min(config.segment_jitter_ms, config.segment_ms), 1)

    def append(self, batches: Sequence[Batch], config: LogConfig) -> None:
        """Append batches with one write; a failed write leaves the segment as before and raises DiskFailed."""
        position = self.size
        file = self._file or self.file
        if self._overhang and not config.preallocate:
            self._cut_overhang()
        try:
            if len(batches) == 1:
                file.write(position, batches[0].view)
            else:
                file.write_all(position, [batch.view for batch in batches])
        except DiskFailed:
            self._overhang = True
            self._cut_overhang()
            raise
        self._added(batches, config)

    def write_front(self, front: memoryview) -> int:
        """Write the front of a batch that is valid only after `complete`, and return its position.

        Raise DiskFailed as `append` does.
        """
        if self._overhang:
            self._cut_overhang()
        assert front, "the front of a batch has at least its header"
        self._overhang = True
        try:
            self.file.write(self.size, front)
        except DiskFailed:
            self._cut_overhang()
            raise
        return self.size

    def complete(self, batch: Batch, config: LogConfig) -> None:
        """Count the batch that was begun, now that all of it is written."""
        assert self._overhang, "only a begun streaming append completes"
        self._overhang = False
        self._added((batch,), config)

    def abort_front(self) -> None:
        """Cut off the batch that was begun."""
        self._cut_overhang()

    def _added(self, batches: Sequence[Batch], config: LogConfig) -> None:
        position = self.size
        for batch in batches:
            size = batch.batch_length + LOG_OVERHEAD_BYTES
            self._count(position, size, batch.base_offset + batch.last_offset_delta, batch.max_timestamp, config)
            position += size
        self.size = position

    def _count(self, position: int, size: int, last_offset: int, max_timestamp: TimestampMs, config: LogConfig) -> None:
        if not position:
            self.first_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = Offset(last_offset)
        if self._since_index > config.index_interval_bytes:
            self.offsets.add(Offset(last_offset), position)
            self.times.maybe_add(self.max_timestamp, self.max_timestamp_offset)
            self._since_index = 0
            self._note_fullness(config)
        self._since_index += size
        self._recent_ends.append(last_offset)
        self._recent_positions.append(position)
        if len(self._recent_ends) >= RECENT_BATCHES_MAX:
            assert len(self._recent_ends) == len(self._recent_positions), "each recent batch has an end and a position"
            del self._recent_ends[: RECENT_BATCHES_MAX // 2]
            del self._recent_positions[: RECENT_BATCHES_MAX // 2]

    def _note_fullness(self, config: LogConfig) -> None:
        limit = config.segment_index_bytes
        self.index_is_full = self.offsets.is_full(limit) or self.times.is_full(limit)

    def _cut_overhang(self) -> None:
        """Cut off bytes beyond `size`.  Raise DiskFailed on failure; the next append repeats the cut."""
        self.file.truncate(self.size)
        self._overhang = False

    def seal(self) -> None:
        """Complete the time index, write all indexes, and cut the file after the last batch."""
        if self.size:
            self.times.maybe_add(*self.largest())
        if self._overhang:
            self._cut_overhang()
        self.offsets.write()
        self.times.write()
        self.transactions.write()

    # ------------------------------------------------------------------ read

    def locate(self, offset: Offset, *, cached: bool = False) -> int | None:
        """Return the position of the first batch that reaches `offset`; None if the segment has none.

        With `cached`, raise NotCached instead of waiting for the disk.
        """
        position = self._hints.get(offset)
        if position is not None:
            return position if position < self.size else None
        ends = self._recent_ends
        if ends and offset > ends[0]:
            number = bisect_left(ends, offset)
            if number == len(ends):
                return None
            position = self._recent_positions[number]
            assert position < self.size, "what was cut off is forgotten"
            for damage in self.damages:
                if position == damage.end and offset < damage.following:
                    return damage.start
            return position
        if offset <= self.base_offset:
            return 0 if self.size else None
        place = self._indexed(offset, cached) or self.find_batch(offset, cached=cached)
        if place is None:
            return None
        self._first = place.position, place.end_position
        return place.position

    def _indexed(self, offset: Offset, cached: bool) -> FileBatch | None:
        """Return the batch that begins with `offset` if the index contains it, as at the end of most reads.

        A reader that continues there has read the bytes before.  Reading a header here needs no page from the
        disk; a walk may.  A damaged batch is left to the walk, which reports it.
        """
        number = self.offsets.count_at_or_below(offset - self.base_offset - 1, 0, cached=cached)
        if number == len(self.offsets):
            return None
        position = self.offsets.entry(number, cached=cached)[1]
        if not 0 < position < self.size or self._is_known(position):
            return None
        try:
            place = batch_at(self._opened(cached), position, self.size)
        except Damaged:
            return None
        return place if place.base_offset == offset and self.can_hold(place.last_offset) else None

    def is_marker(self, offset: Offset, producer_id: ProducerId, *, cached: bool = False) -> bool:
        """Return False if the batch with `offset` is not a marker of the producer; `cached` as for locate."""
        position = self.locate(offset, cached=cached)
        data = b"" if position is None else self._opened(cached).pread(position, HEADER_BYTES)
        if len(data) < HEADER_BYTES:
            return True  # It was compacted away.
        header = BatchHeader(data)
        is_of = header.is_control and header.producer_id == producer_id
        return is_of or header.base_offset > offset

    def find_batch(self, offset: Offset, *, cached: bool = False) -> FileBatch | None:
        """Return the batch that locate searches for, by the index and a walk.

        Rebuild a damaged index.  Raise DiskFailed for a damaged log.
        """
        try:
            return self._search(offset, cached)
        except Damaged as damage:
            if self._is_known(damage.position):
                raise self.failure(damage) from None
            self.rebuild_invalid_indexes(damage.why)
        try:
            return self._search(offset, cached)
        except Damaged as damage:
            raise self.failure(damage) from None

    def rebuild_invalid_indexes(self, why: str) -> None:
        """Rebuild invalid indexes from the log and write a log message."""
        _LOG.warning("rebuilding the indexes of %s, which do not match the log: %s", self.path, why)
        self.rebuild_indexes(LogConfig())

    def failure(self, damage: Damaged) -> DiskFailed:
        if self.file.size() < self.size:
            return DiskFailed(errno.EIO, f"the file is shorter than the {self.size} bytes that were written", self.path)
        return LogDamaged(self.path, damage.position, damage.why)

    def note_damage(self, position: int, why: str) -> bool:
        """Record that no whole batch begins at `position` as expected; return False if that is known, or cut off.

        From now on, the bytes from `position` to the next whole batch are not served.
        """
        if position >= self.size or self._is_known(position):
            return False
        upto = min(self.size, position + SEARCHED_BEHIND_DAMAGE_BYTES)
        bounds = self.base_offset, self.base_offset
        end = next_batch(self.file, position + 1, self.size, bounds, upto)
        following = Offset(INT64_MAX) if end is None else Offset(_BASE_OFFSET.unpack(self.file.pread(end, 8))[0])
        damage = Damage(position, self.size if end is None else end, following, why)
        self.damages = sorted([*self.damages, damage])
        return True

    def _noted_end(self, position: int) -> int:
        return next(damage.end for damage in self.damages if damage.start <= position < damage.end)

    def _is_known(self, position: int) -> bool:
        return any(damage.start <= position < damage.end for damage in self.damages)

    def whole_until(self, position: int, limit: int) -> int:
        """Return the end of a read from `position`, at most `limit`.  Raise LogDamaged if it can't begin."""
        for damage in self.damages:
            if damage.start <= position < damage.end:
                raise LogDamaged(self.path, position, damage.why)
            if position < damage.start < limit:
                return damage.start
        return limit

    def _opened(self, cached: bool) -> ReadableFile:
        return CachedFile(self.file) if cached else self.file

    def _search(self, offset: Offset, cached: bool) -> FileBatch | None:
        entry, start = self.offsets.at_or_before(offset, cached=cached)
        for damage in self.damages:
            if start < damage.end and offset >= damage.following:
                entry, start = damage.following, damage.end
                if start == self.size:  # The batches behind the damage were cut off.
                    return None
        if not 0 <= start < max(self.size, 1):
            raise Damaged(self.offsets.path, start, f"the entry points outside of the segment's {self.size} bytes")
        for place in self._walk(start, cached=cached):
            if place.position == start and start:
                check_place(self.offsets, place, entry)
            if place.last_offset >= offset:
                return place
        return None

    def cut(self, start: int, target: int, limit: int, *, cached: bool = False) -> int:
        """Return the end of a read from `start`: a batch border, at most `limit`, preferably up to `target`.

        The read includes at least one batch.  It may end a little earlier than necessary, at a border that the
        index contains.  Do not read data there: in an old segment Linux would begin reading ahead from that
        border, and the caller would wait for it.  `cached` works as in `locate`.
        """
        if target >= limit:
            return limit
        positions = self._recent_positions
        if positions and positions[0] <= target:
            border = positions[bisect_right(positions, target) - 1]
            if border > start:
                return border
        border = self.offsets.border_at_or_below(target, cached=cached)
        if start < border <= limit and self._is_behind_first(border, start, cached):
            return border
        return self._walk_to(start, target, limit, cached)

    def _is_behind_first(self, border: int, start: int, cached: bool) -> bool:
        """Return whether a border from the index is after the batch at `start`, which is then read whole.

        A border within a later batch is also wrong, but then a reader receives whole batches and requests the
        rest.
        """
        if self._first[0] != start:
            try:
                place = batch_at(self._opened(cached), start, self.size)
            except Damaged:
                return False  # The walk reports it.
            self._first = start, place.end_position
        if border >= self._first[1]:
            return True
        self.rebuild_invalid_indexes(f"byte {border} is within a batch")
        return False

    def _walk_to(self, start: int, target: int, limit: int, cached: bool) -> int:
        end = start
        try:
            for place in walk(self._opened(cached), start, limit):
                if place.end_position > target and end > start:
                    break
                end = place.end_position
                self.hint(place.last_offset + 1, end)
                if end >= target:
                    break
        except Damaged as damage:
            self.note_damage(damage.position, damage.why)
            if end == start:  # Otherwise the good batches are served, and the next read finds the damage.
                raise self.failure(damage) from None
        return end

    def beyond(self, position: int, *, cached: bool = False) -> Offset | None:
        """Return a nearly minimal offset that no batch before `position` reaches; None if none is known.

        `cached` works as in `locate`.
        """
        positions = self._recent_positions
        if positions and positions[0] < position:
            return Offset(self._recent_ends[bisect_left(positions, position) - 1] + 1)
        number = self.offsets.count_at_or_below(position - 1, 1, cached=cached)
        if number < len(self.offsets) and not self._is_entry_right(number, cached):
            number = self.offsets.count_at_or_below(position - 1, 1, cached=cached)
        if number == len(self.offsets):
            return None
        return Offset(self.base_offset + self.offsets.entry(number, cached=cached)[0])

    def _is_entry_right(self, number: int, cached: bool) -> bool:
        """Compare an entry of the offset index with its batch; rebuild the indexes if they disagree."""
        position = self.offsets.entry(number, cached=cached)[1]
        if self._is_known(position):
            return True  # The damage makes a comparison impossible.
        try:
            check_entry(self.offsets, number, self._opened(cached), self.size, cached=cached)
        except Damaged as damage:
            self.rebuild_invalid_indexes(damage.why)
            return False
        return True

    def hint(self, offset: int, position: int) -> None:
        """Remember the position of the batch that begins with `offset`, because the next read begins there."""
        assert 0 <= position <= self.size, "a read ends within the segment"
        hints = self._hints
        if len(hints) >= HINTS_MAX:
            del hints[next(iter(hints))]
        hints[offset] = position

    def _walk(self, position: int, chunk_bytes: int = WALK_CHUNK_BYTES, *, cached: bool = False) -> Iterator[FileBatch]:
        """Walk to the end, and check that offsets can be in this segment.  Raise Damaged otherwise."""
        for place in walk(self._opened(cached), position, self.size, chunk_bytes=chunk_bytes):
            if not self.can_hold(place.last_offset):
                raise Damaged(
                    self.path,
                    place.position,
                    f"offset {place.last_offset} is outside the segment that starts at {self.base_offset}",
                )
            yield place

    def can_hold(self, offset: Offset) -> bool:
        return 0 <= offset - self.base_offset <= INT32_MAX

    def places(self, position: int, *, chunk_bytes: int = WALK_CHUNK_BYTES) -> Iterator[FileBatch]:
        """Yield the batches from `position` to the end.  Raise DiskFailed for damage."""
        try:
            yield from self._walk(position, chunk_bytes)
        except Damaged as damage:
            raise self.failure(damage) from None

    def largest(self) -> tuple[TimestampMs, Offset]:
        """Return the greatest timestamp and the last offset of the first batch that has it."""
        if not self._max_known:
            timestamp, offset = self.times.last_entry()
            if timestamp < 0 or timestamp < self.times.first_timestamp():
                # No batch has a timestamp, or a crash left zeros: retention would consider the segment old.
                self._scan_largest()
            elif timestamp > self.max_timestamp:
                self._take_largest(timestamp, offset)
            self._max_known = True
        return self.max_timestamp, self.max_timestamp_offset

    def _take_largest(self, timestamp: TimestampMs, offset: Offset) -> None:
        """Use the time index's last entry if its batch agrees; a wrong one would mislead retention."""
        try:
            is_right = has_time(self.find_batch(offset), timestamp)
        except LogDamaged:
            is_right = True  # The damage makes a comparison impossible.
        if is_right:
            self.max_timestamp, self.max_timestamp_offset = timestamp, offset
        else:
            self.rebuild_invalid_indexes(f"the batch with offset {offset} does not have timestamp {timestamp}")

    def searched(self) -> SearchedSegment:
        """Return the segment as it is now, for a search by timestamp in a thread."""
        searched = SearchedSegment(
            self._disk,
            self.path,
            file=self._file,
            size=self.size,
            offsets=self.offsets.copy(),
            times=self.times.copy(),
        )
        searched.note_largest((self.max_timestamp, self.max_timestamp_offset), is_all=self._max_known)
        return searched

    @property
    def is_largest_known(self) -> bool:
        """Return whether `largest` reads no file."""
        return self._max_known

    def note_searched(self, searched: SearchedSegment) -> None:
        """Record the greatest timestamp that a search found, unless it is known by now."""
        assert searched.base_offset == self.base_offset, "a search of another segment says nothing about this one"
        largest = searched.found_largest
        if largest is not None and not self._max_known:
            self.max_timestamp, self.max_timestamp_offset = largest
            self._max_known = True
        if searched.disagreement is not None:
            self.rebuild_invalid_indexes(searched.disagreement)

    def may_reach(self, timestamp: TimestampMs) -> bool:
        """Return False if all timestamps are known to be less, without reading a file."""
        return self.size > 0 and not (self._max_known and self.max_timestamp < timestamp)

    def _scan_largest(self) -> None:
        for place in self._readable():
            self._note_timestamp(place)

    def _readable(self) -> Iterator[FileBatch]:
        """Yield all batches of the segment; record and skip damaged ones."""
        position = 0
        while position < self.size:
            try:
                yield from self._walk(position, CHECK_CHUNK_BYTES)
                return
            except Damaged as damage:
                self.note_damage(damage.position, damage.why)
                position = self._noted_end(damage.position)

    def _note_timestamp(self, place: FileBatch) -> None:
        if place.max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = place.max_timestamp, place.last_offset

    # ------------------------------------------------------------------ repair, truncation

    def end_by_index(self) -> Offset:
        """Return the end offset by a walk from the last index entry, and record timestamps.

        Raise Damaged if the entry or a batch is invalid.
        """
        last = self.offsets.last()
        start, expected = (last[1], last[0] + self.base_offset) if last else (0, NO_OFFSET)
        if self.size and not 0 <= start < self.size:
            raise Damaged(self.offsets.path, start, f"the entry points outside of the segment's {self.size} bytes")
        end = self.base_offset
        for place in self._walk(start):
            if last and place.position == start and not place.base_offset <= expected <= place.last_offset:
                raise Damaged(
                    self.offsets.path, start, f"the entry points to offset {place.base_offset}, not to {expected}"
                )
            self._note_timestamp(place)
            end = Offset(place.last_offset + 1)
        assert end >= self.base_offset, "a segment never ends before it begins"
        return end

    def rebuild_indexes(self, config: LogConfig) -> None:
        """Rebuild the indexes from the batch headers; record and skip damaged batches."""
        damages = self.damages
        self.forget_indexes()
        self.damages = damages  # A walk does not detect batches with wrong checksums.
        for place in self._readable():
            self.index(place, config)
        self.times.maybe_add(*self.largest())
        self.offsets.write()
        self.times.write()

    def forget_indexes(self) -> None:
        """Empty the indexes and timestamps; then call `index` for every batch from the first."""
        self.offsets.clear()
        self.times.clear()
        self._reset_timestamps()
        self._forget_places()
        self.damages = []
        self._max_known = True
        self._since_index = 0

    def index(self, place: FileBatch, config: LogConfig) -> None:
        self._count(place.position, place.size, place.last_offset, place.max_timestamp, config)

    def cut_before(self, place: FileBatch) -> SegmentCut:
        """Return a plan that drops the batch at `place` and all after it; change nothing.

        `place` must be a result of `cut_place`.
        """
        largest = NO_TIMESTAMP, NO_OFFSET
        entries = self.offsets.count_before(place.position)
        if entries:
            self._is_entry_right(entries - 1, cached=False)
        for kept in self._kept_before(place.position):
            # A batch with a damaged base offset, which no checksum covers, fits into no index.
            if kept.max_timestamp > largest[0] and self.can_hold(kept.last_offset):
                largest = kept.max_timestamp, kept.last_offset
        return SegmentCut(
            place.position,
            self.offsets.count_before(place.position),
            self.times.count_below(place.base_offset),
            largest,
        )

    def _kept_before(self, position: int) -> Iterator[FileBatch]:
        """Yield the last batches before a cut, without reading at the cut itself, which may be damaged."""
        border = self.offsets.border_at_or_below(position - 1)
        try:
            yield from walk(self.file, border, position)
        except Damaged as damage:
            raise self.failure(damage) from None

    def shorten(self, cut: SegmentCut) -> None:
        """Shorten the segment in memory only; call `cut_files` before the next append."""
        assert 0 <= cut.position < self.size, "a truncation begins within the segment"
        self.offsets.keep(cut.offset_entries)
        self.times.keep(cut.time_entries)
        self.size = cut.position
        self.was_cut = True
        self.max_timestamp, self.max_timestamp_offset = cut.largest
        self.first_timestamp = NO_TIMESTAMP
        self._max_known = not self.size
        self._overhang = True
        self.damages = [damage for damage in self.damages if damage.start < cut.position]
        self._forget_places()
        self._since_index = 0

    def cut_files(self) -> None:
        """Cut the files at the segment's end; this may be repeated after a failure."""
        self.cut_at(self.size)
        self.offsets.cut()
        self.times.cut()

    def cut_at(self, position: int) -> None:
        """Cut the .log file and sync it: bytes restored by a crash could pass for a later append's end.

        Raise DiskFailed on failure, and on every call after a failed sync: the log must then go offline, as
        after a failed flush.
        """
        assert 0 <= position <= self.size, "a truncation does not extend the segment"
        if self.sync_failed:
            raise DiskFailed(errno.EIO, "an earlier flush failed, so the contents of the disk are unknown", self.path)
        self.file.truncate(position)
        try:
            self.file.sync()
        except DiskFailed as failure:
            self.sync_failed = not failure.is_out_of_files
            raise
        self.size = position
        self._overhang = False
        self.damages = [damage for damage in self.damages if damage.start < position]

    def _reset_timestamps(self) -> None:
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, NO_OFFSET
        self.first_timestamp = NO_TIMESTAMP

    def _forget_places(self) -> None:
        self._hints.clear()
        self._first = (-1, -1)
        del self._recent_ends[:]
        del self._recent_positions[:]
