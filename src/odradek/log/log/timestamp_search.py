"""Searches of a log by timestamp that open few segments, guided by what is known in memory.

The greatest timestamp of a sealed segment is known from its writing, or from the first search that read its index.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from odradek.base.units import Offset, TimestampMs
from odradek.log.log.log import Log
from odradek.log.segment.search import Search, TimestampAndOffset, UnfinishedSearch
from odradek.log.segment.segment import Segment

UNKNOWN_MAX = 8  # Segments with an unknown greatest timestamp in one search; each must be opened.
_BASE_OFFSET = attrgetter("base_offset")


class SegmentsToSearch(NamedTuple):
    """Segments to search, in order; the search continues at `rest` if none of them has the record."""

    segments: Sequence[Segment]
    rest: Offset | None


def begin_search(
    log: Log, timestamp: TimestampMs | None, start: Offset, end: Offset, *, is_large: bool = True
) -> Search | None:
    """Return a search by `timestamp` from `start` to below `end`; None searches for the greatest one.

    Searching for the greatest timestamp is KIP-734.  Return None if the log is known to contain no such record.  A
    search reads nothing until it runs, and it may run in a thread.  See UnfinishedSearch for `is_large`.
    """
    start = Offset(max(start, log.start_offset))
    if start >= end:
        return None
    if timestamp is None:
        reached = with_greatest(log.segments, start, end)
    else:
        reached = at_or_after(log.segments, timestamp, start, end)
    if not reached.segments:
        return None
    segments = [segment.searched() for segment in reached.segments]
    bytes_max = log.config.max_decompressed_message_bytes
    return Search(segments, timestamp, start, end, is_large, log.segments, bytes_max, reached.rest)


def note_searched(log: Log, search: Search) -> None:
    """Record the greatest timestamps that a search found, so that the next search can skip those indexes."""
    if search.is_of(log.segments):
        for searched in search.segments:
            number = bisect_right(log.segments, searched.base_offset, key=_BASE_OFFSET) - 1
            log.segments[number].note_searched(searched)


def lookup_timestamp(log: Log, timestamp: TimestampMs | None) -> TimestampAndOffset | None:
    """Run a whole search; blocks.  Raise Refused and DiskFailed as Search.run does."""
    start = log.start_offset
    while (search := begin_search(log, timestamp, start, log.end_offset)) is not None:
        found = search.run()
        note_searched(log, search)
        if not isinstance(found, UnfinishedSearch):
            return found
        start = found.start
    return None


def at_or_after(segments: Sequence[Segment], timestamp: TimestampMs, start: Offset, end: Offset) -> SegmentsToSearch:
    """Return the segments to search for the first record at or after a time, from `start` to below `end`."""
    found: list[Segment] = []
    unknown = 0
    for number in range(_first(segments, start), len(segments)):
        segment = segments[number]
        if segment.base_offset >= end:
            break
        if not segment.may_reach(timestamp):
            continue
        found.append(segment)
        unknown += not segment.is_largest_known
        if (segment.is_largest_known or unknown == UNKNOWN_MAX) and number + 1 < len(segments):
            rest = segments[number + 1].base_offset
            assert rest > start, "each search takes the next one further"
            return SegmentsToSearch(found, rest)
    return SegmentsToSearch(found, None)


def with_greatest(segments: Sequence[Segment], start: Offset, end: Offset) -> SegmentsToSearch:
    """Return the segments to search for the greatest timestamp from `start` to below `end`."""
    found: list[Segment] = []
    greatest: Segment | None = None
    for number in range(_first(segments, start), len(segments)):
        segment = segments[number]
        if segment.base_offset >= end:
            break
        if not segment.may_reach(TimestampMs(0)):
            continue
        if not (segment.is_largest_known and _is_whole(segments, number, start, end)):
            found.append(segment)
        elif greatest is None or segment.max_timestamp > greatest.max_timestamp:
            greatest = segment
    if greatest is not None:
        insort(found, greatest, key=_BASE_OFFSET)
    return SegmentsToSearch(found, None)


def _first(segments: Sequence[Segment], start: Offset) -> int:
    return max(bisect_right(segments, start, key=_BASE_OFFSET) - 1, 0)


def _is_whole(segments: Sequence[Segment], number: int, start: Offset, end: Offset) -> bool:
    """Return whether a sealed segment is entirely from `start` to below `end`."""
    is_sealed = number + 1 < len(segments)
    return start <= segments[number].base_offset and is_sealed and segments[number + 1].base_offset <= end
