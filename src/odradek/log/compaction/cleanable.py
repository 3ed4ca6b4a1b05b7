"""How much of a log could be compacted now, and whether it is worth it: Kafka's dirty ratio and its two lags.

    log start ── clean ──▶ first dirty ── cleanable ──▶ first uncleanable ── active segment, ... ──▶ end

The first dirty offset is where the last pass ended (cleaner-offset-checkpoint).  Nothing is cleaned that could still be
cut off, is part of an open transaction, is not synced yet, or is younger than min.compaction.lag.ms.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from odradek.base.units import INT64_MAX, Offset, TimestampMs
from odradek.log.log.durability import synced_to
from odradek.log.log.log import Log
from odradek.log.segment.segment import Segment


class Cleanable(NamedTuple):
    """What a pass over a log would find.  Sizes in bytes."""

    first_dirty: Offset
    first_uncleanable: Offset
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool  # Something in it is older than max.compaction.lag.ms.

    @property
    def ratio(self) -> float:
        """The dirty ratio: how much of what a pass reads was not compacted before."""
        size = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / size if size else 0.0


def cleanable(log: Log, now: TimestampMs, high_watermark: Offset) -> Cleanable:
    """Looks at the log as it is now.  Raises DiskFailed: an index may have to be read for a segment's time."""
    config = log.config
    dirty = log.compaction.cleaned_to
    if not log.start_offset <= dirty <= log.end_offset:  # Of a log that was cut at either end since.
        dirty = log.start_offset
    upper = min(log.segments[-1].base_offset, log.producers.first_unstable, synced_to(log), high_watermark)
    clean_bytes = cleanable_bytes = 0
    is_overdue = False
    for segment, following in pairwise(log.segments):
        if following.base_offset <= dirty:
            clean_bytes += segment.size
            continue
        if segment.base_offset >= upper:
            break
        if config.min_compaction_lag_ms and segment.largest()[0] > now - config.min_compaction_lag_ms:
            upper = segment.base_offset
            break
        cleanable_bytes += segment.size
        is_overdue |= is_older(segment, now, config.max_compaction_lag_ms)
    upper = Offset(max(upper, dirty))
    return Cleanable(dirty, upper, clean_bytes, cleanable_bytes if upper > dirty else 0, is_overdue)


def is_older(segment: Segment, now: TimestampMs, lag_ms: int) -> bool:
    """True if a segment's first batch is older than `lag_ms`; never without a bound, or without a time."""
    if lag_ms >= INT64_MAX or not segment.size:
        return False
    first = segment.time_of_first()
    return 0 <= first < now - lag_ms


def must_roll(log: Log, now: TimestampMs) -> bool:
    """True if the active segment keeps back what max.compaction.lag.ms wants compacted: a quiet topic never rolls."""
    config = log.config
    lag_ms = min(config.segment_ms, config.max_compaction_lag_ms)
    return config.max_compaction_lag_ms < INT64_MAX and is_older(log.segments[-1], now, lag_ms)
