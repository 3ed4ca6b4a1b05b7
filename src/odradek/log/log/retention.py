"""Retention: deletes the oldest segments of a log by age, by size, and below the log start offset.

Retention deletes only whole segments, oldest first, and only committed ones (below the high watermark).  The age of a
segment is that of its newest record.  The active segment can expire, too; it is rolled first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import Offset, TimestampMs
from odradek.log.files.log_config import LogConfig
from odradek.log.log.log import Log
from odradek.log.producers.producer_recovery import keep_snapshot
from odradek.log.removal.reaper import SegmentRetirement
from odradek.log.segment.segment import Segment

_BASE_OFFSET = attrgetter("base_offset")


class Bounds(NamedTuple):
    """Offsets of a log that bound its retention."""

    start_offset: Offset
    end_offset: Offset
    high_watermark: Offset


def expired_segments(segments: Sequence[Segment], config: LogConfig, now_ms: TimestampMs, bounds: Bounds) -> int:
    """Return how many of the oldest segments may be deleted; the active one only if it is not empty."""
    surplus = sum(segment.size for segment in segments) - config.retention_bytes
    by_size = config.cleanup_delete and config.retention_bytes >= 0
    by_age = config.cleanup_delete and config.retention_ms >= 0
    for number, segment in enumerate(segments):
        following = segments[number + 1] if number + 1 < len(segments) else None
        upper = following.base_offset if following else bounds.end_offset
        if bounds.high_watermark < upper or (following is None and not segment.size):
            return number
        surplus -= segment.size
        if not (
            (following is not None and upper <= bounds.start_offset)
            or (by_size and surplus >= 0)
            or (by_age and now_ms - newest(segment) > config.retention_ms)
        ):
            return number
    assert bounds.end_offset <= bounds.high_watermark, "only committed records expire"
    return len(segments)


def newest(segment: Segment) -> TimestampMs:
    """Return a segment's greatest timestamp, or its file's modification time if it has none."""
    timestamp = segment.largest()[0]
    return timestamp if timestamp >= 0 else segment.modified_ms()


def advance_start(log: Log, offset: Offset) -> bool:
    """Raise the log start offset (DeleteRecords); the next retention deletes the segments below it.

    Return False if the log starts at `offset` or later already.  Raise Refused(OFFSET_OUT_OF_RANGE) beyond the end.
    """
    if offset > log.end_offset:
        raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is beyond the log end offset {log.end_offset}")
    if offset <= log.start_offset:
        return False
    log.start_offset = offset
    log.epochs.truncate_from_start(offset)
    log.producers.high_watermark_advanced(offset)
    return True


def expired_upto(log: Log, now_ms: TimestampMs, high_watermark: Offset) -> Offset | None:
    """Return the log start after all expired segments are deleted; None if no segment has expired.

    Roll the active segment if it has expired.  Raise DiskFailed if that fails.
    """
    bounds = Bounds(log.start_offset, log.end_offset, high_watermark)
    count = expired_segments(log.segments, log.config, now_ms, bounds)
    if not count:
        return None
    if count == len(log.segments):
        log.roll(now_ms)
    begin = log.segments[count].base_offset
    assert begin <= high_watermark, "retention deletes only segments below the high watermark"
    return max(begin, log.start_offset)


def delete_old_segments(log: Log, now_ms: TimestampMs, high_watermark: Offset) -> int:
    """Delete segments by age, size and start offset, and return their number.

    This may raise the log start offset, which no checkpoint contains yet.  Raise DiskFailed if the disk fails.
    """
    begin = expired_upto(log, now_ms, high_watermark)
    if begin is None or log.compaction.is_swapping:
        return 0
    advance_start(log, begin)
    return delete_below_start(log, now_ms, is_start_durable=False)


def delete_below_start(log: Log, now_ms: TimestampMs, *, is_start_durable: bool = True) -> int:
    """Delete the segments entirely below the log start offset; return their number.

    The reaper deletes their files in its next round.  If no checkpoint contains the start, the first segment on
    disk defines it: then even a power failure must not restore a segment with a gap behind it.  Raise DiskFailed,
    with no segment deleted, if the disk fails.
    """
    count = bisect_right(log.segments, log.start_offset, key=_BASE_OFFSET) - 1
    if count <= 0 or log.compaction.is_swapping:  # Files without their final names can't be renamed again.
        return 0
    deleted, kept = log.segments[:count], log.segments[count:]
    snapshot = None
    if len(log.producers):
        snapshot = keep_snapshot(log.snapshots, log.segments, kept[0].base_offset)
    assert kept[0].base_offset <= log.start_offset, "no record from the log start offset on is deleted"
    assert kept[-1] is log.active, "the active segment is never deleted"
    log.segments = kept
    deleted_set = frozenset(deleted)
    log.durability.forget(deleted_set)
    log.sealed_open = [segment for segment in log.sealed_open if segment not in deleted_set]
    log.reaper.retire(retirement(log, deleted, now_ms, snapshot, syncs_each=not is_start_durable))
    return count


def retirement(
    log: Log, deleted: Sequence[Segment], now_ms: TimestampMs, snapshot: str | None = None, *, syncs_each: bool = False
) -> SegmentRetirement:
    """Close segments that the log no longer contains; return the reaper's work on their files."""
    for segment in deleted:
        segment.release()
    base_offsets = [segment.base_offset for segment in deleted]
    log.snapshots.forget(base_offsets)
    due = TimestampMs(now_ms + log.config.file_delete_delay_ms)
    return SegmentRetirement(log.directory, base_offsets, due, snapshot, syncs_each=syncs_each)
