"""Log of one partition: appended at its end, read at any offset, truncated at either end.

    append      stamp base offset and leader epoch in place → roll? → one write → index entry every few KiB, producers;
                a large batch is written while it is received, see log/log/streaming_append.py
    read        segment → position (remembered, or index and a short walk) → a slice of the file; nothing is decoded
    flush       log/log/durability.py, log/log/flush.py
    truncate    at the end log/log/truncation.py, at the start log/log/retention.py
    open        log/recovery/recovery.py

Other operations on a log: search by timestamp (log/log/timestamp_search.py), compaction (log/compaction/cleaner.py,
record/batch_filter.py), and moves to another directory (core/disks/log_dir_moves.py).

An append is in the page cache when it returns: a killed process loses none of it, a power failure loses the unflushed
part.  A failed write raises DiskFailed and leaves the log as it was.  An operation on several files is decided first,
then applied in memory, then to the files.  If the disk refuses, that work stays pending (log/files/pending_work.py) or
waits in the reaper.  A log is not thread-safe; slices and flushes are, and they may outlive the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import INT32_MAX, LeaderEpoch, Offset, ProducerId, TimestampMs
from odradek.log.files.disk import EMPTY_SLICE, Disk, DiskFailed, FileSlice
from odradek.log.files.disk_failures import LogDamaged
from odradek.log.files.log_config import LogConfig
from odradek.log.files.pending_work import PendingWork, Work
from odradek.log.log.arrival import Arrival
from odradek.log.log.compaction_state import CompactionState
from odradek.log.log.durability_state import DurabilityState
from odradek.log.producers.aborted_transactions import AbortedTransactions
from odradek.log.producers.producer_state import ProducerStateEntry
from odradek.log.recovery import recovery
from odradek.log.recovery.opening import LoadedLog, LogOpenParams
from odradek.log.removal.reaper import Reaper
from odradek.log.segment.segment import Segment
from odradek.log.segment.segment_slices import is_hollow, slice_of
from odradek.log.segment.transaction_index import AbortedTxn
from odradek.record.end_transaction_marker import end_marker
from odradek.record.record_batch import CONTROL, LOG_OVERHEAD_BYTES, Batch

FIRST_OFFSET = Offset(0)
SEALED_OPEN_MAX = 4
_BASE_OFFSET = attrgetter("base_offset")


class Log:
    """Log of one partition; its records below recovery_point survive a power failure.

    Replace `config` when the topic's configuration changes.
    """

    def __init__(self, opening: LogOpenParams, loaded: LoadedLog, reaper: Reaper) -> None:
        self.disk = opening.disk
        self.directory = opening.directory
        self.config = opening.config
        self.reaper = reaper
        self.segments = loaded.segments
        self.active = loaded.segments[-1]
        # These pair with recovery.load, which has repaired the files on the disk.
        assert loaded.start_offset <= loaded.end_offset, "the log start offset never exceeds the log end offset"
        assert loaded.recovery_point <= loaded.end_offset, "the recovery point never exceeds the log end offset"
        assert self.active.base_offset <= loaded.end_offset, "the log ends in the active segment"
        assert self.active not in loaded.unsynced, "only sealed segments are synced by their own"
        self.arrival: Arrival | None = None  # The streaming append in progress.
        self.start_offset = loaded.start_offset
        self.end_offset = loaded.end_offset
        self.recovery_point = loaded.recovery_point
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.snapshots = loaded.snapshots
        self.topic_id = loaded.topic_id
        self.lost_bytes = loaded.lost_bytes  # Cut off by recovery.
        self.aside = loaded.aside
        self.last_flush_ms = self.last_append_ms = opening.now_ms
        # Appended as the leader, and as a follower, since the log was opened.
        self.appended_bytes = self.appended_records = 0
        self.replicated_bytes = 0
        self.durability = DurabilityState(loaded.unsynced, is_synced=loaded.is_synced)
        self.compaction = CompactionState()
        self.sealed_open: list[Segment] = []
        self._is_prepared = False
        self.cuts = 0  # Truncations since the log was opened: offsets and positions may have other records since.
        self.pending_work = PendingWork()
        self.aborted_transactions = AbortedTransactions(loaded.snapshots, loaded.segments, loaded.end_offset)
        self.on_recovery_point_lowered: Callable[[Offset], None] | None = None  # Called first; may raise DiskFailed.
        self.on_failure: Callable[[OSError], None] | None = None  # Called when a failure takes the log offline.
        self.on_damage: Callable[[], None] | None = None  # Called when a position without a whole batch is found.
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
        recorded_segments: str = "",
        was_compacted: bool = False,
        lost: Collection[Offset] = (),
        repairs: bool = False,
    ) -> Log:
        """Open the log of an existing directory, which is empty for a new log.

        recovery_point and start_offset come from the last checkpoint; a recovery point that is too low only
        costs time.  `recorded_segments`, `was_compacted` and `lost` are further facts about its segments, see
        log/recovery/missing_segments.py.  With `repairs` a missing segment ends the log, as damage does, and
        everything cut off is set aside.
        Raise DiskFailed, SegmentMissing, or BadCheckpoint for an unreadable partition.metadata.
        """
        opening = LogOpenParams(
            disk,
            directory,
            config,
            now_ms,
            recovery_point,
            start_offset,
            clean_shutdown,
            recorded_segments,
            was_compacted,
            lost,
            repairs,
        )
        return cls(opening, recovery.load(opening), Reaper(disk) if reaper is None else reaper)

    @property
    def size(self) -> int:
        """Return the size of all batches in bytes."""
        return sum(segment.size for segment in self.segments)

    # ------------------------------------------------------------------ append

    def append(self, batches: Batch | Sequence[Batch], leader_epoch: LeaderEpoch, now_ms: TimestampMs) -> None:
        """Append as the leader: assign the next offsets to the batches, stamped in place.

        Raise Refused(MESSAGE_TOO_LARGE) or Refused(RECORD_LIST_TOO_LARGE).  Raise DiskFailed with no part of
        the batches appended.
        """
        if isinstance(batches, Batch):
            batches = (batches,)
        self.append_known(batches, leader_epoch, now_ms, None)
        self.note(batches)

    def append_known(
        self,
        batches: Sequence[Batch],
        leader_epoch: LeaderEpoch,
        now_ms: TimestampMs,
        producers: Mapping[ProducerId, ProducerStateEntry] | None,
    ) -> None:
        """Append batches without markers whose producers' entries are already computed, in `producers`."""
        config = self.config
        offset = base = self.end_offset
        size = 0
        for batch in batches:
            batch_bytes = batch.batch_length + LOG_OVERHEAD_BYTES
            if batch_bytes > config.max_message_bytes and not batch.attributes & CONTROL:  # Transactions must end.
                detail = f"the record batch size {batch.size} exceeds max.message.bytes {config.max_message_bytes}"
                raise Refused(ErrorCode.MESSAGE_TOO_LARGE, detail)
            batch.stamp(offset, leader_epoch)
            if config.log_append_time:
                batch.stamp_log_append_time(now_ms)
            size += batch_bytes
            offset = Offset(offset + batch.last_offset_delta + 1)
        if size > config.segment_bytes:
            raise Refused(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"the append of {size} bytes exceeds segment.bytes {config.segment_bytes}",
            )
        assert offset > base, "an append contains at least one record"
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base)
        self._write(batches, size, offset, now_ms)
        self.appended_bytes += size
        self.appended_records += offset - base
        if producers is not None:
            self.producers.put(producers)

    def note(self, batches: Sequence[Batch]) -> None:
        """Update the producers and the aborted transactions from appended batches."""
        for batch in batches:
            if batch.producer_id < 0:
                continue
            if not batch.attributes & CONTROL:
                self.producers.note(batch)
            elif (marker := end_marker(batch)) is not None:
                ended = self.producers.apply_end_marker(marker, batch)
                if ended is not None and not ended.is_commit:
                    self.aborted_transactions.add(self.active, ended)

    def append_as_follower(self, batches: Sequence[Batch], now_ms: TimestampMs) -> None:
        """Append batches as stamped by the leader, unchanged; offsets may have gaps, but never decrease.

        Raise Refused(CORRUPT_MESSAGE) if offsets decrease, and DiskFailed as `append` does.
        """
        assert batches
        end = self.end_offset
        for batch in batches:
            if batch.base_offset < end or batch.last_offset_delta < 0:
                raise Refused(ErrorCode.CORRUPT_MESSAGE, f"the leader sent {batch} where offset {end} is expected")
            end = batch.next_offset
        try:
            for batch in batches:
                if batch.leader_epoch != self.epochs.latest:
                    self.epochs.assign(batch.leader_epoch, batch.base_offset)
            size = sum(batch.size for batch in batches)
            self._write(batches, size, end, now_ms)
        except DiskFailed:
            self.epochs.truncate_from_end(Offset(self.end_offset + 1))  # After a gap they begin beyond the log's end.
            raise
        self.replicated_bytes += size
        self.note(batches)

    def _write(self, batches: Sequence[Batch], size: int, end: Offset, now_ms: TimestampMs) -> None:
        if self.arrival is not None:
            self.withdraw_arrival()
        newest = batches[0].max_timestamp if len(batches) == 1 else max(batch.max_timestamp for batch in batches)
        self.make_room(size, newest, end, batches[0].base_offset, now_ms)
        active = self.active
        before = active.size
        assert self.end_offset <= batches[0].base_offset < end, "offsets are monotonic"
        try:
            active.append(batches, self.config)
        except DiskFailed:
            if self.end_offset < active.base_offset:
                self._undo_roll()
            raise
        assert active.size == before + size, "an append writes all of its bytes"
        self.end_offset = end

    def make_room(self, size: int, newest: TimestampMs, end: Offset, base_offset: Offset, now_ms: TimestampMs) -> None:
        """Roll if the active segment must not take `size` bytes at offsets from `base_offset` to `end`."""
        config = self.config
        self.last_append_ms = now_ms
        if not self._is_prepared:
            self.prepare()
        if self.active.must_roll(size, newest, end, now_ms, config):
            is_far = end - self.end_offset > INT32_MAX  # No index can span such a gap of a follower.
            self.roll(now_ms, base_offset if is_far else self.end_offset)
        assert self._is_prepared, "an append follows all pending work on the files"

    def prepare(self) -> None:
        """Settle what is owed and make the active segment ready for an append, unless that is done already."""
        if self._is_prepared:
            return
        self.pending_work.settle()
        self.active.prepare(self.config)
        self._is_prepared = True

    def roll(self, now_ms: TimestampMs, base_offset: Offset | None = None) -> None:
        """Begin a new active segment at `base_offset`, by default the log's end; do not flush the old one."""
        old = self.active
        base_offset = self.end_offset if base_offset is None else base_offset
        assert self.end_offset <= base_offset, "a segment never begins amid the records of another"
        if old.base_offset == base_offset:
            return
        self.withdraw_arrival()
        self.pending_work.settle()
        old.seal()
        segment = Segment(self.disk, self.directory, base_offset, now_ms)
        try:
            segment.make_files(self.config)
        except DiskFailed:
            # A half-made segment would hide what is appended before the roll succeeds.  So would one that a power
            # failure brings back, because recovery trusts everything before it and below the recovery point.
            self.add_pending_work(segment.delete_files, partial(self.disk.sync_directory, self.directory))
            raise
        self.durability.changes += 1
        self.snapshots.try_to_write(base_offset, list(self.producers))
        self.durability.unsynced.append(old)
        self.activate([*self.segments, segment])
        segment.prepare(self.config)
        self._is_prepared = True
        self._touch(old)

    def _undo_roll(self) -> None:
        """Drop the segment that was begun behind a gap if no batch followed: the next may be before it."""
        begun = self.active
        begun.release()
        self.activate(self.segments[:-1])
        self.sealed_open = [segment for segment in self.sealed_open if segment is not self.active]
        self.durability.keep(self.end_offset, frozenset(self.segments[:-1]))
        snapshot = self.snapshots.deletion_of([begun.base_offset])
        self.add_pending_work(begun.delete_files, snapshot, partial(self.disk.sync_directory, self.directory))
        assert self.active.base_offset <= self.end_offset, "the log ends in the active segment"

    # ------------------------------------------------------------------ streaming append

    def withdraw_arrival(self) -> None:
        """Withdraw an unfinished streaming append; call this before any other operation on the log's end."""
        arrival = self.arrival
        if arrival is not None:
            if arrival.withdraw is not None:
                arrival.withdraw()
            self.forget_arrival(arrival)

    def forget_arrival(self, arrival: Arrival) -> None:
        """Cancel a streaming append unless it was withdrawn already.  Raise DiskFailed if that fails."""
        if arrival is self.arrival:
            self.arrival = arrival.withdraw = None
            self.active.abort_front()

    # ------------------------------------------------------------------ pending work

    @property
    def has_pending_work(self) -> bool:
        """Return whether work on the log's files was refused by the disk and must be repeated."""
        return bool(self.pending_work) or not self.epochs.is_written

    def settle(self) -> None:
        """Repeat file work that the disk refused before.  Raise DiskFailed if the disk refuses again."""
        self.pending_work.settle()
        if not self.epochs.is_written:
            self.epochs.write()
        assert not self.has_pending_work

    def add_pending_work(self, *works: Work) -> None:
        """Queue work required before the next append, and run it now if the disk permits."""
        self.pending_work.add(*works)
        self._is_prepared = False
        with suppress(DiskFailed):
            self.pending_work.settle()

    def activate(self, segments: list[Segment]) -> None:
        assert len(segments) < 2 or segments[-2].base_offset < segments[-1].base_offset, "the segments of a log ascend"
        self.segments = segments
        self.active = segments[-1]
        self._is_prepared = False

    # ------------------------------------------------------------------ read

    def read(self, offset: Offset, max_bytes: int, upto: Offset, *, cached: bool = False) -> FileSlice:
        """Return whole batches from the one that contains `offset`, ending below `upto`, within max_bytes.

        The result has at least one batch, even if that exceeds max_bytes.  It is empty if `upto` is reached or
        within the first batch.  It may stop short of max_bytes.  Raise Refused(OFFSET_OUT_OF_RANGE) or
        DiskFailed.  With `cached`, raise NotCached if the read would wait for the disk; the records themselves
        need not be cached.
        """
        if not self.start_offset <= offset <= self.end_offset:
            detail = f"offset {offset} is not within {self.start_offset}..{self.end_offset}"
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, detail)
        return self.read_stored(offset, max_bytes, upto, cached=cached)

    def read_stored(self, offset: Offset, max_bytes: int, upto: Offset, *, cached: bool = False) -> FileSlice:
        """Read as `read` does, but from the first segment on, which may begin before the log start offset."""
        number = len(self.segments) - 1
        if offset < self.active.base_offset:
            number = bisect_right(self.segments, offset, key=_BASE_OFFSET) - 1
        while offset < upto and number < len(self.segments):
            segment = self.segments[number]
            if segment is not self.active:
                self._touch(segment)
            start = segment.locate(offset, cached=cached)
            if start is not None:
                end = self.end_offset if segment is self.active else self.segments[number + 1].base_offset
                found = slice_of(segment, start, max_bytes, upto, end, cached)
                if segment.damages:
                    self._report_damage()
                if segment is self.active or end >= upto or not is_hollow(found, segment, cached):
                    return found
            number += 1  # The rest of that segment was compacted away.
        return EMPTY_SLICE

    def note_damage(self, damage: LogDamaged) -> bool:
        """Record a position without a whole batch and stop serving it; return False if it was known."""
        is_new = any(
            segment.note_damage(damage.position, damage.why) for segment in self.segments if segment.path == damage.path
        )
        self._report_damage()
        return is_new

    def was_cut(self, path: str) -> bool:
        """Return whether the segment file was cut since the log was opened, so earlier reads may be obsolete."""
        return any(segment.was_cut for segment in self.segments if segment.path == path)

    def _report_damage(self) -> None:
        if self.on_damage is not None:
            self.on_damage()

    @property
    def damaged_places(self) -> int:
        """Return the number of positions found so far that hold no whole batch."""
        return sum([len(segment.damages) for segment in self.segments])

    def aborted(
        self, offset: Offset, records: FileSlice, upto: Offset, *, cached: bool = False
    ) -> Sequence[AbortedTxn]:
        """Return the aborted transactions that overlap `records`, read from `offset` to `upto`.

        The result may contain a few more.  `cached` works as in `read`.
        """
        return self.aborted_transactions.reaching(self.segments, offset, records, upto, cached=cached)

    def _touch(self, segment: Segment) -> None:
        """Record that a sealed segment is open, and close the oldest one.

        Otherwise a reader that starts at the beginning would open all segments.
        """
        assert segment is not self.active, "appends need the file of the active segment"
        if segment not in self.sealed_open:
            self.sealed_open.append(segment)
            if len(self.sealed_open) > SEALED_OPEN_MAX:
                self.sealed_open.pop(0).release()
