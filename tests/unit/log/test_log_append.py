"""Appends: offsets, rolls, limits, failures, and rules for leaders and followers."""

from __future__ import annotations

import errno
import resource
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from simdisk import SimDisk

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import INT32_MAX, LeaderEpoch, Offset, TimestampMs
from odradek.log.files.disk import DiskFailed, RealDisk
from odradek.log.files.log_config import LogConfig
from odradek.log.log.durability import close_log
from odradek.log.log.log import Log
from odradek.log.segment.checkpoints import read_epochs
from odradek.record.record_batch import Batch, iter_batches
from odradek.record.records import decode
from support.invariants import check
from support.logs import T0, batch, put, stored

CONFIG = LogConfig()


def new_log(config: LogConfig = CONFIG, disk: SimDisk | None = None) -> Log:
    disk = disk or SimDisk()
    disk.make_directory("/d/t-0")
    return Log.open(disk, "/d/t-0", config, T0)


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_offsets_and_epoch_are_stamped() -> None:
    log = new_log()
    first = put(log, b"a", b"b", epoch=4)
    second = put(log, b"c", epoch=5)
    assert (first.base_offset, first.last_offset, first.is_log_append_time) == (0, 1, False)
    assert (second.base_offset, second.last_offset) == (2, 2)
    assert (log.start_offset, log.end_offset, log.recovery_point) == (0, 3, 0)
    found = list(iter_batches(log.read(Offset(0), 10_000, Offset(3)).read()))
    assert [(b.base_offset, b.leader_epoch, b.is_intact) for b in found] == [(0, 4, True), (2, 5, True)]
    assert log.epochs.entries == [(4, 0), (5, 2)]


def test_several_batches_are_appended_together() -> None:
    log = new_log()
    log.append([batch(b"a", b"b"), batch(b"c"), batch(b"d")], LeaderEpoch(0), T0)
    assert log.end_offset == 4
    assert stored(log) == [(0, 1), (2, 2), (3, 3)]


def test_log_append_time_replaces_record_timestamps() -> None:
    log = new_log(replace(CONFIG, log_append_time=True))
    now = TimestampMs(T0 + 5000)
    log.append(batch(b"a", b"b"), LeaderEpoch(0), now)
    (found,) = iter_batches(log.read(Offset(0), 1000, Offset(2)).read())
    assert found.is_intact
    assert [record.timestamp for record in decode(found)] == [now, now]


def test_too_large_batch_is_refused_and_not_written() -> None:
    log = new_log(LogConfig(segment_bytes=1000, max_message_bytes=500))
    with pytest.raises(Refused) as refused:
        put(log, b"x" * 500)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(Refused) as refused:
        log.append([batch(b"x" * 300) for _ in range(3)], LeaderEpoch(0), T0)
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert (log.end_offset, log.size) == (0, 0)
    put(log, b"x" * 300)
    assert log.end_offset == 1


# ---------------------------------------------------------------- rolls


def test_log_rolls_by_size() -> None:
    log = new_log(LogConfig(segment_bytes=300))
    for _ in range(5):
        put(log, b"x" * 50)
    assert all(segment.size <= 300 for segment in log.segments)
    assert bases(log) == [0, 2, 4]
    assert stored(log) == [(n, n) for n in range(5)]


def test_log_rolls_by_record_time_not_by_the_clock() -> None:
    log = new_log(LogConfig(segment_ms=1000))
    put(log, b"a", at=T0)
    put(log, b"b", at=T0 + 1000)
    put(log, b"c", at=T0 + 1001)
    put(log, b"d", at=T0 - 50_000)  # Late, but not later than the first record of its segment.
    assert bases(log) == [0, 2]
    log.append(batch(b"e", at=T0 + 1500), LeaderEpoch(0), TimestampMs(T0 + 10_000_000))
    assert bases(log) == [0, 2]


def test_log_rolls_by_the_clock_if_records_have_no_timestamp() -> None:
    log = new_log(LogConfig(segment_ms=1000))
    for now in (0, 1000, 1001):
        log.append(batch(b"a", at=-1, step=0), LeaderEpoch(0), TimestampMs(T0 + now))
    assert bases(log) == [0, 2]


def test_roll_jitter_is_constant_per_partition() -> None:
    disk = SimDisk()
    waits = set()
    for number in range(8):
        disk.make_directory(f"/d/t-{number}")
        log = Log.open(disk, f"/d/t-{number}", LogConfig(segment_ms=1000, segment_jitter_ms=900), T0)
        waited = 0
        while len(log.segments) == 1:
            put(log, b"a", at=T0 + waited)
            waited += 20
        waits.add(waited)
    assert len(waits) > 3
    assert min(waits) > 100
    assert max(waits) < 1100


@pytest.mark.parametrize(("index_bytes", "expected"), [(16, [0, 1, 2, 3, 4]), (24, [0, 2, 4]), (36, [0, 3])])
def test_log_rolls_when_an_index_is_full(index_bytes: int, expected: list[int]) -> None:
    """The last time entry is reserved for the end; the first batch of a segment makes no entry."""
    log = new_log(LogConfig(index_interval_bytes=0, segment_index_bytes=index_bytes))
    for number in range(5):
        put(log, b"x", at=T0 + number)
    assert bases(log) == expected


def test_log_rolls_before_an_offset_too_far_for_the_index() -> None:
    log = new_log()
    near, far = batch(b"a"), batch(b"b")
    near.stamp(Offset(INT32_MAX - 1), LeaderEpoch(0))
    far.stamp(Offset(INT32_MAX + 1), LeaderEpoch(0))
    log.append_as_follower([near], T0)
    log.append_as_follower([far], T0)
    assert bases(log) == [0, INT32_MAX]
    assert log.end_offset == INT32_MAX + 2


def test_log_rolls_at_a_gap_too_large_for_an_index() -> None:
    log = new_log(LogConfig(index_interval_bytes=0))
    far = Offset(3_000_000_000)
    for offset in (far, far + 1, far + 2):
        made = batch(b"a")
        made.stamp(Offset(offset), LeaderEpoch(0))
        log.append_as_follower([made], T0)
    assert bases(log) == [0, far]
    (found,) = iter_batches(log.read(Offset(5), 1, log.end_offset).read())
    assert found.base_offset == far
    close_log(log, T0)


def test_an_empty_log_does_not_roll() -> None:
    log = new_log()
    log.roll(T0)
    assert bases(log) == [0]
    put(log, b"a")
    log.roll(T0)
    log.roll(T0)
    assert bases(log) == [0, 1]


def test_index_entries_are_spaced_and_end_with_the_greatest_time() -> None:
    disk = SimDisk()
    log = new_log(LogConfig(index_interval_bytes=200), disk)
    for number in range(6):
        put(log, b"x" * 50, at=T0 + number)
    size = log.size // 6
    log.roll(T0)
    assert [log.segments[0].offsets.entry(n) for n in range(2)] == [(2, 2 * size), (4, 4 * size)]
    assert [log.segments[0].times.entry(n) for n in range(3)] == [(T0 + 2, 2), (T0 + 4, 4), (T0 + 5, 5)]
    assert disk.size("/d/t-0/00000000000000000000.index") == 16
    assert disk.size("/d/t-0/00000000000000000000.timeindex") == 36


def test_preallocated_files_are_trimmed() -> None:
    disk = SimDisk()
    log = new_log(LogConfig(segment_bytes=5000, preallocate=True), disk)
    put(log, b"a")
    assert disk.size("/d/t-0/00000000000000000000.log") == 5000
    assert log.size < 200
    log.roll(T0)
    assert disk.size("/d/t-0/00000000000000000000.log") == log.size
    put(log, b"b")
    close_log(log, T0)
    again = Log.open(disk, "/d/t-0", CONFIG, T0, clean_shutdown=True)
    assert stored(again) == [(0, 0), (1, 1)]


# ---------------------------------------------------------------- failures


def test_append_on_a_full_disk_is_undone() -> None:
    disk = SimDisk()
    log = new_log(disk=disk)
    put(log, b"a")
    size = log.size
    disk.room = 20
    with pytest.raises(DiskFailed) as failed:
        put(log, b"b")
    assert failed.value.is_full
    assert (log.end_offset, log.size) == (1, size)
    assert disk.size("/d/t-0/00000000000000000000.log") == size
    disk.room = None
    put(log, b"c", b"d")
    assert stored(log) == [(0, 0), (1, 2)]


def test_append_on_a_full_disk_is_undone_on_real_files(tmp_path: Path) -> None:
    log = Log.open(RealDisk(), str(tmp_path), CONFIG, T0)
    put(log, b"a")
    size = log.size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, before[1]))
    try:
        with pytest.raises(DiskFailed):
            put(log, b"x" * 500)
        with pytest.raises(DiskFailed):
            log.append([batch(b"x" * 20), batch(b"y" * 20)], LeaderEpoch(0), T0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "00000000000000000000.log").stat().st_size == size
    put(log, b"b")
    assert stored(log) == [(0, 0), (1, 1)]


def test_roll_on_a_full_disk_can_be_retried() -> None:
    disk = SimDisk()
    log = new_log(LogConfig(segment_bytes=300, index_interval_bytes=0), disk)
    put(log, b"x" * 50)
    put(log, b"x" * 50)
    disk.room = 0
    with pytest.raises(DiskFailed):
        put(log, b"x" * 50)
    assert log.end_offset == 2
    disk.room = None
    put(log, b"x" * 50)
    assert bases(log) == [0, 2]
    assert stored(log) == [(0, 0), (1, 1), (2, 2)]


# ---------------------------------------------------------------- follower


def stamped(offset: int, epoch: int, *values: bytes) -> Batch:
    made = batch(*values)
    made.stamp(Offset(offset), LeaderEpoch(epoch))
    return made


@pytest.mark.parametrize("number", range(12))
def test_roll_for_a_gap_is_undone_if_no_batch_follows_it(number: int) -> None:
    disk = SimDisk()
    log = new_log(LogConfig(index_interval_bytes=0), disk)
    put(log, b"a")
    log.append_as_follower([stamped(1, 0, b"b")], T0)
    far = INT32_MAX + 7
    disk.fail_call(number, errno.ENOSPC)
    with suppress(DiskFailed):
        log.append_as_follower([stamped(far, 0, b"c")], T0)
    disk.fail_call(-1)
    if log.end_offset == 2:
        check(log)
        assert bases(log) == [0]
        put(log, b"d")  # As the leader by now.
        log.append_as_follower([stamped(far, 0, b"c")], T0)
        assert stored(log) == [(0, 0), (1, 1), (2, 2), (far, far)]
    check(log)
    close_log(log, T0)
    assert stored(Log.open(disk, "/d/t-0", LogConfig(), T0, clean_shutdown=True)) == stored(log)


def test_follower_keeps_the_leaders_offsets_and_epochs() -> None:
    log = new_log()
    log.append_as_follower([stamped(0, 3, b"a"), stamped(7, 3, b"b", b"c"), stamped(9, 5, b"d")], T0)
    assert log.end_offset == 10
    assert stored(log) == [(0, 0), (7, 8), (9, 9)]
    assert log.epochs.entries == [(3, 0), (5, 9)]
    for offset in range(10):
        (first, *_) = iter_batches(log.read(Offset(offset), 1, Offset(10)).read())
        assert first.base_offset == (0 if offset == 0 else 7 if offset < 9 else 9)


def test_follower_refuses_decreasing_offsets() -> None:
    log = new_log()
    log.append_as_follower([stamped(5, 0, b"a", b"b")], T0)
    for offset in (0, 5, 6):
        with pytest.raises(Refused) as refused:
            log.append_as_follower([stamped(offset, 0, b"c")], T0)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(Refused):
        log.append_as_follower([stamped(7, 0, b"a"), stamped(7, 0, b"b")], T0)
    assert stored(log)[-1:] == [(5, 6)]
    assert log.end_offset == 7


def test_failed_follower_append_leaves_no_epoch_beyond_the_end() -> None:
    """After a gap the epoch would start there, and be reported to followers with offsets that this log lacks."""
    disk = SimDisk()
    log = new_log(disk=disk)
    log.append_as_follower([stamped(0, 3, b"a")], T0)
    for calls_before in count():
        disk.fail_call(calls_before, errno.ENOSPC)
        try:
            log.append_as_follower([stamped(7, 4, b"b"), stamped(9, 5, b"c")], T0)
        except DiskFailed:
            assert log.epochs.entries == [(3, 0)]
            assert log.epochs.end_offset_for(LeaderEpoch(3), log.end_offset) == (3, log.end_offset)
            assert read_epochs(disk, log.directory) == [(3, 0)]
        else:
            disk.fail_call(-1)
            break
    assert log.epochs.entries == [(3, 0), (4, 7), (5, 9)]
