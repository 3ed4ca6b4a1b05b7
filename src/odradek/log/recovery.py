"""Opens a partition's directory: trusts it after a clean stop, checks it after any other.

After a clean stop the end offset comes from the open segment's last index entry.  After a kill or a power failure
every batch from the recovery point's segment on is checked; what lies before was synced.  The log ends at the first
batch that is not whole, and nothing after that is served, so that it stays a prefix of what was appended; what is more
than a torn write is set aside: aside.py.  A log amid which a segment is missing is not opened: presence.py.

What is known of producers comes from a snapshot and the batches after it: producer_recovery.py.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from odradek.base.units import NO_EPOCH, LeaderEpoch, Offset, TimestampMs
from odradek.base.uuids import Uuid
from odradek.log.aside import SetAside, set_aside, survey
from odradek.log.checkpoints import BadCheckpoint, read_epochs, read_topic_id
from odradek.log.config import LogConfig
from odradek.log.disk import Disk
from odradek.log.epochs import LeaderEpochs
from odradek.log.failures import SegmentMissing
from odradek.log.index import OFFSET_ENTRY, TIME_ENTRY
from odradek.log.leftovers import Files, SegmentFiles, found_files, unlink_all
from odradek.log.names import LOG, OFFSET_INDEX, SEGMENT_SUFFIXES, TIME_INDEX, TRANSACTION_INDEX, segment_stem
from odradek.log.presence import Gap, gaps, spoken_of
from odradek.log.producer_recovery import ProducerWalk, aborted_in, restored
from odradek.log.producers import Producers
from odradek.log.scan import CHECK_CHUNK_BYTES, Damaged, walk, walk_runs
from odradek.log.segment import Segment
from odradek.log.snapshots import Snapshots
from odradek.record.batch import MAGIC
from odradek.record.kernels.runs import Runs

WAY_OUT = "put the file back, or cut the log there with `odradek log verify --repair`"


@dataclass(slots=True)
class Loaded:
    """What an opened directory holds.

    `unsynced`: sealed segments a power failure could still take something from; `is_synced`: it can't from the rest.
    """

    segments: list[Segment]
    start_offset: Offset
    end_offset: Offset
    recovery_point: Offset
    epochs: LeaderEpochs
    producers: Producers
    snapshots: Snapshots
    topic_id: Uuid | None
    unsynced: list[Segment]
    is_synced: bool
    lost_bytes: int
    aside: SetAside | None


@dataclass(slots=True)
class Opening:
    """The arguments of one opening, together.

    `noted` are the segments that were there at the last clean stop, as checkpoints.read_segments has them.  A log that
    was compacted by its broker may have lost some of them by right.
    """

    disk: Disk
    directory: str
    config: LogConfig
    now_ms: TimestampMs
    recovery_point: Offset
    start_offset: Offset
    clean_shutdown: bool
    noted: str = ""
    was_compacted: bool = False
    repairs: bool = False  # Cuts where a segment is missing, and takes nothing for a torn write.
    synced: Offset = field(init=False)
    gaps: list[Gap] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.synced = self.recovery_point  # That may be lowered, where a clean stop is contradicted.


def load(opening: Opening) -> Loaded:
    """Raises DiskFailed; SegmentMissing; BadCheckpoint for a partition.metadata that can't be read."""
    disk, directory = opening.disk, opening.directory
    topic_id = read_topic_id(disk, directory)
    files = found_files(disk, directory)
    segments = _put_in_order(opening, files)
    snapshots = Snapshots(disk, directory, files.snapshots)
    if not segments:
        return _fresh(opening, snapshots, topic_id)
    scan = _trust(opening, segments) if opening.clean_shutdown else None
    if scan is None:
        scan = _check(opening, segments, _first_unsynced(segments, opening.recovery_point), snapshots)
    else:
        _restore_producers(segments, scan, snapshots)
    if scan.end_offset < opening.start_offset:
        _remove(opening, segments)
        return _fresh(opening, snapshots, topic_id, scan)
    start = Offset(max(opening.start_offset, segments[0].base_offset))
    recovery_point = scan.end_offset if scan.trusted else Offset(min(opening.recovery_point, scan.end_offset))
    epochs = _epochs(opening, segments, scan)
    epochs.truncate_from_end(scan.end_offset)
    epochs.truncate_from_start(start)
    snapshots.delete_strays({segment.base_offset for segment in segments}, scan.end_offset)
    return Loaded(
        segments=segments,
        start_offset=start,
        end_offset=scan.end_offset,
        recovery_point=recovery_point,
        epochs=epochs,
        producers=scan.walk.producers,
        snapshots=snapshots,
        topic_id=topic_id,
        unsynced=[] if scan.trusted else segments[scan.first : -1],
        is_synced=scan.trusted or (recovery_point == scan.end_offset and not scan.lost_bytes),
        lost_bytes=scan.lost_bytes,
        aside=scan.aside,
    )


@dataclass(slots=True)
class _Scan:
    """The outcome of looking at the segments from number `first` on."""

    first: int
    end_offset: Offset
    trusted: bool
    walk: ProducerWalk
    epochs: list[tuple[LeaderEpoch, Offset]]
    lost_bytes: int = 0
    aside: SetAside | None = None


def _put_in_order(opening: Opening, files: Files) -> list[Segment]:
    """The segments that count; an empty one amid them came of a roll that was stopped half-way, and goes.

    It would hide what was appended to the one before it.  Raises SegmentMissing, and nothing was changed.
    """
    found = _segments(opening, files.segments)
    empty = [segment for segment in found[1:-1] if not segment.size]
    segments = [segment for segment in found if segment not in empty] if empty else found
    hollow = {one.base_offset for one in empty if files.segments[one.base_offset].get(OFFSET_INDEX)}
    spoken = spoken_of(opening.noted, segments, files.orphans.keys() | hollow)
    if spoken and not opening.was_compacted and (opening.repairs or not opening.config.cleanup_compact):
        seen = gaps(opening.directory, segments, spoken, opening.start_offset)
        opening.gaps = [gap for gap in seen if opening.clean_shutdown or gap.end < opening.synced or opening.repairs]
        if opening.gaps and not opening.repairs:
            raise SegmentMissing(f"{opening.gaps[0]}; {WAY_OUT}")
    unlink_all(opening.disk, opening.directory, files.orphans)
    _remove(opening, empty)
    return segments


def _segments(opening: Opening, found: dict[Offset, SegmentFiles]) -> list[Segment]:
    """Sealed segments whose indexes are not there or can't be right get new ones; nothing is opened otherwise."""
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


def _fresh(opening: Opening, snapshots: Snapshots, topic_id: Uuid | None, scan: _Scan | None = None) -> Loaded:
    """`scan` is of a log that ended before it should begin."""
    start = opening.start_offset
    segment = Segment.create(opening.disk, opening.directory, start, opening.now_ms, opening.config)
    epochs = LeaderEpochs(opening.disk, opening.directory, _known_epochs(opening) or [])
    epochs.clear()
    snapshots.delete(snapshots.offsets)
    return Loaded(
        segments=[segment],
        start_offset=start,
        end_offset=start,
        recovery_point=start,
        epochs=epochs,
        producers=Producers(),
        snapshots=snapshots,
        topic_id=topic_id,
        unsynced=[],
        is_synced=False,
        lost_bytes=0,
        aside=scan.aside if scan else None,
    )


def _trust(opening: Opening, segments: list[Segment]) -> _Scan | None:
    """The end by the open segment's index; None if what is there contradicts a clean stop."""
    try:
        end, walk = segments[-1].end_by_index(), ProducerWalk(Producers())
        return _Scan(len(segments) - 1, end, trusted=True, walk=walk, epochs=[])
    except Damaged:
        opening.recovery_point = Offset(min(opening.recovery_point, segments[-1].base_offset))
        return None


def _restore_producers(segments: list[Segment], scan: _Scan, snapshots: Snapshots) -> None:
    """A clean stop leaves a snapshot.  Where there is none at all, nobody kept count before, as in Apache Kafka."""
    active = segments[-1]
    if snapshots.offsets:
        scan.walk.producers = restored(snapshots, segments, scan.end_offset)
    elif len(segments) > 1:  # Or the next recovery would read them all.
        snapshots.try_to_write(active.base_offset, [])
    if not active.transactions.is_whole:
        active.transactions.replace(aborted_in(snapshots, segments, active))


def _first_unsynced(segments: list[Segment], recovery_point: Offset) -> int:
    """The number of the segment that holds the last synced batch: all before it were synced with their indexes.

    That one may have been sealed since, and that not been synced: its last index entries, the cut of its spare room.
    """
    return max(sum(segment.base_offset < recovery_point for segment in segments) - 1, 0)


def _check(opening: Opening, segments: list[Segment], first: int, snapshots: Snapshots) -> _Scan:
    """Every batch of the segments from `first` on; drops what comes after the first damage."""
    start = segments[first].base_offset
    walk = ProducerWalk(restored(snapshots, segments, start))
    snapshots.delete_beyond(start)  # They are made again.
    scan = _Scan(first, start, trusted=False, walk=walk, epochs=[])
    for number in range(first, len(segments)):
        segment = segments[number]
        if number > first and _has_hole(opening, segment, scan.end_offset):
            why = f"what was written up to offset {segment.base_offset} is missing"
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
    return scan


def _has_hole(opening: Opening, segment: Segment, end: Offset) -> bool:
    """The end of the one before was lost at a batch's border, which no checksum can tell.

    A log that is or was compacted has holes by right.  Ours are sealed and synced when compaction touches them, so a
    hole beyond the recovery point of a log that is not compacted is a loss.
    """
    if opening.repairs:
        return any(gap.following == segment.base_offset for gap in opening.gaps)
    return end < segment.base_offset and end >= opening.recovery_point and not opening.config.cleanup_compact


def _check_segment(opening: Opening, segment: Segment, scan: _Scan) -> tuple[int, str]:
    """Where its first damage is, and which; it has new indexes for what is before that."""
    segment.forget_indexes()
    config, good, end, why = opening.config, 0, scan.end_offset, ""
    latest = scan.epochs[-1][0] if scan.epochs else NO_EPOCH
    runs = Runs(segment.base_offset, end, latest, config.index_interval_bytes)
    try:
        for place in walk_runs(segment.file, 0, segment.size, runs):
            first = place.base_offset if place.magic == MAGIC else place.last_offset
            if first < end or not segment.can_hold(place.last_offset):
                why = f"at byte {place.position} of {segment.name} offset {first} follows where {end} is next"
                break  # A batch that is whole, and yet can't follow what is before it.
            segment.index(place, config)
            segment.max_timestamp_offset = Offset(runs.max_timestamp_offset)
            good, end = place.end, Offset(place.last_offset + 1)
            scan.walk.passed(runs)
            if place.leader_epoch > latest:
                latest = place.leader_epoch
                scan.epochs.append((latest, place.base_offset))
    except Damaged as damage:
        why = f"byte {damage.position} of {segment.name}: {damage.why}"
    scan.walk.take(runs)
    segment.transactions.replace(scan.walk.take_aborted())
    scan.end_offset = end
    return good, why


def _cut_off(opening: Opening, segments: list[Segment], place: tuple[int, int], why: str, scan: _Scan) -> None:
    """The log ends at this place: segment number, position.  What is beyond goes, or is set aside."""
    number, position = place
    segment, later = segments[number], segments[number + 1 :]
    del segments[number + 1 :]
    scan.lost_bytes += segment.size - position + sum(one.size for one in later)
    aside = SetAside(scan.end_offset, why)
    is_torn = scan.end_offset >= opening.synced and not opening.repairs
    for one in (segment, *later):
        found = survey(one.file, position if one is segment else 0, one.size, scan.end_offset, one.base_offset)
        is_torn &= found.is_searched and not found.records
        aside.records += found.records
        aside.is_all &= found.is_all
    if is_torn:
        _remove(opening, later)
    else:
        set_aside(opening.disk, opening.directory, (segment, position), later, aside)
        scan.aside = aside if aside.paths else None
    if position < segment.size:
        segment.cut_at(position)


def _remove(opening: Opening, segments: list[Segment]) -> None:
    """Deletes their files, last segment first, so that a stop half-way leaves no hole."""
    for segment in reversed(segments):
        for suffix in SEGMENT_SUFFIXES:
            opening.disk.unlink(f"{opening.directory}/{segment_stem(segment.base_offset)}{suffix}")
    if segments:
        opening.disk.sync_directory(opening.directory)


def _known_epochs(opening: Opening) -> list[tuple[LeaderEpoch, Offset]] | None:
    """None if the checkpoint is damaged: it can be made again from the log."""
    try:
        return read_epochs(opening.disk, opening.directory)
    except BadCheckpoint:
        return None


def _epochs(opening: Opening, segments: list[Segment], scan: _Scan) -> LeaderEpochs:
    """The checkpoint for what was synced, the batches themselves for what was scanned."""
    known = _known_epochs(opening)
    if known is None:
        epochs = LeaderEpochs(opening.disk, opening.directory, [])
        _note_all(epochs, segments)
    elif scan.trusted:
        return LeaderEpochs(opening.disk, opening.directory, known)
    else:
        scanned_from = segments[scan.first].base_offset
        epochs = LeaderEpochs(opening.disk, opening.directory, [entry for entry in known if entry[1] < scanned_from])
        for epoch, start in scan.epochs:
            if epoch > epochs.latest:
                epochs.note(epoch, start)
    if epochs.entries != known:
        epochs.write()
    return epochs


def _note_all(epochs: LeaderEpochs, segments: list[Segment]) -> None:
    """What can be read of them; damage in what was synced is found again by who reads there."""
    for segment in segments:
        with suppress(Damaged):
            for place in walk(segment.file, 0, segment.size, chunk_bytes=CHECK_CHUNK_BYTES):
                if place.leader_epoch > epochs.latest:
                    epochs.note(place.leader_epoch, place.base_offset)
        segment.release()
