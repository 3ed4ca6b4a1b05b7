"""Opening of a partition's directory: trusted after a clean shutdown, checked after an unclean one.

After a clean shutdown the end offset comes from the active segment's last index entry.  After a kill or a power
failure, every batch from the recovery point's segment on is checked; earlier segments were synced.  The log ends at the
first invalid batch, and nothing after it is served, so that the log stays a prefix of the appended records.  Anything
more than a torn write is set aside (log/recovery/quarantine.py).  A log with a missing segment is not opened
(log/recovery/missing_segments.py).

Producer state comes from a snapshot and the batches after it (log/producers/producer_recovery.py).
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from contextlib import suppress
from itertools import pairwise
from operator import attrgetter

from odradek.base.units import LeaderEpoch, Offset
from odradek.base.uuids import Uuid
from odradek.log.files.disk_failures import SegmentMissing
from odradek.log.files.log_file_names import LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX
from odradek.log.producers.leader_epoch_cache import LeaderEpochFileCache
from odradek.log.producers.producer_recovery import ProducerWalk, aborted_in, keep_snapshot, restored
from odradek.log.producers.producer_state import ProducerStateManager
from odradek.log.producers.snapshots import Snapshots, make_safe
from odradek.log.recovery.checking import check, first_unsynced, remove
from odradek.log.recovery.missing_segments import find_traces, gap_before, gaps
from odradek.log.recovery.opening import LoadedLog, LogOpenParams, Scan
from odradek.log.recovery.stray_files import LogFiles, SegmentFiles, found_files, unlink_all
from odradek.log.segment.checkpoints import BadCheckpoint, read_epochs, read_topic_id
from odradek.log.segment.index import OFFSET_ENTRY, TIME_ENTRY
from odradek.log.segment.scan import CHECK_CHUNK_BYTES, Damaged, walk
from odradek.log.segment.segment import Segment

_LOG = logging.getLogger(__name__)
_BASE_OFFSET = attrgetter("base_offset")
ADVICE = "restore the file, or truncate the log there with `odradek log verify --repair`"


def load(opening: LogOpenParams) -> LoadedLog:
    """Open the directory and return its content.

    Raise DiskFailed, SegmentMissing, or BadCheckpoint for an unreadable partition.metadata.
    """
    disk, directory = opening.disk, opening.directory
    topic_id = read_topic_id(disk, directory)
    files = found_files(disk, directory)
    segments = _put_in_order(opening, files)
    snapshots = Snapshots(disk, directory, files.snapshots)
    if not segments:
        return _fresh(opening, snapshots, topic_id)
    if not opening.clean_shutdown:
        segments = _from_start_on(opening, segments, snapshots)
    scan = _trust(opening, segments) if opening.clean_shutdown else None
    if scan is None:
        scan = check(opening, segments, first_unsynced(segments, opening.recovery_point), snapshots)
    else:
        _restore_producers(segments, scan, snapshots)
    if scan.end_offset < opening.start_offset:
        remove(opening, segments)
        return _fresh(opening, snapshots, topic_id, scan)
    start = Offset(max(opening.start_offset, segments[0].base_offset))
    recovery_point = scan.end_offset if scan.trusted else Offset(min(opening.recovery_point, scan.end_offset))
    assert segments[0].base_offset <= start <= scan.end_offset, "the log start offset is within the recovered segments"
    assert 0 <= scan.first < len(segments), "the scan began in a segment of the log"
    assert all(one.base_offset < following.base_offset for one, following in pairwise(segments)), "segments ascend"
    epochs = _epochs(opening, segments, scan)
    epochs.truncate_from_end(scan.end_offset)
    epochs.truncate_from_start(start)
    snapshots.delete_strays({segment.base_offset for segment in segments}, scan.end_offset)
    return LoadedLog(
        segments=segments,
        start_offset=start,
        end_offset=scan.end_offset,
        recovery_point=recovery_point,
        epochs=epochs,
        producers=scan.walk.producers,
        snapshots=snapshots,
        topic_id=topic_id,
        unsynced=[] if scan.trusted else segments[scan.first : -1],
        # If no part of a log is known to be synced, its directory's name may not be, either.
        is_synced=scan.trusted or (segments[0].base_offset < recovery_point == scan.end_offset and not scan.lost_bytes),
        lost_bytes=scan.lost_bytes,
        aside=scan.aside,
    )


def _put_in_order(opening: LogOpenParams, files: LogFiles) -> list[Segment]:
    """Return the segments of the log, and delete empty ones between them, left by an interrupted roll.

    Such a segment would hide later appends to the previous one.  Raise SegmentMissing with nothing changed.
    """
    found = _segments(opening, files.segments)
    empty = [segment for segment in found[1:-1] if not segment.size]
    segments = [segment for segment in found if segment not in empty] if empty else found
    hollow = {one.base_offset for one in empty if files.segments[one.base_offset].get(OFFSET_INDEX)}
    traces = find_traces(opening.recorded_segments, segments, files.orphans.keys() | hollow)
    if not opening.was_compacted and (opening.repairs or not opening.config.cleanup_compact):
        seen = gaps(opening.directory, segments, traces, opening.start_offset)
        opening.gaps = [gap for gap in seen if opening.clean_shutdown or gap.end < opening.synced or opening.repairs]
        if opening.gaps and not opening.repairs:
            raise SegmentMissing(f"{opening.gaps[0]}; {ADVICE}")
        _check_front(opening, segments, files)
    unlink_all(opening.disk, opening.directory, files.orphans)
    remove(opening, empty)
    return segments


def _check_front(opening: LogOpenParams, segments: list[Segment], files: LogFiles) -> None:
    """Raise SegmentMissing for a log without its beginning; with `repairs`, move its start instead."""
    if not segments:
        return  # This is reported as a log that ends too early.
    first = segments[0] if segments[0].size else segments[min(1, len(segments) - 1)]
    hollow = files.segments[segments[0].base_offset].get(OFFSET_INDEX, 0)  # Its log may have lost all its bytes.
    traces = {*files.orphans, segments[0].base_offset} if hollow else {*files.orphans}
    is_sure = opening.clean_shutdown or opening.repairs
    lost = {*opening.lost, *traces} if is_sure else opening.lost
    gap = gap_before(opening.directory, first.base_offset, lost, opening.start_offset)
    if gap is None:
        doubtful = gap_before(opening.directory, first.base_offset, traces, opening.start_offset)
        if doubtful is not None:  # A power failure may restore parts of deleted logs.
            _LOG.warning("%s; the log starts after it", doubtful)
        return
    if not opening.repairs:
        advice = f"restore the file, or start the log at offset {gap.following} with `odradek log verify --repair`"
        raise SegmentMissing(f"{gap}; {advice}", (gap.missing.rpartition("/")[2], gap.following))
    assert gap.following > opening.start_offset, "a repair advances the log start offset"
    opening.start_offset = gap.following


def _from_start_on(opening: LogOpenParams, segments: list[Segment], snapshots: Snapshots) -> list[Segment]:
    """Delete the segments entirely below the stored log start, and return the others.

    A power failure may have restored some of the deleted files there, and these files are not synced any more.  A
    scan would mistake them for a gap or damage and cut the log, and compaction would read them.  Before the
    deletion, the producer state at the first kept segment is made durable: in the snapshot that retention left, or
    in a new one.
    """
    count = bisect_right(segments, opening.start_offset, key=_BASE_OFFSET) - 1
    if count <= 0:
        return segments
    below, kept = segments[:count], segments[count:]
    assert kept[0].base_offset <= opening.start_offset, "no record from the log start offset on is deleted"
    make_safe(opening.disk, keep_snapshot(snapshots, segments, kept[0].base_offset))
    remove(opening, below)
    return kept


def _segments(opening: LogOpenParams, found: dict[Offset, SegmentFiles]) -> list[Segment]:
    """Return the segments; rebuild indexes that are missing or of invalid size, and open no other file."""
    segments = []
    for base_offset, files in found.items():
        offsets, times = files.get(OFFSET_INDEX, -1), files.get(TIME_INDEX, -1)
        segment = Segment(
            opening.disk,
            opening.directory,
            base_offset,
            opening.now_ms,
            size=files[LOG],
            index_bytes=max(offsets, 0),
            time_index_bytes=max(times, 0),
            transaction_index_bytes=files.get(TRANSACTION_INDEX, 0),
        )
        if offsets < 0 or times < 0 or offsets % OFFSET_ENTRY.size or times % TIME_ENTRY.size:
            segment.rebuild_indexes(opening.config)
        segments.append(segment)
    return segments


def _fresh(opening: LogOpenParams, snapshots: Snapshots, topic_id: Uuid | None, scan: Scan | None = None) -> LoadedLog:
    """Return a new, empty log at opening.start_offset; `scan` is of an old log that ended before it."""
    start = opening.start_offset
    if snapshots.offsets:
        snapshots.delete(snapshots.offsets)
        # Otherwise, after a power failure, the next start would use the old producers for the new log.
        opening.disk.sync_directory(opening.directory)
    segment = Segment.create(opening.disk, opening.directory, start, opening.now_ms, opening.config)
    epochs = LeaderEpochFileCache(opening.disk, opening.directory, _known_epochs(opening) or [])
    epochs.clear()
    return LoadedLog(
        segments=[segment],
        start_offset=start,
        end_offset=start,
        recovery_point=start,
        epochs=epochs,
        producers=ProducerStateManager(),
        snapshots=snapshots,
        topic_id=topic_id,
        unsynced=[],
        is_synced=False,
        lost_bytes=0,
        aside=scan.aside if scan else None,
    )


def _trust(opening: LogOpenParams, segments: list[Segment]) -> Scan | None:
    """Read the log's end from the active index; return None if the files contradict a clean shutdown."""
    try:
        end, walk = segments[-1].end_by_index(), ProducerWalk(ProducerStateManager())
        return Scan(len(segments) - 1, end, trusted=True, walk=walk, epochs=[])
    except Damaged:
        opening.recovery_point = Offset(min(opening.recovery_point, segments[-1].base_offset))
        return None


def _restore_producers(segments: list[Segment], scan: Scan, snapshots: Snapshots) -> None:
    """Restore the producers after a clean shutdown from its snapshot; without one there are none.

    Kafka does the same.
    """
    active = segments[-1]
    if snapshots.offsets:
        scan.walk.producers = restored(snapshots, segments, scan.end_offset)
    elif len(segments) > 1:  # Without a snapshot the next recovery would read all segments.
        snapshots.try_to_write(active.base_offset, [])
    if not active.transactions.is_whole:
        active.transactions.replace(aborted_in(snapshots, segments, active))


def _known_epochs(opening: LogOpenParams) -> list[tuple[LeaderEpoch, Offset]] | None:
    """Read the epoch checkpoint; return None if it is damaged, because the log can replace it."""
    try:
        return read_epochs(opening.disk, opening.directory)
    except BadCheckpoint:
        return None


def _epochs(opening: LogOpenParams, segments: list[Segment], scan: Scan) -> LeaderEpochFileCache:
    """Return the leader epochs: from the checkpoint for synced data, from the batches for scanned data."""
    known = _known_epochs(opening)
    if known is None:
        epochs = LeaderEpochFileCache(opening.disk, opening.directory, [])
        _note_all(epochs, segments)
    elif scan.trusted:
        return LeaderEpochFileCache(opening.disk, opening.directory, known)
    else:
        scanned_from = segments[scan.first].base_offset
        epochs = LeaderEpochFileCache(
            opening.disk, opening.directory, [entry for entry in known if entry[1] < scanned_from]
        )
        for epoch, start in scan.epochs:
            if epoch > epochs.latest:
                epochs.note(epoch, start)
    if epochs.entries != known:
        epochs.write()
    return epochs


def _note_all(epochs: LeaderEpochFileCache, segments: list[Segment]) -> None:
    """Record the epochs of all readable batches; later readers detect the damage again."""
    for segment in segments:
        with suppress(Damaged):
            for place in walk(segment.file, 0, segment.size, chunk_bytes=CHECK_CHUNK_BYTES):
                if place.leader_epoch > epochs.latest:
                    epochs.note(place.leader_epoch, place.base_offset)
        segment.release()
