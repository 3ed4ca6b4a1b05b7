"""Explanations of why segments are retained, which match what retention does."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.app.inspect.segment_fate import Bounds, Fate, Retention, age_text, fates
from odradek.app.inspect.segment_files import SegmentFacts
from odradek.base.units import DAY_MS, HOUR_MS, Offset, TimestampMs
from odradek.log.files.log_config import LogConfig
from odradek.log.log.retention import Bounds as LogBounds
from odradek.log.log.retention import expired_segments
from odradek.log.segment.segment import Segment

NOW = 1_800_000_000_000
NEXT_CHECK = "deleted by the next check (log.retention.check.interval.ms)"
CLEANERS = "deleted by the next check (log.cleaner.backoff.ms)"  # The retention of compacted topics.
DAYS = Retention(2 * DAY_MS, -1, deletes=True, compacts=False)


def log_of(*ages_ms: int, size: int = 1000, step: int = 10) -> list[SegmentFacts]:
    """Return segments whose newest records have these ages; the last segment is active."""
    last = len(ages_ms) - 1
    return [
        SegmentFacts(
            Path(f"{number}.log"),
            Offset(number * step),
            Offset((number + 1) * step),
            size,
            TimestampMs(NOW - age - 5),
            TimestampMs(NOW - age),
            True,
            is_active=number == last,
        )
        for number, age in enumerate(ages_ms)
    ]


def fates_of(
    segments: list[SegmentFacts], retention: Retention, start: int = 0, high_watermark: int | None = None
) -> list[Fate]:
    return fates(segments, retention, Bounds(start, high_watermark), NOW)


def test_segment_is_deleted_when_its_newest_record_expires() -> None:
    old, young, active = fates_of(log_of(3 * DAY_MS, DAY_MS, 0), DAYS)
    assert NEXT_CHECK in old.why
    assert young.until == NOW + DAY_MS
    assert "2027-01-16T08:00:00.000Z, retention.ms after its newest record" in young.why
    assert active.why.startswith("active segment; deleted at")


def test_record_from_the_future_delays_all_later_segments() -> None:
    expired, future, behind, active = fates_of(log_of(3 * DAY_MS, -DAY_MS, 5 * DAY_MS, DAY_MS), DAYS)
    assert NEXT_CHECK in expired.why
    assert "a record has a timestamp 1 day 0 h in the future" in future.why and "until 2027-01-18" in future.why
    assert behind.until == active.until == future.until == NOW + 3 * DAY_MS
    assert "waits for the older segment at 10, until 2027-01-18" in behind.why
    assert active.why.startswith("active segment; waits for the older")


def test_record_from_the_future_is_reported_with_its_offset_if_known() -> None:
    (segment,) = log_of(-DAY_MS)
    (fate,) = fates_of([segment._replace(newest_offset=7)], DAYS)
    assert "the record at 7 has a timestamp 1 day 0 h in the future" in fate.why


def test_record_from_the_far_future_retains_segments_forever() -> None:
    future, behind = fates_of(log_of(-(2**62), 3 * DAY_MS), DAYS)
    assert "it retains the segment forever" in future.why
    assert "waits for the older segment at 0, forever" in behind.why


def test_retention_bytes_deletes_a_segment_with_a_future_record() -> None:
    bounded = DAYS._replace(retention_bytes=2500)
    future, behind, active = fates_of(log_of(-(2**62), 3 * DAY_MS, 0), bounded)
    assert "forever, or after 500 B more are written (retention.bytes)" in future.why
    assert "or after 1.5 KiB more are written" in behind.why
    assert "2.4 KiB" in active.why
    (first, *_) = fates_of(log_of(-(2**62), 3 * DAY_MS, 0, 0), bounded)
    assert NEXT_CHECK in first.why and "retention.bytes" in first.why


@pytest.mark.parametrize(
    ("retention", "text"),
    [
        (Retention(-1, -1, deletes=True, compacts=False), "never deleted"),
        (Retention(-1, 4000, deletes=True, compacts=False), "deleted after 2.0 KiB more are written"),
        (Retention(1, 1, deletes=False, compacts=True), "cleanup.policy is compact"),
        (Retention(1, 1, deletes=False, compacts=False), "cleanup.policy is empty"),
        (Retention(HOUR_MS, -1, deletes=True, compacts=True), CLEANERS),
    ],
)
def test_other_reasons_for_retention_are_explained(retention: Retention, text: str) -> None:
    assert text in fates_of(log_of(DAY_MS, DAY_MS, 0), retention)[0].why


def test_compacted_segment_below_the_log_start_offset_is_deleted() -> None:
    compacted = Retention(-1, -1, deletes=False, compacts=True)
    below, partly, _ = fates_of(log_of(0, 0, 0), compacted, start=15)
    assert "below the log start offset 15" in below.why and CLEANERS in below.why
    assert "cleanup.policy is compact" in partly.why


def test_uncommitted_segment_is_retained() -> None:
    safe, waiting, _ = fates_of(log_of(3 * DAY_MS, 3 * DAY_MS, 0), DAYS, high_watermark=15)
    assert NEXT_CHECK in safe.why
    assert "from offset 15 on are not committed yet" in waiting.why


def test_active_segment_may_be_empty() -> None:
    sealed, active = log_of(0, 0)
    empty = active._replace(size=0, end_offset=active.base_offset)
    assert fates_of([sealed, empty], DAYS)[1] == Fate(None, "active segment, empty")


class Stub(NamedTuple):
    """The parts of a segment that retention uses."""

    base_offset: int
    size: int
    newest: int
    path: str = "/nowhere"

    def largest(self) -> tuple[int, int]:
        return self.newest, 0


@given(
    ages=st.lists(st.integers(-5, 20), min_size=1, max_size=6),
    sizes=st.lists(st.integers(1, 9), min_size=6, max_size=6),
    retention=st.builds(Retention, st.integers(-1, 15), st.integers(-1, 30), st.booleans(), st.booleans()),
    start=st.integers(0, 60),
    behind=st.integers(0, 25),
    is_empty=st.booleans(),
)
def test_segments_due_for_deletion_match_retention(
    *, ages: list[int], sizes: list[int], retention: Retention, start: int, behind: int, is_empty: bool
) -> None:
    facts = [one._replace(size=size) for one, size in zip(log_of(*ages), sizes, strict=False)]
    if is_empty:
        facts[-1] = facts[-1]._replace(size=0, end_offset=facts[-1].base_offset)
    end = facts[-1].end_offset
    high_watermark = max(end - behind, 0)
    start = min(start, high_watermark)
    due = [fate.is_due for fate in fates(facts, retention, Bounds(start, high_watermark), NOW)]
    config = LogConfig(
        retention_ms=retention.retention_ms,
        retention_bytes=retention.retention_bytes,
        cleanup_delete=retention.deletes,
        cleanup_compact=retention.compacts,
    )
    stubs = [Stub(one.base_offset, one.size, one.newest) for one in facts]
    bounds = LogBounds(Offset(start), Offset(end), Offset(high_watermark))
    count = expired_segments(cast("list[Segment]", stubs), config, TimestampMs(NOW), bounds)
    assert due == [retention.goes in fate.why for fate in fates(facts, retention, Bounds(start, high_watermark), NOW)]
    assert due == [True] * count + [False] * (len(facts) - count)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (999, "0 s"),
        (61_000, "1 min 1 s"),
        (HOUR_MS + 59_000, "1 h 0 min"),
        (DAY_MS, "1 day 0 h"),
        (364 * DAY_MS + 23 * HOUR_MS, "364 days 23 h"),
        (800 * DAY_MS, "2 years"),
    ],
)
def test_ages_are_formatted(ms: int, text: str) -> None:
    assert age_text(ms) == text
