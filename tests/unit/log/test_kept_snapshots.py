"""Producer snapshots that replace deleted batches: durable before any of the batches is deleted."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from random import Random

import pytest
from simdisk import SimDisk, Stopped

from odradek.base.units import BrokerId, Offset, TimestampMs, TopicName, TopicPartition
from odradek.log.directory.directory import LogDirectory
from odradek.log.directory.directory_loading import open_log_directory
from odradek.log.directory.future_log import producers_at_first, take_over
from odradek.log.files.disk import DiskFailed
from odradek.log.files.log_config import LogConfig
from odradek.log.files.log_file_names import SNAPSHOT, segment_stem
from odradek.log.log.durability import flush_now
from odradek.log.log.log import Log
from odradek.log.log.retention import advance_start, delete_below_start
from odradek.log.removal.reaper import RETRY_MS
from support.cleaning import Writer
from support.logs import T0

NAME = TopicPartition(TopicName("t"), 0)
CONFIG = LogConfig(file_delete_delay_ms=0)
POWER_FAILURES = 4


def open_directory(disk: SimDisk, path: str = "/data") -> LogDirectory:
    return open_log_directory(disk, path, T0, broker_id=BrokerId(1), cluster_id=None, config_of=lambda _: CONFIG)


def create_trimmed_log(disk: SimDisk) -> tuple[LogDirectory, Log]:
    """Return a log with producers known only below its new start; the next round deletes the files."""
    directory = open_directory(disk)
    log = directory.create(NAME, None, CONFIG, T0)
    writer = Writer(log, Random(1))
    for _ in range(2):
        writer.write(10)
        log.roll(T0)
        flush_now(log)
    start = log.segments[-1].base_offset
    log.snapshots.delete([start])  # As if the disk had refused it at the roll of the segment.
    flush_now(log)
    move_start(directory, log, start)
    assert delete_below_start(log, T0) > 1
    directory.checkpoints.write_now()
    return directory, log


def move_start(directory: LogDirectory, log: Log, start: Offset) -> None:
    """Move the log start, as core/partition/log_starts."""
    write = directory.checkpoints.begin_starts({NAME: start})
    write.run()
    directory.checkpoints.end_starts(write)
    advance_start(log, start)


def producer_state(log: Log) -> dict[int, tuple[object, ...]]:
    return {one.id: (one.epoch, *[sent[:3] for sent in one.batches[-1:]], one.first_offset) for one in log.producers}


def after_power_failures(disk: SimDisk) -> list[Log]:
    return [open_directory(disk.crash(Random(seed))).logs[NAME] for seed in range(POWER_FAILURES)]


@pytest.mark.slow
@pytest.mark.parametrize("reorders", [False, True])
def test_snapshot_is_durable_before_batches_are_deleted(reorders: bool) -> None:
    """Its content and its name: changes of a directory may reach the disk in another order."""
    for call in count():
        disk = SimDisk()
        disk.reorders = reorders
        directory, log = create_trimmed_log(disk)
        disk.stop_at(call)
        with suppress(Stopped):
            directory.reaper.reap(T0)
        is_through = disk.calls < call
        for again in after_power_failures(disk):
            assert producer_state(again) == producer_state(log)
        if is_through:
            return


def test_failed_sync_of_a_snapshot_is_not_followed_by_an_empty_one() -> None:
    """The kernel has dropped the data, and reports no error in the next round."""
    disk = SimDisk()
    disk.drops_unsynced = True
    directory, log = create_trimmed_log(disk)
    disk.fails_to_sync = True
    with pytest.raises(DiskFailed):
        directory.reaper.reap(T0)
    disk.fails_to_sync = False
    for number in range(3):
        directory.reaper.reap(TimestampMs(T0 + number * RETRY_MS))
    assert not directory.reaper.is_retiring(log.directory)
    for again in after_power_failures(disk):
        assert producer_state(again) == producer_state(log)


@pytest.mark.parametrize("caches_dropped", [True, False])
def test_next_process_syncs_a_snapshot_again(caches_dropped: bool) -> None:
    """It reads data that is not on the disk, and makes it durable before it deletes the batches."""
    disk = SimDisk()
    disk.drops_unsynced, disk.caches_dropped = True, caches_dropped
    directory, log = create_trimmed_log(disk)
    disk.fails_to_sync = True
    with pytest.raises(DiskFailed):
        directory.reaper.reap(T0)
    disk.fails_to_sync = False
    disk = disk.kill()
    open_directory(disk)
    for again in after_power_failures(disk):
        assert producer_state(again) == producer_state(log)


def test_corrupt_snapshot_keeps_the_batches() -> None:
    """As after a failed sync and memory pressure: the next start writes the snapshot again."""
    disk = SimDisk()
    directory, log = create_trimmed_log(disk)
    file = disk.open(f"{log.directory}/{segment_stem(Offset(log.start_offset))}{SNAPSHOT}")
    file.write(0, bytes(file.size()))
    with pytest.raises(DiskFailed, match="version 0"):
        directory.reaper.reap(T0)
    for again in after_power_failures(disk):
        assert producer_state(again) == producer_state(log)


@pytest.mark.parametrize("reorders", [False, True])
def test_reset_log_has_no_old_snapshots(reorders: bool) -> None:
    """Open transactions of the old log would be open in the new one, and would never end."""
    rewritten = 0
    for seed in range(12):
        disk = SimDisk()
        disk.reorders = reorders
        directory = open_directory(disk)
        log = directory.create(NAME, None, CONFIG, T0)
        writer = Writer(log, Random(1))
        writer.write(20)
        log.roll(T0)
        flush_now(log)
        writer.write(10)  # Other replicas have this record, so it may be deleted; here it is lost.
        move_start(directory, log, log.end_offset)
        disk = disk.crash(Random(seed))
        if open_directory(disk).logs[NAME].size == 0:
            rewritten += 1
            for again in after_power_failures(disk):
                assert not list(again.producers)
    assert rewritten > 3


def test_snapshot_is_durable_before_a_log_moves_to_another_directory() -> None:
    """The copy starts with the original's first segment, and has nothing else of the data below it."""
    for seed in range(12):
        disk = SimDisk()
        directory, log = create_trimmed_log(disk)
        directory.reaper.reap(T0)
        flush_now(log)
        other = open_directory(disk, "/other")
        producers = producers_at_first(log)
        assert producers
        future = other.make_future(NAME, log, log.segments[0].base_offset, producers, "unique")
        take_over(future, log)
        flush_now(future)
        other.adopt_future(NAME, future)
        again = open_directory(disk.crash(Random(seed)), "/other").logs[NAME]
        assert producer_state(again) == producer_state(log)
