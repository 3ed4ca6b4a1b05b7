"""Rolls, truncations and retention that are interrupted by the disk, the process or the power: synced data is kept."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from itertools import count, pairwise
from random import Random

import pytest
from simdisk import SimDisk, Stopped

from odradek.base.units import BrokerId, Offset, TimestampMs, TopicName, TopicPartition
from odradek.log.compaction.replacement import may_be_cleaned
from odradek.log.directory.directory import LogDirectory
from odradek.log.directory.directory_loading import open_log_directory
from odradek.log.files.disk import DiskFailed
from odradek.log.files.log_config import LogConfig
from odradek.log.files.log_file_names import RECOVERY_POINTS
from odradek.log.log.durability import close_log, flush_now, is_flushed
from odradek.log.log.log import Log
from odradek.log.log.retention import advance_start, delete_below_start
from odradek.log.log.truncation import truncate_fully, truncate_to
from odradek.log.segment.checkpoints import read_offsets
from support.invariants import check
from support.logs import T0, put, stored

NAME = TopicPartition(TopicName("t"), 0)
CONFIG = LogConfig(segment_bytes=250, file_delete_delay_ms=0)
POWER_FAILURES = 12


def open_directory(disk: SimDisk, config: LogConfig = CONFIG) -> LogDirectory:
    return open_log_directory(disk, "/data", T0, broker_id=BrokerId(1), cluster_id=None, config_of=lambda _: config)


def create_directory(disk: SimDisk) -> LogDirectory:
    """Return a fully synced log of several segments, with its checkpoint."""
    directory = open_directory(disk)
    log = directory.create(NAME, None, CONFIG, T0)
    for number in range(12):
        put(log, b"%d" % number)
    flush_now(log)
    assert len(log.segments) > 3
    directory.checkpoints.write_now()
    return directory


def power_failures(disk: SimDisk) -> list[Log]:
    """Return the log in several possible states after a power failure."""
    return [open_directory(disk.crash(Random(seed))).logs[NAME] for seed in range(POWER_FAILURES)]


@pytest.mark.parametrize("reorders", [False, True])
def test_failed_roll_leaves_no_segment_behind(reorders: bool) -> None:
    """It would be taken for the last one, and hide records appended to the segment before it."""
    for call in count():
        disk = SimDisk()
        disk.reorders = reorders
        directory = create_directory(disk)
        log = directory.logs[NAME]
        put(log, b"in the open segment")
        flush_now(log)
        disk.fail_call(call)
        try:
            log.roll(T0)
        except DiskFailed:
            is_through = False
        else:
            is_through = True
        disk.fail_call(-1)
        put(log, b"behind it")
        flush_now(log)
        directory.checkpoints.write_now()
        for again in power_failures(disk):
            assert (again.end_offset, stored(again)) == (log.end_offset, stored(log))
        if is_through:
            return


@pytest.mark.slow
def test_records_after_an_interrupted_reset_are_checked() -> None:
    """The log may then end anywhere: the checkpoint no longer guarantees the data there."""
    for call in count():
        disk = SimDisk()
        log = create_directory(disk).logs[NAME]
        disk.stop_at(call)
        try:
            truncate_fully(log, Offset(40), T0)
        except Stopped:
            is_through = False
        else:
            is_through = True
        disk = disk.kill()
        log = open_directory(disk).logs[NAME]
        log.config = LogConfig(segment_bytes=1000)
        for _ in range(6):
            put(log, bytes(300))
        for again in power_failures(disk):
            runs = stored(again)
            assert all(one[1] + 1 == other[0] for one, other in pairwise(runs)), runs
        if is_through:
            return


def test_failed_sync_of_a_truncation_is_remembered() -> None:
    """The kernel may have dropped earlier appends, and the next sync would report them as durable."""
    disk = SimDisk()
    disk.drops_unsynced = True
    log = create_directory(disk).logs[NAME]
    put(log, b"a")
    put(log, b"b")
    disk.fails_to_sync = True
    truncate_to(log, Offset(log.end_offset - 1), T0)
    disk.fails_to_sync = False
    assert log.recovery_point < log.end_offset
    for operation in (lambda: flush_now(log), log.settle, lambda: put(log, b"c"), lambda: close_log(log, T0)):
        with pytest.raises(DiskFailed, match="an earlier flush failed"):
            operation()


@pytest.mark.parametrize("cut", [truncate_to, truncate_fully])
def test_failed_sync_is_resolved_when_its_segment_is_removed(cut: Callable[..., object]) -> None:
    disk = SimDisk()
    disk.drops_unsynced = True
    log = create_directory(disk).logs[NAME]
    put(log, b"a")
    put(log, b"b")
    disk.fails_to_sync = True
    truncate_to(log, Offset(log.end_offset - 1), T0)
    disk.fails_to_sync = False
    cut(log, Offset(log.segments[-1].base_offset - 1), T0)
    put(log, b"c")
    flush_now(log)
    for again in power_failures(disk):
        assert (again.end_offset, stored(again)) == (log.end_offset, stored(log))


def test_truncation_without_a_free_descriptor_is_retried() -> None:
    for call in count():
        disk = SimDisk()
        log = create_directory(disk).logs[NAME]
        put(log, b"a")
        disk.fail_call(call, errno.EMFILE)
        try:
            truncate_to(log, Offset(log.end_offset - 1), T0)
        except DiskFailed:
            continue
        is_through = disk.is_failing
        disk.fail_call(-1)
        put(log, b"b")
        flush_now(log)
        assert is_flushed(log)
        if is_through:
            return


def test_failed_append_leaves_no_index_entries() -> None:
    """The first append after a start reads files; the next one has the position of the failed one."""
    for call in count():
        disk, config = SimDisk(), LogConfig(index_interval_bytes=0)
        directory = open_directory(disk, config)
        log = directory.create(NAME, None, config, T0)
        for number in range(4):
            put(log, b"%d" % number, at=T0 + number)
        assert not directory.close(T0, {})
        disk = disk.kill()
        log = open_directory(disk, config).logs[NAME]
        disk.fail_call(call)
        try:
            put(log, b"refused", at=T0 + 9)
        except DiskFailed:
            put(log, b"x", b"y", at=T0 + 5)
            check(log)
        else:
            return


def test_new_log_ignores_the_checkpoint_of_a_deleted_log() -> None:
    """Even if the disk had no room for a new checkpoint at first: otherwise the new log's data is not checked."""
    for call in count():
        disk = SimDisk()
        directory = create_directory(disk)
        directory.delete(NAME, T0)
        disk.fail_call(call, errno.ENOSPC)
        try:
            directory.create(NAME, None, CONFIG, T0)
        except DiskFailed:
            is_through = False
        else:
            is_through = True
        disk.fail_call(-1)
        log = directory.create(NAME, None, CONFIG, T0)
        put(log, b"of the new log")
        flush_now(log)
        for again in power_failures(disk):
            assert again.recovery_point <= log.end_offset
            assert (again.end_offset, stored(again)) == (log.end_offset, stored(log))
        assert not read_offsets(disk, f"/data/{RECOVERY_POINTS}")
        if is_through:
            return


def test_no_pass_starts_while_deleted_segments_may_return() -> None:
    """It would omit information that their records need, such as aborts."""
    disk = SimDisk()
    directory = create_directory(disk)
    log = directory.logs[NAME]
    assert may_be_cleaned(log)
    advance_start(log, Offset(6))
    assert delete_below_start(log, T0)
    assert not may_be_cleaned(log)
    with suppress(DiskFailed):
        disk.fail_call(0)
        directory.reaper.reap(T0)
    assert not may_be_cleaned(log), "the disk has refused it"
    for number in range(1, 3):
        directory.reaper.reap(TimestampMs(T0 + number * 10_000))
    assert may_be_cleaned(log)
