"""One compaction pass over one log: keeps the last record of each key, as Kafka's LogCleaner does.

Records stay in their places.

    on the loop   Cleaning     the work of the pass as a value
    in a thread   build_map    key → last offset, of the dirty part, as far as the memory permits
    in a thread   clean        some segments → new ones, whose names end in .swap
    on the loop   swap_in      the log reads the new segments from now on; then the next group

The pass verifies the checksum of everything it reads: a damaged log is not compacted.  Between two chunks a pass can be
throttled or withdrawn.  A pass covers only sealed segments, so the bytes it reads do not change under it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import NamedTuple

from odradek.base.errors import Refused
from odradek.base.units import INT32_MAX, INT64_MAX, Offset
from odradek.log.compaction.cleanable import LogToClean
from odradek.log.compaction.cleaned_batches import CleanedBatches, last_batches
from odradek.log.compaction.cleaned_segments import CleanedSegments
from odradek.log.compaction.cleaned_transactions import CleanedTransactions
from odradek.log.files.disk import DiskFailed
from odradek.log.files.disk_failures import LogDamaged
from odradek.log.files.log_config import LogConfig
from odradek.log.log.log import Log
from odradek.log.producers.snapshots import open_producers
from odradek.log.removal.swap import CleanedDisk, Publication
from odradek.log.segment.chunks import Chunk, OldFormat, chunks
from odradek.log.segment.scan import Damaged
from odradek.log.segment.segment import Segment
from odradek.log.segment.transaction_index import AbortedTxn
from odradek.record.batch_filter import RetentionRules, put_keys
from odradek.record.kernels.compact import SLOT_BYTES, BadRecords, OffsetMap
from odradek.record.kernels.compact_runs import KeyRuns

SEGMENTS_PER_GROUP_MAX = 16  # The same number of files is renamed at once.
SLOTS_MIN = 64
Throttle = Callable[[int], None]  # Receives the number of bytes read or written, and may wait.


class CleaningAborted(Exception):
    """Raised in a pass that is no longer needed, because its log was cut, deleted or closed."""


class Uncleanable(Exception):
    """Raised if no pass can clean this log; `damage` is the position without a whole batch, if any."""

    def __init__(self, why: str, damage: LogDamaged | None = None) -> None:
        super().__init__(why)
        self.damage = damage


class Options(NamedTuple):
    """Limits of a pass; sizes in bytes.

    `seed` is 16 random bytes, so that clients cannot craft keys that collide.
    """

    memory_bytes: int
    io_bytes: int
    load_factor: float
    seed: bytes
    rules: RetentionRules


class Source(NamedTuple):
    """Sealed segment, unchanged until the pass ends."""

    segment: Segment
    path: str
    base_offset: Offset
    next_base: Offset
    size: int
    index_bytes: int


class Group(NamedTuple):
    """Sources and the segments that replace them; no segments if all sources stay unchanged."""

    sources: Sequence[Source]
    segments: Sequence[Segment] = ()


class Cleaning:
    """One compaction pass; sizes in bytes.

    `end` is the beginning of the next pass, once the map is built.
    """

    def __init__(self, log: Log, found: LogToClean, options: Options) -> None:
        assert found.first_dirty <= found.first_uncleanable, "the dirty part ends after it begins"
        self._disk = log.disk
        self._directory = log.directory
        self._config = log.config
        self._turns = log.reaper.turns
        self._found = found
        self._producers = list(log.producers)
        self._options = options
        self._sources = [_source(segment, following) for segment, following in pairwise(log.segments)]
        self._indexes = [one.transactions.copy() for one in log.segments if not one.transactions.is_empty]
        self._groups: list[list[Source]] = []  # Groups to clean, the last first.
        self._batches: CleanedBatches | None = None  # Set between the map and the last group.
        self._publication: Publication | None = None
        self.is_withdrawn = False
        self.end = found.first_dirty
        self.read_bytes = 0
        self.kept_bytes = 0
        self.dropped_records = 0

    @property
    def is_mapped(self) -> bool:
        """Return whether the pass holds its map: from its completion until the last group is cleaned."""
        return self._batches is not None

    # ------------------------------------------------------------------ the map

    def build_map(self, throttle: Throttle) -> None:
        """Read the dirty part and build the map.  Raise CleaningAborted, Uncleanable or DiskFailed."""
        assert self._batches is None, "the map of a pass is built once"
        found = self._found
        offsets = OffsetMap(self._map_bytes(), self._options.seed)
        with _as_uncleanable():
            aborted = self._aborted()
            transactions = CleanedTransactions(one for one in aborted if one.last_offset >= found.first_dirty)
            for source in self._sources:
                if source.next_base <= found.first_dirty:
                    continue
                if source.base_offset >= found.first_uncleanable:
                    break
                if not self._map_segment(source, offsets, transactions, throttle):
                    break
                # Offsets after the last batch were dropped in an earlier pass, or never used.
                self.end = min(source.next_base, found.first_uncleanable)
        assert found.first_dirty <= self.end <= found.first_uncleanable, (
            "a cleaning ends between the first dirty and the first uncleanable offset"
        )
        self._batches = CleanedBatches(offsets, self.end, last_batches(self._producers), aborted)
        self._groups = _grouped([one for one in self._sources if one.base_offset < self.end], self._config)[::-1]

    def _map_bytes(self) -> int:
        """Return the size of the map: at most one slot for each offset in the dirty part."""
        found = self._found
        slots = int((found.first_uncleanable - found.first_dirty) / self._options.load_factor) + SLOTS_MIN
        return max(min(self._options.memory_bytes, slots * SLOT_BYTES), SLOTS_MIN * SLOT_BYTES)

    def _map_segment(
        self, source: Source, offsets: OffsetMap, transactions: CleanedTransactions, throttle: Throttle
    ) -> bool:
        """Put one segment's keys into the map; return False if the map is full or the dirty part ends."""
        first, upper, options = self._found.first_dirty, self._found.first_uncleanable, self._options
        runs = KeyRuns(offsets, first, upper)
        for chunk in self._chunks(source, throttle):
            # The dirty part may end within a batch, as a high watermark may that another broker has sent.
            runs.begin_chunk(chunk.data, min(chunk.end_offset, upper))
            self.end = Offset(max(self.end, chunk.next_offset))
            while True:
                if chunk.has_plain_next:  # Finding no run costs 0.8 µs.
                    size = runs.run(chunk.at, chunk.next_offset, offsets.room(options.load_factor))
                    chunk.skip(size, runs.next_offset)
                    self.end = Offset(max(self.end, runs.next_offset))
                batch = chunk.next()
                if batch is None:
                    break
                if batch.next_offset > upper:
                    return False
                end = batch.next_offset
                if batch.is_control:
                    transactions.passes_control(batch)
                elif not transactions.passes_data(batch) and end > first:
                    room = offsets.room(options.load_factor)
                    end = put_keys(offsets, batch, first, room, options.rules.record_bytes_max)
                self.end = Offset(max(self.end, end))
                if end < batch.next_offset:
                    return False
        return True

    def _aborted(self) -> list[AbortedTxn]:
        """Return all aborted transactions of the log."""
        return [one for index in self._indexes for one in index.overlapping(Offset(0), Offset(INT64_MAX))[0]]

    # ------------------------------------------------------------------ the segments

    @property
    def is_over(self) -> bool:
        """Return whether every group is cleaned, once the map is built."""
        return not self._groups

    def clean(self, throttle: Throttle) -> Group:
        """Clean the next group, whose new segments then have names that end in .swap.

        Raise exceptions as build_map does.  If the disk also refuses the cleanup, some files of the pass
        remain; the next start deletes them.
        """
        assert self._publication is None, "the log uses the last group before the next one is cleaned"
        sources = self._groups.pop()
        disk, base = CleanedDisk(self._disk), sources[0].base_offset
        cleaned = CleanedSegments(disk, self._directory, base, self._config, self._options.rules.now)
        dropped_before = self.dropped_records
        try:
            with _as_uncleanable():
                is_changed = len(sources) > 1
                last = [source for source in sources if source.size][-1]
                for source in sources:
                    is_changed |= self._clean_segment(source, cleaned, throttle, ends_group=source is last)
            if cleaned.lacks_beginning:
                self._restore_dropped_count(dropped_before)
            if cleaned.lacks_beginning or not is_changed:
                self.kept_bytes += sum(source.size for source in sources)
                cleaned.discard()
                return Group(sources)
            self.kept_bytes += cleaned.size
            segments = cleaned.seal()
            assert segments[0].base_offset == base, "the new segments begin where their sources do"
            self._publish([segment.base_offset for segment in segments])
        except BaseException:
            if self._publication is None:  # Otherwise undo_publication must follow, in its order.
                with suppress(DiskFailed):
                    cleaned.discard()
            raise
        finally:
            if self.is_over:
                self._batches = None  # Freeing 100 MB takes 5 ms: do it here, not where the loop drops the pass.
        return Group(sources, segments)

    def _clean_segment(self, source: Source, cleaned: CleanedSegments, throttle: Throttle, *, ends_group: bool) -> bool:
        """Write the kept part of one segment; return whether it differs from the segment in any byte."""
        assert self._batches is not None, "the offset map is built before segments are cleaned"
        batches, rules, is_changed = self._batches, self._options.rules, False
        batches.transactions.begins_segment(open_producers(self._disk, self._directory, source.base_offset))
        for chunk in self._chunks(source, throttle):
            before = cleaned.size
            batches.runs.begin_chunk(chunk.data, chunk.end_offset)
            while True:
                if chunk.has_plain_next:
                    is_changed |= self._clean_run(chunk, cleaned, batches, keeps_last=ends_group and chunk.is_last)
                batch = chunk.next()
                if batch is None:
                    break
                # Keep something of a group's last segment, so that a start recognizes that .swap replaces it, too.
                is_nothing_kept = cleaned.last_offset < source.base_offset
                data = batches.kept(batch, rules, keeps_header=ends_group and chunk.is_over and is_nothing_kept)
                is_changed |= data is not batch.view
                if data is not None:
                    cleaned.add(data, batch.base_offset, batch.last_offset)
                cleaned.end_aborted(batches.transactions.take_kept())
            cleaned.write()
            throttle(cleaned.size - before)
        self.read_bytes += source.size
        self.dropped_records = batches.dropped_records
        return is_changed

    def _restore_dropped_count(self, before: int) -> None:
        """Take back the count of dropped records, since their segments stay as they are."""
        assert self._batches is not None, "the offset map is built before segments are cleaned"
        self.dropped_records = self._batches.dropped_records = before

    def _clean_run(self, chunk: Chunk, cleaned: CleanedSegments, batches: CleanedBatches, *, keeps_last: bool) -> bool:
        """Clean the plain batches that come next in the chunk; return whether records were dropped."""
        runs = batches.runs
        size = runs.run(chunk.at, chunk.next_offset, self._options.rules.now, keeps_last, *cleaned.room)
        chunk.skip(size, runs.next_offset)
        if runs.last_offset >= 0:
            cleaned.add(runs.kept(), Offset(runs.base_offset), Offset(runs.last_offset))
        batches.dropped_records += runs.dropped
        return runs.dropped > 0

    def _publish(self, bases: Sequence[Offset]) -> None:
        if self.is_withdrawn:
            raise CleaningAborted
        publication = self._publication = Publication(self._disk, self._directory, bases, self._turns)
        if self.is_withdrawn:
            publication.withdraw()
        if not publication.run():
            raise CleaningAborted

    def undo_publication(self) -> None:
        """Unlink .swap files that the log does not use.  Raise DiskFailed if that fails."""
        if self._publication is not None:
            self._publication.undo()

    def swapped_in(self) -> None:
        """Record that the log uses the last group's segments."""
        assert self._publication is not None, "only a group with new segments is swapped in"
        self._publication = None

    def withdraw(self) -> None:
        """Stop the pass, whichever thread runs it; no more files get names that end in .swap."""
        self.is_withdrawn = True
        if self._publication is not None:
            self._publication.withdraw()

    def _chunks(self, source: Source, throttle: Throttle) -> Iterator[Chunk]:
        file, io_bytes = self._disk.open(source.path), self._options.io_bytes
        for chunk in chunks(file, source.size, source.base_offset, source.next_base, io_bytes):
            if self.is_withdrawn:
                raise CleaningAborted
            throttle(len(chunk.data))
            yield chunk


@contextmanager
def _as_uncleanable() -> Iterator[None]:
    """Convert errors in a log's content to Uncleanable."""
    try:
        yield
    except Damaged as damaged:
        raise Uncleanable(str(damaged), LogDamaged(damaged.path, damaged.position, damaged.why)) from None
    except (BadRecords, OldFormat, Refused) as wrong:
        raise Uncleanable(str(wrong)) from None


def _source(segment: Segment, following: Segment) -> Source:
    return Source(
        segment,
        segment.path,
        segment.base_offset,
        following.base_offset,
        segment.size,
        len(segment.offsets) * 8,
    )


def _grouped(sources: Sequence[Source], config: LogConfig) -> list[list[Source]]:
    """Group neighbours that fit into one segment by size, index and offsets, as groupSegmentsBySize does."""
    groups: list[list[Source]] = []
    size = index_bytes = 0
    for source in sources:
        size, index_bytes = size + source.size, index_bytes + source.index_bytes
        if (
            not groups
            or size > config.segment_bytes
            or index_bytes > config.segment_index_bytes
            or source.next_base - 1 - groups[-1][0].base_offset > INT32_MAX
            or len(groups[-1]) >= SEGMENTS_PER_GROUP_MAX
        ):
            groups.append([])
            size, index_bytes = source.size, source.index_bytes
        groups[-1].append(source)
    return [group for group in groups if any(source.size for source in group)]
