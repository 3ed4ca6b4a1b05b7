"""Recovery of producer state for an opened or truncated log, from a snapshot and the batches after it.

The compiled kernel walks the batches and keeps a tally per producer (record/kernels/runs.py).  The walk applies the
tallies at each marker, because a marker ends the transaction open before it, and at the end of each segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

from odradek.base.units import INT32_MAX, NO_EPOCH, Offset, ProducerEpoch, ProducerId, TimestampMs
from odradek.log.producers.producer_state import BATCHES_KEPT, ProducerStateEntry, ProducerStateManager
from odradek.log.producers.snapshots import Snapshots
from odradek.log.segment.cut_places import cut_place
from odradek.log.segment.scan import Damaged, walk_runs
from odradek.log.segment.segment import Segment
from odradek.log.segment.transaction_index import AbortedTxn
from odradek.record.end_transaction_marker import end_marker
from odradek.record.kernels.runs import Runs
from odradek.record.record_batch import Batch


class ProducerWalk:
    """Producers of a log during an ordered walk of its batches, and the aborted transactions found."""

    def __init__(self, producers: ProducerStateManager) -> None:
        self.producers = producers
        self.aborted: list[AbortedTxn] = []  # Until take_aborted.

    def process(self, runs: Runs) -> None:
        """Process one run of batches; call this after each run."""
        if runs.control is not None:
            self.apply_runs(runs)
            self._apply_end_marker(Batch.trusted(runs.control))

    def apply_runs(self, runs: Runs) -> None:
        """Apply the tallies per producer that the runs have collected since the last call."""
        for tally in runs.tallies.values():
            known = self.producers.get(ProducerId(tally.producer_id)) or ProducerStateEntry(
                ProducerId(tally.producer_id)
            )
            continues_epoch = tally.epoch == known.epoch and not tally.has_new_epoch
            batches = (*known.batches, *tally.batches()) if continues_epoch else tally.batches()
            first_offset = known.first_offset if known.has_open_transaction else Offset(tally.first_transactional)
            producer = ProducerStateEntry(
                known.id,
                ProducerEpoch(tally.epoch),
                batches[-BATCHES_KEPT:],
                known.coordinator_epoch,
                first_offset,
                TimestampMs(tally.timestamp),
            )
            self.producers.put({known.id: producer})
        runs.tallies.clear()

    def take_aborted(self) -> list[AbortedTxn]:
        aborted, self.aborted = self.aborted, []
        return aborted

    def _apply_end_marker(self, batch: Batch) -> None:
        marker = end_marker(batch)
        ended = None if marker is None else self.producers.apply_end_marker(marker, batch)
        if ended is not None and not ended.is_commit:
            self.aborted.append(ended.as_aborted())


def restored(snapshots: Snapshots, segments: Sequence[Segment], end: Offset) -> ProducerStateManager:
    """Return the producers as of `end`, from the newest good snapshot not beyond it.

    Write a missing snapshot where a segment begins.  Skip batches that can't be read; a reader of that position
    detects the damage.  Raise DiskFailed if the disk fails.
    """
    known, start = snapshots.newest(end)
    assert start <= end, "a snapshot beyond the end has producers that the log lacks"
    walk, is_whole = ProducerWalk(ProducerStateManager(known)), True
    for segment, following in pairwise([*segments, None]):
        assert segment is not None
        if segment.base_offset >= end or (following is not None and following.base_offset <= start):
            continue
        if is_whole and segment.base_offset > max(start, segments[0].base_offset):
            snapshots.try_to_write(segment.base_offset, list(walk.producers))
        is_cut = following is None or end < following.base_offset
        is_whole &= _walk_segment(segment, start, end if is_cut else None, walk)
    return walk.producers


def _walk_segment(segment: Segment, start: Offset, end: Offset | None, walk: ProducerWalk) -> bool:
    """Walk one segment's batches from `start` to `end` or its end; return False if some can't be read."""
    was_open = segment.is_open
    begin = segment.locate(start)
    last = None if end is None else cut_place(segment, end)
    upto = segment.size if last is None else last.position
    place = upto if begin is None else begin
    runs = Runs(segment.base_offset, segment.base_offset, NO_EPOCH, INT32_MAX)
    with suppress(Damaged):
        for run in walk_runs(segment.file, place, upto, runs):
            walk.process(runs)
            place = run.end_position
    walk.apply_runs(runs)
    if not was_open:
        segment.release()
    return place == upto


def aborted_in(snapshots: Snapshots, segments: Sequence[Segment], segment: Segment) -> list[AbortedTxn]:
    """Return the transactions whose abort markers are in one segment, read from the log itself."""
    walk = ProducerWalk(restored(snapshots, segments, segment.base_offset))
    _walk_segment(segment, segment.base_offset, None, walk)
    return walk.aborted


def keep_snapshot(snapshots: Snapshots, segments: Sequence[Segment], offset: Offset) -> str:
    """Return the path of the snapshot as of `offset`; write the snapshot if it is missing or bad.

    The snapshot is synced before the log below it is deleted.
    """
    if not snapshots.checked(offset):
        snapshots.write(offset, list(restored(snapshots, segments, offset)))
    assert offset in snapshots.offsets, "the log below is deleted next"
    return snapshots.path(offset)
