"""One pass of compaction over one log: the last record of each key stays, in its place (Apache Kafka's LogCleaner).

    on the loop   Cleaning     what there is to clean, as a value
    in a thread   build_map    key → last offset, of the dirty part, as far as the memory reaches
    in a thread   clean        some segments → new ones, which get .swap behind their names
    on the loop   swap_in      the log reads the new ones from now on; then the next group

What is read is checked by its checksum: a damaged log is not compacted.  Between two chunks a pass can be held back, or
withdrawn.  A pass stops only where its log's sealed segments do, so what it reads does not change under it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import NamedTuple

from odradek.base.errors import Refused
from odradek.base.units import INT32_MAX, INT64_MAX, Offset
from odradek.log.compaction.cleanable import Cleanable
from odradek.log.compaction.cleaned_batches import CleanedBatches, last_batches
from odradek.log.compaction.cleaned_segments import CleanedSegments
from odradek.log.compaction.cleaned_transactions import CleanedTransactions
from odradek.log.files.disk import DiskFailed
from odradek.log.files.disk_failures import LogDamaged
from odradek.log.files.log_config import LogConfig
from odradek.log.log.log import Log
from odradek.log.producers.snapshots import left_open
from odradek.log.removal.swap import CleanedDisk, Publication
from odradek.log.segment.chunks import Chunk, OldFormat, chunks
from odradek.log.segment.scan import Damaged
from odradek.log.segment.segment import Segment
from odradek.log.segment.transaction_index import Aborted
from odradek.record.batch_filter import Rules, put_keys
from odradek.record.kernels.compact import SLOT_BYTES, BadRecords, OffsetMap
from odradek.record.kernels.compact_runs import KeyRuns

SEGMENTS_PER_GROUP_MAX = 16  # As many files change their names at once.
SLOTS_MIN = 64
Throttle = Callable[[int], None]  # Is told how many bytes were read or written, and may wait.


class Withdrawn(Exception):
    """Raised in a pass that is not wanted any more: its log was cut, deleted or closed."""


class Uncleanable(Exception):
    """Raised for what no pass over this log will get past; `damage` is a place that is no whole batch, if it is one."""

    def __init__(self, why: str, damage: LogDamaged | None = None) -> None:
        super().__init__(why)
        self.damage = damage


class Options(NamedTuple):
    """How a pass may work.  Sizes in bytes; `seed` is 16 random bytes, so that nobody can craft keys that are one."""

    memory_bytes: int
    io_bytes: int
    load_factor: float
    seed: bytes
    rules: Rules


class Source(NamedTuple):
    """A sealed segment, as it stays until the pass is over."""

    segment: Segment
    path: str
    base_offset: Offset
    next_base: Offset
    size: int
    index_bytes: int


class Group(NamedTuple):
    """Some sources, and the segments that they became; none if all of them stays as it is."""

    sources: Sequence[Source]
    segments: Sequence[Segment] = ()


class Cleaning:
    """One pass.  `end` is where the next one begins, once the map is built.  Sizes in bytes."""

    def __init__(self, log: Log, found: Cleanable, options: Options) -> None:
        self._disk = log.disk
        self._directory = log.directory
        self._config = log.config
        self._turns = log.reaper.turns
        self._found = found
        self._producers = list(log.producers)
        self._options = options
        self._sources = [_source(segment, following) for segment, following in pairwise(log.segments)]
        self._indexes = [one.transactions.copy() for one in log.segments if not one.transactions.is_empty]
        self._groups: list[list[Source]] = []  # Those to come, the last first.
        self._batches: CleanedBatches | None = None  # Between the map and the last group.
        self._publication: Publication | None = None
        self.is_withdrawn = False
        self.end = found.first_dirty
        self.read_bytes = 0
        self.kept_bytes = 0
        self.dropped_records = 0

    @property
    def is_mapped(self) -> bool:
        """True while it has its map: from when that is built until the last group is cleaned."""
        return self._batches is not None

    # ------------------------------------------------------------------ the map

    def build_map(self, throttle: Throttle) -> None:
        """Reads the dirty part.  Raises Withdrawn; Uncleanable; DiskFailed."""
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
                # Offsets behind the last batch went in an earlier pass, or never were.
                self.end = min(source.next_base, found.first_uncleanable)
        assert found.first_dirty <= self.end <= found.first_uncleanable, "a pass covers what may be cleaned"
        self._batches = CleanedBatches(offsets, self.end, last_batches(self._producers), aborted)
        self._groups = _grouped([one for one in self._sources if one.base_offset < self.end], self._config)[::-1]

    def _map_bytes(self) -> int:
        """Returns what the map takes: no more than a slot for each offset there is."""
        found = self._found
        slots = int((found.first_uncleanable - found.first_dirty) / self._options.load_factor) + SLOTS_MIN
        return max(min(self._options.memory_bytes, slots * SLOT_BYTES), SLOTS_MIN * SLOT_BYTES)

    def _map_segment(
        self, source: Source, offsets: OffsetMap, transactions: CleanedTransactions, throttle: Throttle
    ) -> bool:
        """Puts one segment's keys into the map; returns False if it is full, or the dirty part ends."""
        first, upper, options = self._found.first_dirty, self._found.first_uncleanable, self._options
        runs = KeyRuns(offsets, first, upper)
        for chunk in self._chunks(source, throttle):
            runs.begin(chunk.data, chunk.end_offset)
            self.end = Offset(max(self.end, chunk.next_offset))
            while True:
                if chunk.has_plain_next:  # To find out that there is no run takes 0.8 µs.
                    size = runs.run(chunk.at, chunk.next_offset, offsets.room(options.load_factor))
                    chunk.pass_by(size, runs.next_offset)
                    self.end = Offset(max(self.end, runs.next_offset))
                batch = chunk.next()
                if batch is None:
                    break
                if batch.base_offset >= upper:
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

    def _aborted(self) -> list[Aborted]:
        """Returns all aborted transactions of the log."""
        return [one for index in self._indexes for one in index.overlapping(Offset(0), Offset(INT64_MAX))[0]]

    # ------------------------------------------------------------------ the segments

    @property
    def is_over(self) -> bool:
        """True if every group is cleaned, once the map is built."""
        return not self._groups

    def clean(self, throttle: Throttle) -> Group:
        """Cleans the next group, whose new segments then have .swap behind their names.

        Raises as build_map; files of its own may be left where the disk refuses that too: a start deletes them.
        """
        sources = self._groups.pop()
        disk, base = CleanedDisk(self._disk), sources[0].base_offset
        cleaned = CleanedSegments(disk, self._directory, base, self._config, self._options.rules.now)
        try:
            with _as_uncleanable():
                is_changed = len(sources) > 1
                last = [source for source in sources if source.size][-1]
                for source in sources:
                    is_changed |= self._clean_segment(source, cleaned, throttle, ends_group=source is last)
            self.kept_bytes += cleaned.size
            if not is_changed:
                cleaned.discard()
                return Group(sources)
            segments = cleaned.seal()
            self._publish([segment.base_offset for segment in segments])
        except BaseException:
            if self._publication is None:  # Else take_back must follow, in its order.
                with suppress(DiskFailed):
                    cleaned.discard()
            raise
        finally:
            if self.is_over:
                self._batches = None  # To give 100 MB back takes 5 ms: here, and not where the loop drops the pass.
        return Group(sources, segments)

    def _clean_segment(self, source: Source, cleaned: CleanedSegments, throttle: Throttle, *, ends_group: bool) -> bool:
        """Writes what stays of one segment; returns True if that is not all of it, byte for byte."""
        assert self._batches is not None, "the map is built first"
        batches, rules, is_changed = self._batches, self._options.rules, False
        batches.transactions.begins_segment(left_open(self._disk, self._directory, source.base_offset))
        for chunk in self._chunks(source, throttle):
            before = cleaned.size
            batches.runs.begin(chunk.data, chunk.end_offset)
            while True:
                if chunk.has_plain_next:
                    is_changed |= self._clean_run(chunk, cleaned, batches, keeps_last=ends_group and chunk.is_last)
                batch = chunk.next()
                if batch is None:
                    break
                # Something of a group's last segment stays: by it a start sees that .swap replaces that segment, too.
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

    def _clean_run(self, chunk: Chunk, cleaned: CleanedSegments, batches: CleanedBatches, *, keeps_last: bool) -> bool:
        """Does the same with the plain batches that come next in the chunk, as many as there are."""
        runs = batches.runs
        size = runs.run(chunk.at, chunk.next_offset, self._options.rules.now, keeps_last, *cleaned.room)
        chunk.pass_by(size, runs.next_offset)
        if runs.last_offset >= 0:
            cleaned.add(runs.kept(), Offset(runs.base_offset), Offset(runs.last_offset))
        batches.dropped_records += runs.dropped
        return runs.dropped > 0

    def _publish(self, bases: Sequence[Offset]) -> None:
        if self.is_withdrawn:
            raise Withdrawn
        publication = self._publication = Publication(self._disk, self._directory, bases, self._turns)
        if self.is_withdrawn:
            publication.withdraw()
        if not publication.run():
            raise Withdrawn

    def take_back(self) -> None:
        """Unlinks what has .swap behind its name and is not the log's.  Raises DiskFailed."""
        if self._publication is not None:
            self._publication.take_back()

    def swapped_in(self) -> None:
        """Notes that the log has the last group's segments."""
        self._publication = None

    def withdraw(self) -> None:
        """Ends the pass, in whatever thread it is: nothing more gets .swap behind its name."""
        self.is_withdrawn = True
        if self._publication is not None:
            self._publication.withdraw()

    def _chunks(self, source: Source, throttle: Throttle) -> Iterator[Chunk]:
        file, io_bytes = self._disk.open(source.path), self._options.io_bytes
        for chunk in chunks(file, source.size, source.base_offset, source.next_base, io_bytes):
            if self.is_withdrawn:
                raise Withdrawn
            throttle(len(chunk.data))
            yield chunk


@contextmanager
def _as_uncleanable() -> Iterator[None]:
    """Turns what is wrong with a log's content into Uncleanable."""
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
    """Puts neighbours together that fit into one segment, by size, index and offsets (Kafka's groupSegmentsBySize)."""
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
