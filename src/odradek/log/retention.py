"""Which of the oldest segments may go: by age, by size, and because the log now starts after them.

Only whole segments go, oldest first, and only what is committed (below the high watermark).  Age is that
of the newest record in the segment; the open segment is judged too, and rolled first if even it is old.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from odradek.base.units import Offset, TimestampMs
from odradek.log.config import LogConfig
from odradek.log.segment import Segment


class Bounds(NamedTuple):
    """The offsets of a log that bound its retention."""

    start_offset: Offset
    end_offset: Offset
    high_watermark: Offset


def expired_segments(segments: Sequence[Segment], config: LogConfig, now_ms: TimestampMs, bounds: Bounds) -> int:
    """Returns how many segments, from the oldest on, may be deleted; the open one counts only if it is not empty."""
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
    return len(segments)


def newest(segment: Segment) -> TimestampMs:
    """Returns a segment's greatest timestamp; without any, when its file was last written."""
    timestamp = segment.largest()[0]
    return timestamp if timestamp >= 0 else segment.modified_ms()
