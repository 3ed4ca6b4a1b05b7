"""Offsets by time (KIP-79, KIP-734): the time index to near the place, headers to the batch, then its records.

Timestamps are the producers' and need not ascend, so a segment is skipped only if its greatest is too small, and so is
a batch.  The one batch that has the record is surveyed; of formats before 2 the answer is the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from odradek.base.units import LeaderEpoch, Offset, TimestampMs
from odradek.log.scan import Place
from odradek.log.segment import Segment
from odradek.record.batch import MAGIC, Batch
from odradek.record.survey import survey


class TimedOffset(NamedTuple):
    """A record's time and place."""

    timestamp: TimestampMs
    offset: Offset
    leader_epoch: LeaderEpoch


def first_at_or_after(segments: Sequence[Segment], timestamp: TimestampMs, start: Offset) -> TimedOffset | None:
    """The first record from offset `start` on whose timestamp is at least that.

    Raises Refused(CORRUPT_MESSAGE) if its batch can't be decoded; DiskFailed.
    """
    for number, segment in enumerate(segments):
        ends_before_start = number + 1 < len(segments) and segments[number + 1].base_offset <= start
        if not ends_before_start and segment.largest()[0] >= timestamp:
            found = _in_segment(segment, timestamp, start)
            if found:
                return found
    return None


def greatest(segments: Sequence[Segment], start: Offset) -> TimedOffset | None:
    """The first record of those with the greatest timestamp; None in an empty log, or one without timestamps."""
    candidates = [segment for segment in segments if segment.size and segment.largest()[0] >= 0]
    if not candidates:
        return None
    best = max(candidates, key=lambda segment: segment.largest()[0])
    timestamp, offset = best.largest()
    place = best.find(offset)
    return _in_batch(best, place, timestamp, start) if place else None


def _in_segment(segment: Segment, timestamp: TimestampMs, start: Offset) -> TimedOffset | None:
    near = segment.find(Offset(max(segment.times.offset_before(timestamp), start)))
    if near is None:
        return None
    for place in segment.places(near.position):
        if place.max_timestamp >= timestamp:
            found = _in_batch(segment, place, timestamp, start)
            if found:
                return found
    return None


def _in_batch(segment: Segment, place: Place, timestamp: TimestampMs, start: Offset) -> TimedOffset | None:
    if place.magic != MAGIC:
        return TimedOffset(place.max_timestamp, place.base_offset, place.leader_epoch)
    batch = Batch.trusted(segment.file.pread(place.position, place.size))
    if batch.is_log_append_time:
        return TimedOffset(place.max_timestamp, Offset(max(place.base_offset, start)), place.leader_epoch)
    found = survey(batch, wanted=timestamp, start=start).found
    return None if found is None else TimedOffset(found.timestamp, found.offset, place.leader_epoch)
