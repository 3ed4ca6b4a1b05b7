"""Explanation of each segment's retention: the rules of log/log/retention.py in sentences.

Segments are deleted from the oldest on, so a segment that is due waits for the one before it. This module reads neither
files nor a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from odradek.app.inspect.segment_files import SegmentFacts
from odradek.app.terminal.output import plural, size_text, time_text
from odradek.base.units import DAY_MS, SECOND_MS

YEAR_MS = 365 * DAY_MS
FOR_EVER_MS = 100 * YEAR_MS  # Nobody waits for a later deletion.


class Retention(NamedTuple):
    """Retention settings of the topic's configuration; -1 means no limit."""

    retention_ms: int
    retention_bytes: int
    deletes: bool
    compacts: bool

    @property
    def deletion_text(self) -> str:
        """Return when due segments are deleted."""
        key = "log.cleaner.backoff.ms" if self.compacts else "log.retention.check.interval.ms"
        return f"deleted by the next check ({key})"


class Bounds(NamedTuple):
    """Log start offset and high watermark of a log; None if unknown."""

    start_offset: int
    high_watermark: int | None


class Fate(NamedTuple):
    """Fate of a segment. `until` is the time of its deletion by age, None if age does not delete it.

    The time assumes that nothing else changes.
    """

    until: int | None
    why: str
    is_due: bool = False


def fates(segments: Sequence[SegmentFacts], retention: Retention, bounds: Bounds, now_ms: int) -> list[Fate]:
    """Return the fate of each segment, oldest first."""
    found: list[Fate] = []
    missing = retention.retention_bytes - sum(one.size for one in segments)
    held_until, holder = -1, 0  # Time until which an earlier segment retains all later ones, and its base offset.
    for one in segments:
        missing += one.size  # Bytes to append until it exceeds the limit.
        fate = _fate(one, retention, bounds, now_ms, missing)
        if fate.until is not None and held_until > fate.until and not _exceeds_size(retention, missing):
            text = f"waits for the older segment at {holder}, {_until(held_until, now_ms)}"
            fate = Fate(held_until, f"{_writes(one)}{text}{_or_by_size(retention, missing)}")
        elif fate.until is not None and not fate.is_due:
            held_until, holder = fate.until, one.base_offset
        found.append(fate)
    return found


def _fate(one: SegmentFacts, retention: Retention, bounds: Bounds, now_ms: int, missing: int) -> Fate:
    writes = _writes(one)
    if one.is_active and not one.size:
        return Fate(None, "active segment, empty")
    if bounds.high_watermark is not None and bounds.high_watermark < one.end_offset:
        waits = f"its records from offset {bounds.high_watermark} on are not committed yet"
        return Fate(None, f"{writes}{waits}")
    if not one.is_active and one.end_offset <= bounds.start_offset:
        return Fate(now_ms, f"below the log start offset {bounds.start_offset}: {retention.deletion_text}", is_due=True)
    if not retention.deletes:
        policy = "compact" if retention.compacts else "empty"
        return Fate(None, f"{writes}cleanup.policy is {policy}, so neither age nor size deletes it")
    if _exceeds_size(retention, missing):
        return Fate(now_ms, f"{writes}the log exceeds retention.bytes: {retention.deletion_text}", is_due=True)
    if retention.retention_ms >= 0:
        return _by_age(one, retention, now_ms, _or_by_size(retention, missing))
    if retention.retention_bytes >= 0:
        return Fate(None, f"{writes}deleted{_or_by_size(retention, missing).removeprefix(', or')}; retention.ms is -1")
    return Fate(None, f"{writes}never deleted: retention.ms and retention.bytes are both -1")


def _writes(one: SegmentFacts) -> str:
    return "active segment; " if one.is_active else ""


def _or_by_size(retention: Retention, missing: int) -> str:
    if retention.retention_bytes < 0:
        return ""
    return f", or after {size_text(missing)} more are written (retention.bytes)"


def _exceeds_size(retention: Retention, missing: int) -> bool:
    return retention.deletes and retention.retention_bytes >= 0 and missing <= 0


def _by_age(one: SegmentFacts, retention: Retention, now_ms: int, or_by_size: str) -> Fate:
    until, writes = one.newest + retention.retention_ms, _writes(one)
    if until < now_ms:
        return Fate(
            until, f"{writes}its newest record is older than retention.ms: {retention.deletion_text}", is_due=True
        )
    if one.newest > now_ms:
        when = f"{age_text(one.newest - now_ms)} in the future, {time_text(one.newest)}"
        record = "a record" if one.newest_offset is None else f"the record at {one.newest_offset}"
        text = f"{record} has a timestamp {when}: it retains the segment {_until(until, now_ms)}"
        return Fate(until, f"{writes}{text}{or_by_size}")
    dated = (
        "its newest record" if one.has_timestamps else "the last write to its file because no record has a timestamp"
    )
    return Fate(until, f"{writes}deleted at {time_text(until)}, retention.ms after {dated}{or_by_size}")


def _until(until: int, now_ms: int) -> str:
    return "forever" if until - now_ms > FOR_EVER_MS else f"until {time_text(until)}"


def age_text(ms: int) -> str:
    """Format a duration in its two largest units: 3 days 4 h, 12 min 5 s."""
    if ms >= YEAR_MS:
        return plural(ms // YEAR_MS, "year")
    days, rest = divmod(ms // SECOND_MS, 86_400)
    hours, minutes, seconds = rest // 3600, rest // 60 % 60, rest % 60
    if days:
        return f"{plural(days, 'day')} {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
