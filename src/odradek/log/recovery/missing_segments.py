"""Notices a missing segment amid a log by its traces; a good log of Kafka's is never taken for one with a hole.

That offsets are left out between two segments proves nothing: compaction leaves some out, and so does a follower of a
compacted log.  So two things are asked for: that one segment ends before the next begins, and that something says
there was a segment in between:

- an index without its log, or a log that is empty though its index is not; a stop amid a deletion leaves the log with
  .deleted behind it, and is told apart by that;
- what we noted at the last clean stop, odradek-segments-checkpoint.  It may be old: whoever had the directory since
  removed segments from the start, or from the end and then wrote on, and then nothing is left out; or compacted it,
  which Kafka notes itself in cleaner-offset-checkpoint.

Segments are only read where something speaks of a missing one.  A log's first segments may have gone by retention, also
by that of whoever had the directory since.  They are missed above the log's start if an index of theirs is there after
a clean stop, if that was ours and noted them, or if they were missed before: that is written down with the damages.
After any other stop an index may be what a power failure brought back, and a line of the broker's log speaks of it.  Of
a log that ends below its recovery point it is told, and it goes on from there, as after a damage.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import NamedTuple

from odradek.base.units import Offset
from odradek.log.files.log_file_names import LOG, segment_stem
from odradek.log.segment.scan import Damaged
from odradek.log.segment.segment import Segment


class Gap(NamedTuple):
    """Offsets from `end` to below `following` are not there, and `missing` is the file that had the first of them."""

    missing: str
    end: Offset
    following: Offset

    def __str__(self) -> str:
        return f"{self.missing} is missing: the log has nothing from offset {self.end} to {self.following - 1}"


def noted_text(segments: Sequence[Segment]) -> str:
    """Returns what is noted of a log at a clean stop: its segments, but for empty ones, which may go at any time."""
    return " ".join([str(segment.base_offset) for segment in segments if segment.size])


def spoken_of(noted: str, segments: Sequence[Segment], others: Collection[Offset]) -> set[Offset]:
    """Returns the base offsets of segments that are noted, or have other files, and are not there."""
    if not others and noted == noted_text(segments):
        return set()
    spoken = {Offset(int(offset)) for offset in noted.split()} | set(others)
    return spoken - {segment.base_offset for segment in segments}


def gaps(directory: str, segments: Sequence[Segment], spoken: Collection[Offset], start: Offset) -> list[Gap]:
    """Returns the gaps above the log's start.  After a segment that can't be read no gap is seen."""
    found: list[Gap] = []
    if not spoken:
        return found
    for segment, following in pairwise(segments):
        if following.base_offset <= start:
            continue
        between = [offset for offset in spoken if segment.base_offset < offset < following.base_offset]
        end = _end_of(segment) if between else None
        if end is not None and (gap := gap_between(directory, end, following.base_offset, between)):
            found.append(gap)
    return found


def gap_between(directory: str, end: Offset, following: Offset, spoken: Collection[Offset]) -> Gap | None:
    """Returns the gap between a segment that ends at `end` and the next, at `following`; None if nothing is missing."""
    missing = min((offset for offset in spoken if end <= offset < following), default=None)
    return None if missing is None else Gap(f"{directory}/{segment_stem(missing)}{LOG}", end, following)


def gap_before(directory: str, first: Offset, lost: Collection[Offset], start: Offset) -> Gap | None:
    """Returns the gap between a log's start and its first segment, at `first`; None if nothing is missing there."""
    missing = min((offset for offset in lost if offset < first), default=None)
    if missing is None or first <= start:
        return None
    return Gap(f"{directory}/{segment_stem(missing)}{LOG}", Offset(max(missing, start)), first)


def _end_of(segment: Segment) -> Offset | None:
    try:
        return segment.end_by_index()
    except Damaged:
        return None
    finally:
        segment.release()
