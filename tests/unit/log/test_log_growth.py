"""Cost of log operations, independent of the log's size: disk calls and visited segments are counted."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from simdisk import SimDisk

from odradek.base.units import NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs
from odradek.log.files.log_config import LogConfig
from odradek.log.log.durability import close_log, flush_now
from odradek.log.log.log import SEALED_OPEN_MAX, Log
from odradek.log.log.retention import advance_start, delete_below_start
from odradek.log.log.timestamp_search import UNKNOWN_MAX, begin_search, lookup_timestamp, note_searched
from odradek.log.log.truncation import truncate_to
from odradek.record.builder import encode_batch
from odradek.record.record_batch import Batch
from support.logs import T0, put

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=100)
FEW, MANY = 2 * UNKNOWN_MAX, 300  # Number of segments.


def log_of(segments: int) -> tuple[SimDisk, Log]:
    """Return a log whose last segment has just started; each batch has one record, 10 ms after the one before."""
    disk = SimDisk()
    disk.make_directory("/d/t-0")
    log = Log.open(disk, "/d/t-0", CONFIG, T0)
    while len(log.segments) < segments:
        put(log, b"some value", at=T0 + log.end_offset * 10)
    flush_now(log, T0)
    return disk, log


def reopen(disk: SimDisk, log: Log, *, cleanly: bool) -> Log:
    if cleanly:
        close_log(log, T0)
    return Log.open(disk, "/d/t-0", CONFIG, T0, recovery_point=log.end_offset, clean_shutdown=cleanly)


def calls_of(disk: SimDisk, work: Callable[[], object]) -> int:
    before = disk.calls
    work()
    return disk.calls - before


def test_append_cost_is_independent_of_the_number_of_segments() -> None:
    def costs(segments: int) -> list[int]:
        disk, log = log_of(segments)
        found = [calls_of(disk, lambda: put(log, b"some value", at=T0)) for _ in range(40)]
        assert len(log.segments) > segments + 2
        return found

    assert costs(FEW) == costs(MANY)


def test_read_cost_is_independent_of_the_position() -> None:
    def worst(segments: int) -> int:
        disk, log = log_of(segments)
        draw = Random(1)
        offsets = [Offset(draw.randrange(log.end_offset)) for _ in range(300)]
        return max(calls_of(disk, lambda at=at: log.read(at, 1, log.end_offset)) for at in offsets)

    assert worst(MANY) <= worst(FEW)


@pytest.mark.slow
@pytest.mark.parametrize("cleanly", [True, False])
def test_start_reads_only_the_last_segment(cleanly: bool) -> None:
    def cost(segments: int) -> int:
        disk, log = log_of(segments)
        return calls_of(disk, lambda: reopen(disk, log, cleanly=cleanly))

    assert cost(MANY) <= cost(FEW) < 60


def test_timestamp_lookup_cost_is_constant_after_the_first_lookup() -> None:
    def worst(segments: int) -> int:
        disk, log = log_of(segments)
        log = reopen(disk, log, cleanly=True)
        times = [TimestampMs(T0 + offset * 10 - 5) for offset in range(1, log.end_offset, 7)]
        for time in times:
            lookup_timestamp(log, time)
        for time in times:
            search = begin_search(log, time, Offset(0), log.end_offset)
            assert search is not None and len(search.segments) == 1
        greatest = begin_search(log, None, Offset(0), log.end_offset)
        assert greatest is not None and len(greatest.segments) <= 2
        return max(calls_of(disk, lambda time=time: lookup_timestamp(log, time)) for time in times)

    assert worst(MANY) <= worst(FEW)


def test_lookup_searches_few_unknown_segments() -> None:
    disk, log = log_of(MANY)
    log = reopen(disk, log, cleanly=True)
    for time in (T0, TimestampMs(T0 + log.end_offset * 5), TimestampMs(T0 + log.end_offset * 20)):
        search = begin_search(log, time, Offset(0), log.end_offset)
        assert search is not None and len(search.segments) <= UNKNOWN_MAX


@pytest.mark.parametrize("change", ["append", "truncate", "delete"])
def test_search_result_is_recorded_for_its_own_segment(change: str) -> None:
    """A log may be appended to, truncated and trimmed while a thread searches it."""
    disk, log = log_of(FEW)
    while log.segments[-1].size < log.segments[0].size:
        put(log, b"some value", at=T0 + log.end_offset * 10)
    log = reopen(disk, log, cleanly=True)
    search = begin_search(log, None, Offset(0), log.end_offset)
    assert search is not None
    search.run()
    if change == "delete":
        advance_start(log, log.segments[3].base_offset)
        assert delete_below_start(log, T0) == 3
    elif change == "truncate":
        truncate_to(log, log.segments[2].base_offset, T0)
        put(log, b"some value", at=T0 + 10_000_000)
    else:
        put(log, b"some value", at=T0 + 10_000_000)
    note_searched(log, search)
    last = log.end_offset - 1
    found = lookup_timestamp(log, TimestampMs(T0 + last * 10))
    assert found is not None and found.offset == last


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
def test_lookup_finds_the_first_record_whatever_is_known(seed: int) -> None:
    draw = Random(seed)
    disk, log = log_of(1)
    times: list[int] = []
    for _ in range(draw.randrange(20, 400)):
        times.append(draw.choice([NO_TIMESTAMP, *([T0 + draw.randrange(500) + len(times)] * 9)]))
        records = encode_batch([(None, b"some value", (), TimestampMs(times[-1]))])
        log.append(Batch.checked(memoryview(records)), LeaderEpoch(0), T0)
    log = reopen(disk, log, cleanly=draw.random() < 0.7)
    advance_start(log, Offset(draw.randrange(len(times))))
    for _ in range(60):
        timestamp = TimestampMs(T0 + draw.randrange(-10, 900))
        end = Offset(draw.randrange(log.start_offset, log.end_offset + 1))
        inside = [(offset, time) for offset, time in enumerate(times) if log.start_offset <= offset < end]
        first = next((offset for offset, time in inside if time >= timestamp), None)
        assert search_below(log, timestamp, end) == first
        largest = max(inside, key=lambda one: (one[1], -one[0]), default=(0, NO_TIMESTAMP))
        assert search_below(log, None, end) == (largest[0] if largest[1] >= 0 else None)


def search_below(log: Log, timestamp: TimestampMs | None, end: Offset) -> int | None:
    """Return the offset found below `end`, and record search results as a broker does."""
    start = Offset(0)
    while (search := begin_search(log, timestamp, start, end)) is not None:
        found = search.run()
        note_searched(log, search)
        if found is None or hasattr(found, "offset"):
            return None if found is None else found.offset
        assert found.start > start, "each step gets on"
        start = found.start
    return None


def test_read_segments_keep_no_cache() -> None:
    _, log = log_of(MANY)
    for segment in log.segments[:-1]:
        log.read(Offset(segment.base_offset + 5), 1, log.end_offset)
        log.read(Offset(segment.base_offset + 2), 1, log.end_offset)
    kept = [one for one in log.segments if one.offsets._blocks or one.times._blocks or one.is_open]
    assert 1 < len(kept) <= SEALED_OPEN_MAX + 1
