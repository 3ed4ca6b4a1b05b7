"""Verification of every batch in unsynced segments; truncates a log at the first invalid one."""

from __future__ import annotations

from odradek.base.units import MIB, NO_EPOCH, Offset
from odradek.log.files.log_file_names import SEGMENT_SUFFIXES, segment_stem
from odradek.log.producers.producer_recovery import ProducerWalk, restored
from odradek.log.producers.snapshots import Snapshots
from odradek.log.recovery.opening import LogOpenParams, Scan
from odradek.log.recovery.quarantine import QuarantinedData, set_aside, survey
from odradek.log.segment.scan import CHECK_CHUNK_BYTES, Damaged, walk_runs
from odradek.log.segment.segment import Segment
from odradek.record.kernels.runs import Runs
from odradek.record.record_batch import MAGIC

REWRITTEN_BYTES_MAX = 64 * MIB  # Per log; more would delay the start too long.


def first_unsynced(segments: list[Segment], recovery_point: Offset) -> int:
    """Return the number of the segment with the last synced batch.

    All segments before it were synced with their indexes.  The segment itself may have been sealed since, without a
    sync of its last index entries and of the truncation of its preallocated space.
    """
    return max(sum(segment.base_offset < recovery_point for segment in segments) - 1, 0)


def check(opening: LogOpenParams, segments: list[Segment], first: int, snapshots: Snapshots) -> Scan:
    """Check every batch of the segments from `first` on, and truncate the log at the first damage."""
    assert 0 <= first < len(segments), "the check begins in a segment of the log"
    start = segments[first].base_offset
    walk = ProducerWalk(restored(snapshots, segments, start))
    snapshots.delete_beyond(start)  # The walk writes them again.
    scan = Scan(first, start, trusted=False, walk=walk, epochs=[])
    for number in range(first, len(segments)):
        segment = segments[number]
        if number > first and _has_hole(opening, segment, scan.end_offset):
            why = f"records before offset {segment.base_offset} are missing"
            _cut_off(opening, segments, (number - 1, segments[number - 1].size), why, scan)
            break
        scan.end_offset = Offset(max(scan.end_offset, segment.base_offset))
        if number and segment.base_offset not in snapshots.offsets:
            snapshots.try_to_write(segment.base_offset, list(walk.producers))
        good, why = _check_segment(opening, segment, scan)
        if good < segment.size:
            _cut_off(opening, segments, (number, good), why, scan)
            break
    for segment in segments[first:-1]:
        segment.seal()
    _rewrite(opening, segments[first:])
    assert first < len(segments), "the segment where the check began stays, perhaps empty"
    return scan


def _rewrite(opening: LogOpenParams, segments: list[Segment]) -> None:
    """Rewrite data that may not be on the disk, so that the next sync includes it.

    After a failed sync, the page cache may hold the only copy and consider it written (ext4).  The log would serve
    this data and treat it as durable until the kernel reclaims the memory.
    """
    places = [(segment, _first_unsafe(segment, opening.recovery_point)) for segment in segments]
    if sum(segment.size - start for segment, start in places) > REWRITTEN_BYTES_MAX:
        return
    for segment, start in places:
        for position in range(start, segment.size, CHECK_CHUNK_BYTES):
            data = segment.file.pread(position, min(CHECK_CHUNK_BYTES, segment.size - position))
            segment.file.write(position, data)


def _first_unsafe(segment: Segment, recovery_point: Offset) -> int:
    if recovery_point <= segment.base_offset:
        return 0
    start = segment.locate(recovery_point)
    assert start is None or start <= segment.size
    return segment.size if start is None else start


def _has_hole(opening: LogOpenParams, segment: Segment, end: Offset) -> bool:
    """Return whether the previous segment lost its end at a batch's border, which no checksum detects.

    A log that is or was compacted has legitimate gaps.  With Kafka they also occur beyond the recovery point, which
    Kafka seldom writes.
    """
    if opening.repairs:
        return any(gap.following == segment.base_offset for gap in opening.gaps)
    is_compacted = opening.was_compacted or opening.config.cleanup_compact
    return end < segment.base_offset and end >= opening.recovery_point and not is_compacted


def _check_segment(opening: LogOpenParams, segment: Segment, scan: Scan) -> tuple[int, str]:
    """Return the position and the reason of a segment's first damage; rebuild its indexes up to there."""
    segment.forget_indexes()
    config, good, end, why = opening.config, 0, scan.end_offset, ""
    latest = scan.epochs[-1][0] if scan.epochs else NO_EPOCH
    runs = Runs(segment.base_offset, end, latest, config.index_interval_bytes)
    try:
        for place in walk_runs(segment.file, 0, segment.size, runs):
            first = place.base_offset if place.magic == MAGIC else place.last_offset
            if first < end or not segment.can_hold(place.last_offset):
                why = f"byte {place.position} of {segment.name}: found offset {first}, expected {end}"
                break  # The batch is whole, but its offset does not follow the previous one.
            segment.index(place, config)
            segment.max_timestamp_offset = Offset(runs.max_timestamp_offset)
            good, end = place.end_position, Offset(place.last_offset + 1)
            scan.walk.process(runs)
            if place.leader_epoch > latest:
                latest = place.leader_epoch
                scan.epochs.append((latest, place.base_offset))
    except Damaged as damage:
        why = f"byte {damage.position} of {segment.name}: {damage.why}"
    assert good <= segment.size, "only bytes of the segment are good"
    scan.walk.apply_runs(runs)
    segment.transactions.replace(scan.walk.take_aborted())
    scan.end_offset = end
    return good, why


def _cut_off(opening: LogOpenParams, segments: list[Segment], place: tuple[int, int], why: str, scan: Scan) -> None:
    """End the log at `place` (segment number, position); delete the data beyond it, or set it aside."""
    number, position = place
    segment, later = segments[number], segments[number + 1 :]
    assert 0 <= position <= segment.size, "the log is cut within a segment, or at its end"
    del segments[number + 1 :]
    scan.lost_bytes += segment.size - position + sum(dropped.size for dropped in later)
    aside = QuarantinedData(scan.end_offset, why)
    is_torn = scan.end_offset >= opening.synced and not opening.repairs
    for dropped in (segment, *later):
        found = survey(
            dropped.file, position if dropped is segment else 0, dropped.size, scan.end_offset, dropped.base_offset
        )
        is_torn &= found.is_searched and not found.records
        aside.records += found.records
        aside.is_all &= found.is_all
    if is_torn:
        remove(opening, later)
    else:
        set_aside(opening.disk, opening.directory, (segment, position), later, aside)
        scan.aside = aside if aside.paths else None
    if position < segment.size:
        segment.cut_at(position)
    assert segments[-1] is segment and segment.size == position, "the log ends where it is cut"


def remove(opening: LogOpenParams, segments: list[Segment]) -> None:
    """Delete the segments' files, last segment first, so that an interruption leaves no gap."""
    for segment in reversed(segments):
        for suffix in SEGMENT_SUFFIXES:
            opening.disk.unlink(f"{opening.directory}/{segment_stem(segment.base_offset)}{suffix}")
    if segments:
        opening.disk.sync_directory(opening.directory)
