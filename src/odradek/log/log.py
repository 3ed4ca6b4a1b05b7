"""One partition's log: appended at its end, read from anywhere, cut at either end.

    append      stamp base offset and leader epoch in place → roll? → one write → index entry every few KiB, producers
                or begin_arrival, then arrived: a large batch is written while it is received, see arrival.py
    read        segment → position (remembered, or index and a short walk) → a slice of the file; nothing is decoded
    flush       begin_flush() here, run() in a thread, flushed() here: see flush.py
    open        recovery.py

An append is in the page cache when it returns: a killed process loses nothing of it, a power failure what was not
flushed.  After a write that failed the log is as before it, and says DiskFailed.  What takes several files is decided
first, then changed in memory, then done: what the disk refuses is owed, see owed.py, or waits in the reaper.  Not
thread-safe; slices and flushes are, and may outlive the log.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from operator import attrgetter
from struct import Struct
from typing import Protocol

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import INT32_MAX, LeaderEpoch, Offset, ProducerId, TimestampMs
from odradek.log import recovery
from odradek.log.aborted import AbortedTransactions
from odradek.log.arrival import Arrival
from odradek.log.config import LogConfig
from odradek.log.disk import EMPTY_SLICE, Disk, DiskFailed, FileSlice
from odradek.log.failures import LogDamaged
from odradek.log.flush import Flush
from odradek.log.names import LEADER_EPOCHS, PARTITION_METADATA
from odradek.log.opening import Loaded, Opening
from odradek.log.owed import Owed, Work
from odradek.log.page_cache import CachedFile
from odradek.log.producer_recovery import keep_snapshot, restored
from odradek.log.producers import Producers, ProducerStateEntry
from odradek.log.reached import at_or_after, with_greatest
from odradek.log.reaper import Reaper, SegmentRetirement
from odradek.log.retention import Bounds, expired_segments
from odradek.log.search import Later, Search, TimedOffset
from odradek.log.segment import Segment
from odradek.log.swap import Swap, SwapDisk, SwapState
from odradek.log.transaction_index import Aborted
from odradek.record.batch import CONTROL, HEADER_BYTES, LOG_OVERHEAD_BYTES, Batch
from odradek.record.markers import end_marker

__all__ = ["Flush", "Log"]

FIRST_OFFSET = Offset(0)
SEALED_OPEN_MAX = 4
HOLLOW_BYTES_MAX = 64 * HEADER_BYTES  # As many headers are looked at, where nothing else is left of a segment's end.
_unpack_count = Struct(">i").unpack_from
_COUNT_POSITION = HEADER_BYTES - 4
_BASE_OFFSET = attrgetter("base_offset")


def _is_hollow(found: FileSlice, segment: Segment, cached: bool) -> bool:
    """True for the rest of a segment if compaction left nothing of it but headers, which keep offsets and sequences.

    A reader gets what comes behind instead: librdkafka takes an answer without a record for one that was cut too short,
    and asks for twice as much, until it gives up.
    """
    size = found.size
    if not size or size % HEADER_BYTES or size > HOLLOW_BYTES_MAX or found.position + size < segment.size:
        return False
    file = CachedFile(found.file) if cached else found.file
    data = file.pread(found.position, size)
    return all(_unpack_count(data, at + _COUNT_POSITION)[0] == 0 for at in range(0, size, HEADER_BYTES))


class CleaningPass(Protocol):
    """A pass of compaction, as its log sees it: cleaner.py."""

    def withdraw(self) -> None:
        """Ends it, in whatever thread it is."""

    def take_back(self) -> None:
        """Unlinks what it has made, and the log does not have.  Raises DiskFailed."""


class Log:
    """What lies below recovery_point survives a power failure.  Replace `config` when the topic's changes."""

    def __init__(self, opening: Opening, loaded: Loaded, reaper: Reaper) -> None:
        self.disk = opening.disk
        self.directory = opening.directory
        self.config = opening.config
        self.reaper = reaper
        self.segments = loaded.segments
        self._active = loaded.segments[-1]
        # The twin of these is in recovery.load: what it found on the disk, it has put in order.
        assert loaded.start_offset <= loaded.end_offset, "a log begins before it ends"
        assert loaded.recovery_point <= loaded.end_offset, "nothing is safe that is not there"
        assert self._active.base_offset <= loaded.end_offset, "a log ends in its last segment"
        self._arrival: Arrival | None = None
        self.start_offset = loaded.start_offset
        self.end_offset = loaded.end_offset
        self.recovery_point = loaded.recovery_point
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self._snapshots = loaded.snapshots
        self.topic_id = loaded.topic_id
        self.lost_bytes = loaded.lost_bytes  # What recovery cut off.
        self.aside = loaded.aside
        self.last_flush_ms = self.last_append_ms = opening.now_ms
        self.appended_bytes = 0  # How many bytes were appended since the log was opened.
        self._unsynced = loaded.unsynced
        self._changes = 0  # Of the directory; a flush must sync it when they exceed the synced ones.
        self._synced_changes = 0 if loaded.is_synced else -1  # -1: not even the directory's own name is durable.
        self._synced_epoch_changes = 0
        self._flushing: list[Flush] = []
        self._sealed_open: list[Segment] = []
        self._is_prepared = False
        self._owed = Owed()
        self._aborted = AbortedTransactions(loaded.snapshots, loaded.segments, loaded.end_offset)
        self._on_lowered: Callable[[Offset], None] | None = None
        self.cleaning: CleaningPass | None = None  # The pass of compaction that is under way.
        self._cleaned_to = FIRST_OFFSET
        self._cleaned: list[tuple[Offset, Sequence[SwapState]]] = []  # Passes whose files have not got their names yet.
        self._swaps: list[SwapState] = []
        self.on_failure: Callable[[OSError], None] | None = None  # Told when the log goes offline for a failure.
        for segment in loaded.segments:
            segment.release()

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        config: LogConfig,
        now_ms: TimestampMs,
        *,
        recovery_point: Offset = FIRST_OFFSET,
        clean_shutdown: bool = False,
        start_offset: Offset = FIRST_OFFSET,
        reaper: Reaper | None = None,
        noted: str = "",
        was_compacted: bool = False,
        repairs: bool = False,
    ) -> Log:
        """An existing directory, empty for a new log.

        recovery_point and start_offset are those of the last checkpoint; a recovery point too low costs time only.
        `noted`, `was_compacted`: what else is known of its segments, see presence.py; repairs: where one is missing
        the log is cut, as at a damage, and all that is cut off is set aside.
        Raises DiskFailed; SegmentMissing; BadCheckpoint for a partition.metadata that can't be read.
        """
        opening = Opening(
            disk,
            directory,
            config,
            now_ms,
            recovery_point,
            start_offset,
            clean_shutdown,
            noted,
            was_compacted,
            repairs,
        )
        return cls(opening, recovery.load(opening), Reaper(disk) if reaper is None else reaper)

    @property
    def size(self) -> int:
        """The size of all batches in bytes."""
        return sum(segment.size for segment in self.segments)

    # ------------------------------------------------------------------ append

    def append(self, batches: Batch | Sequence[Batch], leader_epoch: LeaderEpoch, now_ms: TimestampMs) -> None:
        """Appends as the leader: the batches get the next offsets, stamped in place.

        Raises Refused: MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE; DiskFailed, after which nothing of them is there.
        """
        if isinstance(batches, Batch):
            batches = (batches,)
        self.append_known(batches, leader_epoch, now_ms, None)
        self._note(batches)

    def append_known(
        self,
        batches: Sequence[Batch],
        leader_epoch: LeaderEpoch,
        now_ms: TimestampMs,
        producers: Mapping[ProducerId, ProducerStateEntry] | None,
    ) -> None:
        """Appends batches, none a marker, whose producers' entries after them are known already: `producers`."""
        config = self.config
        offset = base = self.end_offset
        size = 0
        for batch in batches:
            batch_bytes = batch.batch_length + LOG_OVERHEAD_BYTES
            if batch_bytes > config.max_message_bytes and not batch.attributes & CONTROL:  # A transaction has to end.
                detail = f"a batch of {batch.size} bytes, max.message.bytes is {config.max_message_bytes}"
                raise Refused(ErrorCode.MESSAGE_TOO_LARGE, detail)
            batch.stamp(offset, leader_epoch)
            if config.log_append_time:
                batch.stamp_log_append_time(now_ms)
            size += batch_bytes
            offset = Offset(offset + batch.last_offset_delta + 1)
        if size > config.segment_bytes:
            raise Refused(ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes, a segment has {config.segment_bytes}")
        assert offset > base, "a checked batch has at least one record"
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base)
        self._write(batches, size, offset, now_ms)
        if producers is not None:
            self.producers.put(producers)

    def _note(self, batches: Sequence[Batch]) -> None:
        """Updates the producers, and the aborted transactions, by batches that were appended."""
        for batch in batches:
            if batch.producer_id < 0:
                continue
            if not batch.attributes & CONTROL:
                self.producers.note(batch)
            elif (marker := end_marker(batch)) is not None:
                ended = self.producers.end(marker, batch)
                if ended is not None and not ended.is_commit:
                    self._aborted.add(self._active, ended)

    def append_as_follower(self, batches: Sequence[Batch], now_ms: TimestampMs) -> None:
        """Appends batches as a leader stamped them, unchanged; offsets may leave gaps, but never go back.

        Raises Refused(CORRUPT_MESSAGE) if they do; DiskFailed as append.
        """
        assert batches
        end = self.end_offset
        for batch in batches:
            if batch.base_offset < end or batch.last_offset_delta < 0:
                raise Refused(ErrorCode.CORRUPT_MESSAGE, f"the leader sent {batch} where {end} is next")
            end = batch.next_offset
        for batch in batches:
            if batch.leader_epoch != self.epochs.latest:
                self.epochs.assign(batch.leader_epoch, batch.base_offset)
        size = sum(batch.size for batch in batches)
        self._write(batches, size, end, now_ms)
        self._note(batches)

    def begin_arrival(self, batch: Batch, leader_epoch: LeaderEpoch, now_ms: TimestampMs) -> Arrival | None:
        """Begins a streaming append: writes the front of a batch; ended by `arrived` or `forget_arrival`.

        Returns None if the batch must be appended as a whole.  Raises DiskFailed, after which nothing of it is there.
        """
        config, size = self.config, batch.size
        if config.log_append_time or config.preallocate or size > min(config.max_message_bytes, config.segment_bytes):
            return None
        self._interrupt()
        batch.stamp(self.end_offset, leader_epoch)
        self._make_room(size, batch.max_timestamp, batch.next_offset, self.end_offset, now_ms)
        position = self._active.begin(batch.view)
        self._arrival = Arrival(batch, self._active.file, position)
        return self._arrival

    def arrived(self, arrival: Arrival) -> None:
        """Completes a streaming append: all of the batch is written, and intact."""
        assert arrival is self._arrival, "a withdrawn arrival does not end"
        self._arrival = arrival.withdraw = None
        batch = arrival.batch
        assert batch.base_offset == self.end_offset, "whatever moves the log's end withdraws the arrival first"
        if batch.leader_epoch != self.epochs.latest:
            self.epochs.assign(batch.leader_epoch, batch.base_offset)
        self._active.complete(batch, self.config)
        assert self._active.size == arrival.position + arrival.left, "its last byte is the log's last"
        self.appended_bytes += batch.size
        self.end_offset = batch.next_offset
        self._note((batch,))

    def forget_arrival(self, arrival: Arrival) -> None:
        """Gives up a streaming append; does nothing for one that was withdrawn already.  Raises DiskFailed."""
        if arrival is self._arrival:
            self._arrival = arrival.withdraw = None
            self._active.give_up()

    def _interrupt(self) -> None:
        """Withdraws an unfinished streaming append; every other operation on the log's end calls this first."""
        arrival = self._arrival
        if arrival is not None:
            if arrival.withdraw is not None:
                arrival.withdraw()
            self.forget_arrival(arrival)

    def _write(self, batches: Sequence[Batch], size: int, end: Offset, now_ms: TimestampMs) -> None:
        if self._arrival is not None:
            self._interrupt()
        newest = batches[0].max_timestamp if len(batches) == 1 else max(batch.max_timestamp for batch in batches)
        self._make_room(size, newest, end, batches[0].base_offset, now_ms)
        active = self._active
        before = active.size
        assert self.end_offset <= batches[0].base_offset < end, "offsets rise"
        active.append(batches, self.config)
        assert active.size == before + size, "of what was counted, all is written"
        self.appended_bytes += size
        self.end_offset = end

    def _make_room(self, size: int, newest: TimestampMs, end: Offset, base_offset: Offset, now_ms: TimestampMs) -> None:
        """Rolls if the active segment may not take `size` bytes with offsets from `base_offset` up to `end`."""
        config = self.config
        self.last_append_ms = now_ms
        if not self._is_prepared:
            self._prepare()
        if self._active.must_roll(size, newest, end, now_ms, config):
            is_far = end - self.end_offset > INT32_MAX  # A follower's gap that no index could bridge.
            self.roll(now_ms, base_offset if is_far else self.end_offset)

    def _prepare(self) -> None:
        self._owed.settle()
        self._active.prepare(self.config)
        self._is_prepared = True

    def roll(self, now_ms: TimestampMs, base_offset: Offset | None = None) -> None:
        """Begins a new active segment at `base_offset`, by default the log's end; the old one is yet to be flushed."""
        old = self._active
        base_offset = self.end_offset if base_offset is None else base_offset
        if old.base_offset == base_offset:
            return
        self._interrupt()
        self._owed.settle()
        old.seal()
        segment = Segment(self.disk, self.directory, base_offset, now_ms)
        try:
            segment.make_files(self.config)
        except DiskFailed:
            # Half a segment would hide what is appended before it is rolled in earnest, also if a power failure brings
            # it back: what lies before it and below the recovery point counts as whole.
            self._owe(segment.unmake_files, partial(self.disk.sync_directory, self.directory))
            raise
        self._changes += 1
        self._snapshots.try_to_write(base_offset, list(self.producers))
        self._unsynced.append(old)
        self._activate([*self.segments, segment])
        segment.prepare(self.config)
        self._is_prepared = True
        self._touch(old)

    # ------------------------------------------------------------------ owed

    @property
    def owes(self) -> bool:
        """True if the disk refused some work on the log's files that is to be done again."""
        return bool(self._owed) or not self.epochs.is_written

    def settle(self) -> None:
        """Does the work on the log's files that the disk refused before.  Raises DiskFailed if it does so again."""
        self._owed.settle()
        if not self.epochs.is_written:
            self.epochs.write()

    def _owe(self, *works: Work) -> None:
        """Queues work that must be done before the next append, and does it now if the disk lets it."""
        self._owed.add(*works)
        self._is_prepared = False
        with suppress(DiskFailed):
            self._owed.settle()

    def _activate(self, segments: list[Segment]) -> None:
        self.segments = segments
        self._active = segments[-1]
        self._is_prepared = False

    # ------------------------------------------------------------------ read

    def read(self, offset: Offset, max_bytes: int, upto: Offset, *, cached: bool = False) -> FileSlice:
        """Returns whole batches: the one that has `offset` and what follows, ending below `upto` and within max_bytes.

        Returns at least one batch, even if it is larger; none if `upto` is reached or inside the first.  May stop short
        of max_bytes.  Raises Refused(OFFSET_OUT_OF_RANGE), DiskFailed; with `cached` NotCached where the disk would
        have to be waited for, though not for the records themselves.
        """
        if not self.start_offset <= offset <= self.end_offset:
            detail = f"{offset} is not in {self.start_offset}..{self.end_offset}"
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, detail)
        return self.read_stored(offset, max_bytes, upto, cached=cached)

    def read_stored(self, offset: Offset, max_bytes: int, upto: Offset, *, cached: bool = False) -> FileSlice:
        """Does what read does, from the first segment on: that may begin before the log does."""
        number = len(self.segments) - 1
        if offset < self._active.base_offset:
            number = bisect_right(self.segments, offset, key=_BASE_OFFSET) - 1
        while offset < upto and number < len(self.segments):
            segment = self.segments[number]
            if segment is not self._active:
                self._touch(segment)
            start = segment.locate(offset, cached=cached)
            if start is not None:
                found = self._slice(segment, start, max_bytes, upto, number, cached)
                is_last = segment is self._active or self.segments[number + 1].base_offset >= upto
                if is_last or not _is_hollow(found, segment, cached):
                    return found
            number += 1  # The rest of that segment was compacted away.
        return EMPTY_SLICE

    def _slice(  # noqa: PLR0917
        self, segment: Segment, start: int, max_bytes: int, upto: Offset, number: int, cached: bool
    ) -> FileSlice:
        end = self.end_offset if segment is self._active else self.segments[number + 1].base_offset
        limit = segment.size if upto >= end else segment.locate(upto, cached=cached)
        if limit is None:
            limit = segment.size
        if segment.damages:
            limit = segment.whole_until(start, limit)
        if start >= limit:
            return FileSlice(segment.file, start, 0)
        cut = segment.cut(start, start + max_bytes, limit, cached=cached)
        assert 0 <= start < cut <= limit <= segment.size, "a slice lies in its segment, and is not empty"
        if cut == limit:
            segment.hint(min(upto, end), cut)
        return FileSlice(segment.file, start, cut - start)

    def note_damage(self, damage: LogDamaged) -> bool:
        """Notes a place that is no whole batch: it is not served from now on.  False if that was known."""
        return any(one.note_damage(damage.position) for one in self.segments if one.path == damage.path)

    @property
    def damaged_places(self) -> int:
        """How many places were found so far that are no whole batches."""
        return sum([len(segment.damages) for segment in self.segments])

    def aborted(self, offset: Offset, records: FileSlice, upto: Offset) -> Sequence[Aborted]:
        """Returns the aborted transactions that overlap `records`, read from `offset` to `upto`; maybe a few more."""
        return self._aborted.reaching(self.segments, offset, records, upto)

    def _touch(self, segment: Segment) -> None:
        """Notes that a sealed segment is open, and closes the oldest such: a reader from the start would open all."""
        if segment not in self._sealed_open:
            self._sealed_open.append(segment)
            if len(self._sealed_open) > SEALED_OPEN_MAX:
                self._sealed_open.pop(0).release()

    def search(
        self, timestamp: TimestampMs | None, start: Offset, end: Offset, *, is_large: bool = True
    ) -> Search | None:
        """Returns a search for a record by time from `start` to below `end`; None: the greatest timestamp (KIP-734).

        Returns None if it is known already that there is no such record.  A search reads nothing before it is run, and
        may be run in a thread.  See Later for is_large.
        """
        start = Offset(max(start, self.start_offset))
        if start >= end:
            return None
        if timestamp is None:
            reached = with_greatest(self.segments, start, end)
        else:
            reached = at_or_after(self.segments, timestamp, start, end)
        if not reached.segments:
            return None
        segments = [segment.searched() for segment in reached.segments]
        bytes_max = self.config.max_decompressed_message_bytes
        return Search(segments, timestamp, start, end, is_large, self.segments, bytes_max, reached.rest)

    def note_searched(self, search: Search) -> None:
        """Notes the greatest timestamps that a search has found: the next one need not look at those indexes."""
        if search.is_of(self.segments):
            for searched in search.segments:
                number = bisect_right(self.segments, searched.base_offset, key=_BASE_OFFSET) - 1
                self.segments[number].note_searched(searched)

    def lookup_timestamp(self, timestamp: TimestampMs | None) -> TimedOffset | None:
        """Does all steps of a search at once; blocks.  Raises Refused and DiskFailed as Search.run."""
        start = self.start_offset
        while (search := self.search(timestamp, start, self.end_offset)) is not None:
            found = search.run()
            self.note_searched(search)
            if not isinstance(found, Later):
                return found
            start = found.start
        return None

    # ------------------------------------------------------------------ flush

    def needs_flush(self, now_ms: TimestampMs) -> bool:
        """True if flush.messages or flush.ms is reached, or a segment was rolled since the last flush."""
        unflushed = self.end_offset - self.recovery_point
        if not (unflushed or self._unsynced):
            return False
        config = self.config
        waited_ms = now_ms - self.last_flush_ms
        # Below 0 the clock was set back: nobody knows how long it was.
        is_late = waited_ms >= config.flush_ms or waited_ms < 0
        return bool(self._unsynced) or unflushed >= config.flush_messages or is_late

    def begin_flush(self) -> Flush:
        """Returns a flush of all that was appended so far, with the sealed segments' indexes and new file names."""
        self._owed.settle()
        self._flushing = [flush for flush in self._flushing if not flush.was_put_off]
        files, paths, directories = [], [], []
        for segment in self._unsynced:
            files.append(segment.file)
            paths += [segment.offsets.path, segment.times.path, segment.transactions.path]
        paths += [self._snapshots.path(end) for end in self._unsynced_ends()]
        if self.recovery_point < self.end_offset or self._changes > self._synced_changes:
            files.append(self._active.file)
        if self._synced_changes < 0:
            paths.append(f"{self.directory}/{PARTITION_METADATA}")
            directories.append(self.directory.rpartition("/")[0])
        if self.epochs.changes > self._synced_epoch_changes:
            paths.append(f"{self.directory}/{LEADER_EPOCHS}")
        if paths or self._changes > self._synced_changes:
            directories.append(self.directory)
        flush = Flush(
            self.disk,
            self.end_offset,
            files=files,
            paths=paths,
            directories=directories,
            sealed=self._unsynced,
        )
        flush.changes, flush.epoch_changes = self._changes, self.epochs.changes
        assert self.recovery_point <= flush.end_offset, "a flush takes nothing back"
        self._flushing.append(flush)
        return flush

    def _unsynced_ends(self) -> list[Offset]:
        """Returns the end offset of each sealed segment that a flush has to sync."""
        if not self._unsynced:
            return []
        unsynced = {id(segment) for segment in self._unsynced}
        return [following.base_offset for one, following in pairwise(self.segments) if id(one) in unsynced]

    def flushed(self, flush: Flush, now_ms: TimestampMs | None = None) -> None:
        """Takes in a flush that ran: what it covered is durable, and the recovery point moves there."""
        assert flush in self._flushing, "a flush is reported once, to the log it came from"
        assert not flush.has_failed and not flush.was_put_off, "what failed covers nothing"
        # A truncation meanwhile has lowered it.
        assert flush.end_offset <= self.end_offset, "a flush covers no more than was written"
        assert flush.changes <= self._changes, "nor more of the directory than was changed"
        self._flushing.remove(flush)
        if now_ms is not None:
            self.last_flush_ms = now_ms
        self.recovery_point = Offset(max(self.recovery_point, flush.end_offset))
        if self._unsynced:
            self._unsynced = [segment for segment in self._unsynced if segment not in flush.sealed]
        self._synced_changes = max(self._synced_changes, flush.changes)
        self._synced_epoch_changes = max(self._synced_epoch_changes, flush.epoch_changes)

    def flush(self, now_ms: TimestampMs | None = None) -> None:
        """Does all three steps of a flush at once; blocks."""
        flush = self.begin_flush()
        flush.run()
        self.flushed(flush, now_ms)

    # ------------------------------------------------------------------ open files

    @property
    def is_flushed(self) -> bool:
        """True if everything in the log is durable, and no streaming append is under way."""
        is_synced = self.recovery_point >= self.end_offset and self._changes <= self._synced_changes
        is_under_way = self._unsynced or self._arrival is not None
        return is_synced and not is_under_way

    @property
    def synced_to(self) -> Offset:
        """The offset below which everything is durable, sealed segments with their indexes too."""
        return min([self.recovery_point, *(segment.base_offset for segment in self._unsynced)])

    def has_open_files(self, below: int) -> bool:
        """True if a file of the log is open under a descriptor less than `below`."""
        return any(segment.is_open and segment.file.fileno() < below for segment in self.segments)

    def release_files(self) -> None:
        """Closes all open files; what needs one opens it again.

        A file closes when nobody refers to it any more, so whoever reads, sends or syncs one at the moment keeps it.
        To be called on a flushed log only: an error of a later write-back is told to those that have the file open, and
        a sync by a file that is opened afterwards might not hear of it.
        """
        assert self.is_flushed, f"{self.directory} has something that is not synced"
        for segment in self.segments:
            segment.release_file()
        self._sealed_open = []

    # ------------------------------------------------------------------ compaction

    @property
    def cleaned_to(self) -> Offset:
        """The offset where the next pass of compaction begins: below it the files are compacted, durably."""
        while self._cleaned and all(swap.is_done for swap in self._cleaned[0][1]):
            self._cleaned_to = self._cleaned.pop(0)[0]
        return self._cleaned_to

    @cleaned_to.setter
    def cleaned_to(self, offset: Offset) -> None:
        self._cleaned_to = offset
        self._cleaned.clear()

    @property
    def is_swapping(self) -> bool:
        """True if files of the log have not got their names yet."""
        if self._swaps:
            self._swaps = [swap for swap in self._swaps if not swap.is_done]
        return bool(self._swaps)

    @property
    def may_be_cleaned(self) -> bool:
        """True if a pass may begin: none is under way, and a power failure brings back no file that the log has not.

        What a pass leaves away would be missed beside segments that retention took, and that it has not read.
        """
        is_in_order = not (self.is_swapping or self.owes or self.reaper.is_retiring(self.directory))
        return is_in_order and self.cleaning is None

    def swap_in(self, sources: Sequence[Segment], segments: Sequence[Segment], now_ms: TimestampMs) -> bool:
        """Takes compacted segments in the place of their sources; their files get their names in the reaper's rounds.

        Returns False, and changes nothing, if the log does not have all of the sources any more.
        """
        first = next((number for number, one in enumerate(self.segments) if one is sources[0]), len(self.segments))
        behind = first + len(sources)
        present = self.segments[first:behind]
        if len(present) < len(sources) or any(a is not b for a, b in zip(present, sources, strict=True)):
            return False
        assert behind < len(self.segments), "the active segment is not compacted"
        assert not any(one in self._unsynced for one in sources), "what is compacted was synced"
        bases = [one.base_offset for one in segments]
        swap = SwapState(bases, [one.base_offset for one in sources])
        self._swaps.append(swap)
        for segment in segments:
            segment.on(SwapDisk(self.disk, swap))
        for source in sources:
            source.release()
        self.segments = [*self.segments[:first], *segments, *self.segments[behind:]]
        self._sealed_open = [one for one in self._sealed_open if one not in sources]
        self._snapshots.forget([offset for offset in swap.sources if offset not in bases])
        self.reaper.retire(Swap(self.directory, swap, TimestampMs(now_ms + self.config.file_delete_delay_ms)))
        return True

    def cleaned(self, end: Offset) -> None:
        """Takes in the end of a pass that went up to `end`; it counts once all files have their names."""
        self._cleaned.append((end, [swap for swap in self._swaps if not swap.is_done]))

    def drop_cleaned(self, cleaning: CleaningPass) -> None:
        """Has the files unlinked that a pass made in vain, before anything else is done with the log's files."""
        self._owe(cleaning.take_back)

    def _end_cleaning(self, end: Offset) -> Sequence[Work]:
        """Ends a pass that is under way, for a log that is cut at `end`; returns what is to be done with its files."""
        works: list[Work] = []
        if self.cleaning is not None:
            self.cleaning.withdraw()
            works.append(self.cleaning.take_back)
        if self.is_swapping:
            works.append(partial(self.reaper.finish, self.directory))
        self.cleaned_to = Offset(min(self.cleaned_to, end))
        return works

    # ------------------------------------------------------------------ another directory

    def producers_at_first(self) -> Sequence[ProducerStateEntry]:
        """Returns the producers as of the first segment, whose records may be gone.  Raises DiskFailed."""
        return self._snapshots.newest(self.segments[0].base_offset)[0] if self._snapshots.offsets else ()

    def begin_with(self, producers: Sequence[ProducerStateEntry]) -> None:
        """Notes the producers as of the start of a log that is empty yet.  Raises DiskFailed."""
        assert self.start_offset == self.end_offset
        if producers:
            self.producers = Producers(producers)
            self._snapshots.write(self.start_offset, producers)

    def take_over(self, other: Log) -> None:
        """Takes over what is known of a log all of whose batches are here: that one is not to be used any more.

        Raises DiskFailed; then the other can be used on.
        """
        assert other.end_offset == self.end_offset, "a copy has all that its original has"
        other._interrupt()
        if other.cleaning is not None:
            other.cleaning.withdraw()
            other.cleaning.take_back()
        self.epochs.take(other.epochs.entries)
        self.start_offset = max(self.start_offset, other.start_offset)
        self.producers = other.producers
        self.config = other.config
        self.cleaned_to = other.cleaned_to
        self.appended_bytes = other.appended_bytes

    def rename(self, directory: str) -> None:
        """Gives the log's directory another name, durably.  Raises DiskFailed: it may then have either name."""
        self.disk.rename(self.directory, directory)
        try:
            self.disk.sync_directory(directory.rpartition("/")[0])
        except DiskFailed:
            with suppress(DiskFailed):
                self.disk.rename(directory, self.directory)
            raise
        self.directory = directory
        for segment in self.segments:
            segment.moved_to(directory)
        self._snapshots.moved_to(directory)
        self.epochs.moved_to(directory)

    # ------------------------------------------------------------------ cut

    def truncate_to(self, offset: Offset, now_ms: TimestampMs) -> bool:
        """Drops every batch that reaches `offset`; returns False if there is none.  The log may end a little before it.

        A follower does this, never below the high watermark.  Raises DiskFailed with nothing dropped.
        """
        self._interrupt()
        if offset >= self.end_offset:
            return False
        if offset < self.segments[0].base_offset:
            self.truncate_fully(offset, now_ms)
            return True
        kept = [segment for segment in self.segments if segment.base_offset <= offset]
        place = kept[-1].find(offset)
        end = Offset(offset if place is None else min(offset, place.base_offset))
        cut = None if place is None else kept[-1].cut_before(place)
        producers = restored(self._snapshots, kept, end) if len(self.producers) else self.producers
        self._lower_recovery_point(end)
        gone = self.segments[: len(kept) - 1 : -1]
        works = [*self._end_cleaning(end), self._retirement(gone, now_ms, syncs_each=True)]
        if cut is not None:
            kept[-1].shorten(cut)
            works.append(kept[-1].cut_files)
        works.append(partial(self._aborted.truncate, kept, end))
        self.end_offset = end
        self.start_offset = Offset(min(self.start_offset, self.end_offset))
        self._activate(kept)
        self._sealed_open = [segment for segment in self._sealed_open if segment in kept[:-1]]
        self._truncated(works, producers)
        assert self.start_offset <= self.end_offset <= offset, "nothing that reaches the offset is left"
        assert self.recovery_point <= self.end_offset, "what is appended in its place has to be synced"
        return True

    def truncate_fully(self, start: Offset, now_ms: TimestampMs) -> None:
        """Makes the log empty at `start`, for a follower whose leader lacks what it needs.  Raises as truncate_to."""
        self._interrupt()
        # As low as a stop half-way may leave the log's end.
        self._lower_recovery_point(min(start, self.start_offset))
        segment = Segment(self.disk, self.directory, start, now_ms)
        works: list[Work] = [
            *self._end_cleaning(start),
            self._snapshots.forgotten(self._snapshots.offsets),  # Nothing of the old producers is taken for the new.
            partial(self.reaper.finish, self.directory),  # A retirement may hold names that are needed again.
            self._retirement(self.segments[::-1], now_ms),
            partial(segment.make_files, self.config),
            partial(self.disk.sync_directory, self.directory),
        ]
        self._activate([segment])
        self.start_offset = self.end_offset = start
        self._sealed_open = []
        self.epochs.clear()
        self._truncated(works, Producers())
        self.recovery_point = start

    def _lower_recovery_point(self, offset: Offset) -> None:
        """Lowers the recovery point, on disk too, before a cut: recovery must scan what is appended in its place."""
        if offset < max(self.recovery_point, self.start_offset):
            before = self.recovery_point, self.start_offset
            self.recovery_point = Offset(min(self.recovery_point, offset))
            self.start_offset = Offset(min(self.start_offset, offset))
            try:
                if self._on_lowered is not None:
                    self._on_lowered(offset)
            except DiskFailed:
                self.recovery_point, self.start_offset = before
                raise

    def on_recovery_point_lowered(self, callback: Callable[[Offset], None]) -> None:
        self._on_lowered = callback

    def _truncated(self, works: Sequence[Work], producers: Producers) -> None:
        end = self.end_offset
        self.recovery_point = Offset(min(self.recovery_point, end))
        self.epochs.truncate_from_end(end)
        kept = frozenset(self.segments[:-1])
        self._unsynced = [segment for segment in self._unsynced if segment in kept]
        for flush in self._flushing:
            flush.end_offset = Offset(min(flush.end_offset, end))
            flush.sealed &= kept  # The last one is open again.
        self._changes += 1
        self.producers = producers
        self._owe(*works, self._snapshots.forgotten(self._snapshots.beyond(end)))

    def _retirement(self, segments: Sequence[Segment], now_ms: TimestampMs, *, syncs_each: bool = False) -> Work:
        """Returns the work of taking the segments' files away, in this order, before the next append."""
        return partial(self.reaper.retire_now, self._retired(segments, now_ms, syncs_each=syncs_each))

    def advance_start(self, offset: Offset) -> bool:
        """Raises the log start offset (DeleteRecords); segments below it go with the next retention.

        Returns False if the log starts there or later already.  Raises Refused(OFFSET_OUT_OF_RANGE) beyond the end.
        """
        if offset > self.end_offset:
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset}, the log ends at {self.end_offset}")
        if offset <= self.start_offset:
            return False
        self.start_offset = offset
        self.epochs.truncate_from_start(offset)
        self.producers.high_watermark_advanced(offset)
        return True

    def expired_upto(self, now_ms: TimestampMs, high_watermark: Offset) -> Offset | None:
        """Returns where the log begins once all segments are gone that may go; None if none may.

        The open segment is rolled if it is one of them.  Raises DiskFailed.
        """
        bounds = Bounds(self.start_offset, self.end_offset, high_watermark)
        count = expired_segments(self.segments, self.config, now_ms, bounds)
        if not count:
            return None
        if count == len(self.segments):
            self.roll(now_ms)
        begin = self.segments[count].base_offset
        assert begin <= high_watermark, "only whole segments that are committed go"
        return max(begin, self.start_offset)

    def delete_old_segments(self, now_ms: TimestampMs, high_watermark: Offset) -> int:
        """Deletes segments by age, size and start offset, which may rise; returns how many.  Raises DiskFailed."""
        begin = self.expired_upto(now_ms, high_watermark)
        if begin is None:
            return 0
        self.advance_start(begin)
        return self.delete_below_start(now_ms)

    def delete_below_start(self, now_ms: TimestampMs) -> int:
        """Deletes the segments that lie wholly below the log start offset; returns how many.

        Their files go in the reaper's next round.  Raises DiskFailed with none deleted.
        """
        count = bisect_right(self.segments, self.start_offset, key=_BASE_OFFSET) - 1
        if count <= 0 or self.is_swapping:  # Files without their names can't be given others.
            return 0
        doomed, kept = self.segments[:count], self.segments[count:]
        snapshot = None
        if len(self.producers):
            snapshot = keep_snapshot(self._snapshots, self.segments, kept[0].base_offset)
        self.segments = kept
        gone = {id(segment) for segment in doomed}
        self._unsynced = [segment for segment in self._unsynced if id(segment) not in gone]
        self._sealed_open = [segment for segment in self._sealed_open if id(segment) not in gone]
        self.reaper.retire(self._retired(doomed, now_ms, snapshot))
        return count

    def _retired(
        self, gone: Sequence[Segment], now_ms: TimestampMs, snapshot: str | None = None, *, syncs_each: bool = False
    ) -> SegmentRetirement:
        for segment in gone:
            segment.release()
        base_offsets = [segment.base_offset for segment in gone]
        self._snapshots.forget(base_offsets)
        due = TimestampMs(now_ms + self.config.file_delete_delay_ms)
        return SegmentRetirement(self.directory, base_offsets, due, snapshot, syncs_each=syncs_each)

    def reap(self, now_ms: TimestampMs) -> int:
        """Does the reaper's work that is due on files of segments that went; returns how many files it unlinked."""
        return self.reaper.reap(now_ms)

    def close(self, now_ms: TimestampMs) -> None:
        """Flushes everything and completes the indexes; the log is not to be used afterwards.

        Raises DiskFailed, also if a flush failed before: then recovery must check the log.
        """
        if any(flush.has_failed for flush in self._flushing):
            raise DiskFailed(errno.EIO, "a sync failed before; what is on the disk is not known", self.directory)
        self._interrupt()
        if self.cleaning is not None:
            self.cleaning.withdraw()
            self.cleaning.take_back()
        self.settle()
        if not self._is_prepared:
            self._prepare()
        self._active.seal()
        self._active.offsets.sync()
        self._active.times.sync()
        if not self._active.transactions.is_empty:
            self._active.transactions.sync()
            self._changes += 1  # Its file may be new.
        if self._snapshots.keep(self.end_offset, list(self.producers)):
            self._changes += 1
        self.flush(now_ms)
        assert self.is_flushed, "what a clean stop leaves is trusted"
        for segment in self.segments:
            segment.release()
