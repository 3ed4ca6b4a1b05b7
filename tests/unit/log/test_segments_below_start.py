"""Segments below the log start that return after a power failure: they do not affect the log above the start."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from random import Random

import pytest
from simdisk import SimDisk, Stopped

from odradek.base.units import BrokerId, Offset, TopicName, TopicPartition
from odradek.log.directory.directory import LogDirectory
from odradek.log.directory.directory_loading import open_log_directory
from odradek.log.files.log_config import LogConfig
from odradek.log.files.log_file_names import SNAPSHOT, segment_stem
from odradek.log.log.durability import flush_now
from odradek.log.log.log import Log
from odradek.log.log.retention import advance_start, delete_below_start
from support.cleaning import Writer, committed, compact, latest
from support.invariants import check
from support.logs import T0, put, stored

NAME = TopicPartition(TopicName("t"), 0)
DELETES = LogConfig(segment_bytes=250, file_delete_delay_ms=0)
COMPACTS = LogConfig(segment_bytes=800, file_delete_delay_ms=0, cleanup_compact=True, cleanup_delete=False)
POWER_FAILURES = 12


def open_directory(disk: SimDisk, config: LogConfig) -> LogDirectory:
    return open_log_directory(disk, "/data", T0, broker_id=BrokerId(1), cluster_id=None, config_of=lambda _: config)


def create_log(config: LogConfig) -> tuple[SimDisk, LogDirectory, Log]:
    disk = SimDisk()
    disk.reorders = True
    directory = open_directory(disk, config)
    return disk, directory, directory.create(NAME, None, config, T0)


def cut_below(directory: LogDirectory, log: Log, start: Offset) -> None:
    """As core/partition/log_starts: the start is durable before the segments go; their files go in the reaper's
    round."""
    write = directory.checkpoints.begin_starts({NAME: start})
    write.run()
    directory.checkpoints.end_starts(write)
    advance_start(log, start)
    assert delete_below_start(log, T0) > 1


def is_reaped(directory: LogDirectory, disk: SimDisk, call: int) -> bool:
    """Return whether the round completes before the power fails at that call."""
    disk.stop_at(call)
    try:
        directory.reaper.reap(T0)
    except Stopped:
        return False
    finally:
        disk.stop_at(None)
    return True


def after_power_failures(disk: SimDisk, config: LogConfig) -> list[Log]:
    return [open_directory(disk.crash(Random(seed)), config).logs[NAME] for seed in range(POWER_FAILURES)]


def producer_state(log: Log) -> dict[int, tuple[object, ...]]:
    return {one.id: (one.epoch, *[sent[:3] for sent in one.batches[-1:]], one.first_offset) for one in log.producers}


def test_partly_deleted_segments_are_not_a_hole() -> None:
    """The recovery point is not in a checkpoint yet, so all is scanned: the log was truncated at a missing segment."""
    for call in count():
        disk, directory, log = create_log(DELETES)
        for number in range(24):
            put(log, b"%d" % number)
        flush_now(log)
        cut_below(directory, log, log.segments[4].base_offset)
        is_through = is_reaped(directory, disk, call)
        for again in after_power_failures(disk, DELETES):
            check(again)
            assert (again.start_offset, again.end_offset) == (log.start_offset, log.end_offset)
            assert stored(again) == stored(log)
            assert again.segments[0].base_offset == log.start_offset, "nothing is left below it"
        if is_through:
            return


@pytest.mark.slow
def test_log_start_is_that_of_the_first_segment_without_a_checkpoint() -> None:
    """On a full disk the start cannot be written: segments that return after a power failure leave no hole."""
    for call in count():
        disk, directory, log = create_log(DELETES)
        for number in range(24):
            put(log, b"%d" % number)
        flush_now(log)
        before, begin = stored(log), log.segments[4].base_offset
        advance_start(log, begin)
        assert delete_below_start(log, T0, is_start_durable=False) == 4
        is_through = is_reaped(directory, disk, call)
        for again in after_power_failures(disk, DELETES):
            check(again)
            assert again.end_offset == log.end_offset
            assert stored(again) == [one for one in before if one[0] >= again.start_offset]
            assert again.start_offset <= begin
        if is_through:
            return


@pytest.mark.slow
def test_producers_are_loaded_from_the_snapshot_kept_by_retention() -> None:
    """Not from the segments below it, some of which may be deleted already."""
    for call in count():
        disk, directory, log = create_log(COMPACTS)
        Writer(log, Random(3)).write(40)
        log.roll(T0)
        flush_now(log)
        cut_below(directory, log, log.segments[-1].base_offset)
        is_through = is_reaped(directory, disk, call)
        for again in after_power_failures(disk, COMPACTS):
            assert producer_state(again) == producer_state(log)
        if is_through:
            return


def test_unsynced_segments_below_the_start_are_not_compacted() -> None:
    """Other replicas had the records, so they were committed and deletable; a pass would read invalid batches."""
    for seed in range(10):
        disk, directory, log = create_log(COMPACTS)
        writer = Writer(log, Random(seed))
        writer.write(40)
        cut_below(directory, log, log.segments[-1].base_offset)
        writer.write(40)
        log.roll(T0)
        flush_now(log)
        directory.checkpoints.write_now()
        again = open_directory(disk.crash(Random(seed)), COMPACTS).logs[NAME]
        assert committed(again) == committed(log)
        assert again.segments[0].base_offset == log.segments[0].base_offset
        compact(again)
        assert latest(committed(again)) == latest(committed(log))


@pytest.mark.slow
def test_interrupted_start_is_completed_by_the_next() -> None:
    """Also without the snapshot: it is created, and durable before the deletion of its sources."""
    for has_snapshot in (True, False):
        for call in count():
            disk, directory, log = create_log(COMPACTS)
            Writer(log, Random(5)).write(30)
            log.roll(T0)
            flush_now(log)
            cut_below(directory, log, log.segments[-1].base_offset)
            disk = disk.crash(Random(0))
            if not has_snapshot:
                disk.unlink(f"{log.directory}/{segment_stem(log.start_offset)}{SNAPSHOT}")
            disk.stop_at(call)
            with suppress(Stopped):
                open_directory(disk, COMPACTS)
            is_through = disk.calls < call
            disk.stop_at(None)
            for again in after_power_failures(disk, COMPACTS):
                check(again)
                assert producer_state(again) == producer_state(log)
                assert again.segments[0].base_offset == log.start_offset
            if is_through:
                break
