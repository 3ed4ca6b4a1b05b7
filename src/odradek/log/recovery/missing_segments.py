"""Detection of a missing segment within a log, without false alarms for valid logs of Kafka's.

Missing offsets between two segments prove nothing: compaction leaves offsets out, and so does a follower of a compacted
log.  So detection requires two facts: one segment ends before the next begins, and a trace shows that there was a
segment between them.  The traces are:

- An index without its log, or an empty log with an index that is not empty.  A stop during a deletion is distinguished
  by the log's suffix .deleted.
- odradek-segments-checkpoint, written at the last clean shutdown.  It may be outdated.  Another broker may have removed
  segments from the start, or from the end and then appended; neither leaves offsets out.  Or it compacted the log,
  which Kafka records in cleaner-offset-checkpoint.

Segments are only read if there is a trace of a missing one.  Retention may have deleted a log's first segments, also
in a broker that used the directory since.  Above the log's start they are considered missing if

- one of their indexes exists after a clean shutdown,
- Odradek's own clean shutdown listed them, and no other broker used the directory since, or
- they were missing before, which is stored with the damages.

After any other stop, a power failure may have restored an index, so only a line in the broker's log reports it.  A log
that ends below its recovery point is reported and continues from its end, as after damage.
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
    """Missing offsets from `end` to below `following`; `missing` is the file that had the first of them."""

    missing: str
    end: Offset
    following: Offset

    def __str__(self) -> str:
        return f"{self.missing} is missing: the log has nothing from offset {self.end} to {self.following - 1}"


def segments_text(segments: Sequence[Segment]) -> str:
    """Return the list of a log's segments to store at a clean shutdown.

    Empty segments are left out, because they may be deleted at any time.
    """
    return " ".join([str(segment.base_offset) for segment in segments if segment.size])


def find_traces(recorded_segments: str, segments: Sequence[Segment], others: Collection[Offset]) -> set[Offset]:
    """Return the base offsets of missing segments that were listed or that have other files."""
    if not others and recorded_segments == segments_text(segments):
        return set()
    traces = {Offset(int(offset)) for offset in recorded_segments.split()} | set(others)
    return traces - {segment.base_offset for segment in segments}


def gaps(directory: str, segments: Sequence[Segment], traces: Collection[Offset], start: Offset) -> list[Gap]:
    """Return the gaps above the log's start; a gap after an unreadable segment is not detected."""
    found: list[Gap] = []
    if not traces:
        return found
    for segment, following in pairwise(segments):
        if following.base_offset <= start:
            continue
        between = [offset for offset in traces if segment.base_offset < offset < following.base_offset]
        end = _end_of(segment) if between else None
        if end is not None and (gap := gap_between(directory, end, following.base_offset, between)):
            found.append(gap)
    return found


def gap_between(directory: str, end: Offset, following: Offset, traces: Collection[Offset]) -> Gap | None:
    """Return the gap between a segment's end and the next segment; None if no segment is missing."""
    missing = min((offset for offset in traces if end <= offset < following), default=None)
    return None if missing is None else Gap(f"{directory}/{segment_stem(missing)}{LOG}", end, following)


def gap_before(directory: str, first: Offset, lost: Collection[Offset], start: Offset) -> Gap | None:
    """Return the gap between a log's start and its first segment, at `first`; None if there is none."""
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
