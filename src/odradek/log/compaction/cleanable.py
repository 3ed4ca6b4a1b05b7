"""Cleanable part of a log, and whether cleaning it is worthwhile: Kafka's dirty ratio and two lags.

    log start ── clean ──▶ first dirty ── cleanable ──▶ first uncleanable ── active segment, ... ──▶ end

The first dirty offset is the end of the last pass (cleaner-offset-checkpoint).  A pass does not clean records that
could still be truncated, belong to an open transaction, are not synced yet, or are younger than min.compaction.lag.ms.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from odradek.base.units import INT64_MAX, Offset, TimestampMs
from odradek.log.log.durability import synced_to
from odradek.log.log.log import Log
from odradek.log.segment.segment import Segment


class LogToClean(NamedTuple):
    """Cleanable part of a log as a pass would find it; sizes in bytes."""

    first_dirty: Offset
    first_uncleanable: Offset
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool  # Some of it is older than max.compaction.lag.ms.

    @property
    def ratio(self) -> float:
        """Return the dirty ratio: the share of the bytes read by a pass that were not compacted before."""
        size = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / size if size else 0.0


def cleanable(log: Log, now: TimestampMs, high_watermark: Offset) -> LogToClean:
    """Return the cleanable part of the log as it is now.

    Raise DiskFailed if an index that must be read for a segment's timestamp can't be read.
    """
    config = log.config
    dirty = log.compaction.cleaned_to
    if not log.start_offset <= dirty <= log.end_offset:  # The log was cut at either end since.
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
    assert log.start_offset <= dirty <= upper <= log.end_offset, "only records of the log are cleaned"
    return LogToClean(dirty, upper, clean_bytes, cleanable_bytes if upper > dirty else 0, is_overdue)


def is_older(segment: Segment, now: TimestampMs, lag_ms: int) -> bool:
    """Return whether a segment's first batch is older than `lag_ms`.

    Return False without a bound or without a timestamp.
    """
    if lag_ms >= INT64_MAX or not segment.size:
        return False
    first = segment.time_of_first()
    return 0 <= first < now - lag_ms


def must_roll(log: Log, now: TimestampMs) -> bool:
    """Return whether the active segment must roll to meet max.compaction.lag.ms.

    Without this, a topic with little traffic would never roll and so never be compacted.
    """
    config = log.config
    lag_ms = min(config.segment_ms, config.max_compaction_lag_ms)
    return config.max_compaction_lag_ms < INT64_MAX and is_older(log.segments[-1], now, lag_ms)
