"""Truncation of a log at its end, for a follower whose log diverges from its leader's.

All decisions come first, then the changes in memory, then the work on files.  Work that the disk refuses stays pending
(log/files/pending_work.py).  The order of that work keeps the log on disk a contiguous part of the former log, wherever
a stop interrupts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from odradek.base.units import Offset, TimestampMs
from odradek.log.files.disk import DiskFailed
from odradek.log.files.pending_work import Work
from odradek.log.log.log import Log
from odradek.log.log.retention import retirement
from odradek.log.producers.producer_recovery import restored
from odradek.log.producers.producer_state import ProducerStateManager
from odradek.log.recovery.quarantine import QuarantinedData, renames
from odradek.log.segment.cut_places import cut_of
from odradek.log.segment.segment import Segment


def truncate_to(log: Log, offset: Offset, now_ms: TimestampMs, aside: QuarantinedData | None = None) -> bool:
    """Drop every batch that reaches `offset`; return False if there is none.

    The log may then end a little before `offset`.  Only a follower calls this, never below the high watermark.  With
    `aside`, dropped segments are set aside instead of deleted.  Raise DiskFailed, with nothing dropped, if the disk
    fails.
    """
    assert offset >= 0, "no log ends below offset 0"
    log.withdraw_arrival()
    if offset >= log.end_offset:
        return False
    if offset < log.segments[0].base_offset:
        truncate_fully(log, offset, now_ms)
        return True
    kept, place, end = cut_of(log.segments, offset)
    assert kept[-1].base_offset <= end <= offset, "the log ends in its last segment, at or below the target offset"
    producers = restored(log.snapshots, kept, end) if len(log.producers) else log.producers
    producers.take_ended(log.producers, end)
    cut = None if place is None else kept[-1].cut_before(place)  # Last, since the reads before may rebuild an index.
    _lower_recovery_point(log, end)
    dropped = log.segments[: len(kept) - 1 : -1]
    log.pending_work.forget(segment.cut_files for segment in dropped)
    works = [*_end_cleaning(log, end)]
    if aside is None:
        works.append(_retirement_work(log, dropped, now_ms, syncs_each=True))
    else:
        works.append(renames(log.disk, log.directory, dropped[::-1], aside, syncs_each=True))
    if cut is not None:
        kept[-1].shorten(cut)
        works.append(kept[-1].cut_files)
    works.append(partial(log.aborted_transactions.truncate, kept, end))
    log.end_offset = end
    log.start_offset = Offset(min(log.start_offset, log.end_offset))
    log.activate(kept)
    log.sealed_open = [segment for segment in log.sealed_open if segment in kept[:-1]]
    _finish_truncation(log, works, producers)
    assert log.start_offset <= log.end_offset <= offset, "a truncated log ends at or below the target offset"
    assert log.recovery_point <= log.end_offset, "a truncation lowers the recovery point to the log end offset"
    return True


def truncate_fully(log: Log, start: Offset, now_ms: TimestampMs) -> None:
    """Empty the log and restart it at `start`, for a follower whose leader lacks the records it needs.

    Raise DiskFailed as truncate_to does.
    """
    assert start >= 0, "no log begins below offset 0"
    log.withdraw_arrival()
    # The lowest end of the log that an interrupted truncation can leave.
    _lower_recovery_point(log, min(start, log.start_offset))
    segment = Segment(log.disk, log.directory, start, now_ms)
    log.pending_work.forget(segment.cut_files for segment in log.segments)
    works: list[Work] = [
        *_end_cleaning(log, start),
        log.snapshots.deletion_of(log.snapshots.offsets),  # No state of old producers may survive.
        partial(log.reaper.finish, log.directory),  # A retirement may hold names that are needed again.
        _retirement_work(log, log.segments[::-1], now_ms),
        partial(segment.make_files, log.config),
        partial(log.disk.sync_directory, log.directory),
    ]
    log.activate([segment])
    log.start_offset = log.end_offset = start
    log.sealed_open = []
    log.epochs.clear()
    _finish_truncation(log, works, ProducerStateManager())
    log.recovery_point = start
    assert log.epochs.latest < 0 and not len(log.producers), "nothing of the former log survives"


def _lower_recovery_point(log: Log, offset: Offset) -> None:
    """Lower the recovery point, also on disk, before a cut, so that recovery scans later appends."""
    if offset < max(log.recovery_point, log.start_offset):
        before = log.recovery_point, log.start_offset
        log.recovery_point = Offset(min(log.recovery_point, offset))
        log.start_offset = Offset(min(log.start_offset, offset))
        try:
            if log.on_recovery_point_lowered is not None:
                log.on_recovery_point_lowered(offset)
        except DiskFailed:
            log.recovery_point, log.start_offset = before
            raise
    assert log.start_offset <= offset >= log.recovery_point, "recovery checks all that is appended after the cut"


def _end_cleaning(log: Log, end: Offset) -> Sequence[Work]:
    """Stop the current compaction pass; return the remaining work on its files."""
    works: list[Work] = []
    compaction = log.compaction
    if compaction.cleaning is not None:
        compaction.cleaning.withdraw()
        works.append(compaction.cleaning.undo_publication)
    if compaction.is_swapping:
        works.append(partial(log.reaper.finish, log.directory))
    compaction.cleaned_to = Offset(min(compaction.cleaned_to, end))
    return works


def _retirement_work(log: Log, segments: Sequence[Segment], now_ms: TimestampMs, *, syncs_each: bool = False) -> Work:
    """Return the work that deletes the segments' files, in this order, before the next append."""
    return partial(log.reaper.retire_now, retirement(log, segments, now_ms, syncs_each=syncs_each))


def _finish_truncation(log: Log, works: Sequence[Work], producers: ProducerStateManager) -> None:
    end = log.end_offset
    log.cuts += 1
    log.recovery_point = Offset(min(log.recovery_point, end))
    log.epochs.truncate_from_end(end)
    log.durability.keep(end, frozenset(log.segments[:-1]))
    log.producers = producers
    assert not any(flush.end_offset > end for flush in log.durability.under_way), "a flush covers no later appends"
    log.add_pending_work(*works, log.snapshots.deletion_of(log.snapshots.beyond(end)))
