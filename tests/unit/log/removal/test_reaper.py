"""The reaper: failed removals are repeated in a later round, and reported once."""

from __future__ import annotations

import pytest
from simdisk import SimDisk

from odradek.base.units import Offset, TimestampMs
from odradek.log.files.disk import DiskFailed
from odradek.log.files.log_config import LogConfig
from odradek.log.log.log import Log
from odradek.log.log.retention import advance_start, delete_old_segments
from odradek.log.removal.reaper import RETRY_MS, Reaper
from support.logs import T0, put


def at(ms: int) -> TimestampMs:
    return TimestampMs(T0 + ms)


def test_failed_removal_is_repeated_after_a_pause_and_reported_once() -> None:
    disk = SimDisk()
    disk.create("/gone")
    disk.create("/other")
    reaper = Reaper(disk)
    reaper.add_file("/gone", T0)
    reaper.add_file("/other", T0)
    disk.fail_call(0)
    first = reaper.begin_reap(T0)
    assert first is not None
    assert reaper.begin_reap(T0) is None, "one round at a time"
    with pytest.raises(DiskFailed):
        first.run()
    assert [entry.name for entry in disk.entries("")] == ["gone"], "what can be done is done"
    assert reaper.begin_reap(at(1)) is None
    disk.fail_call(0)
    second = reaper.begin_reap(at(1 + RETRY_MS))
    assert second is not None
    second.run()
    assert reaper.begin_reap(at(2 + 2 * RETRY_MS)) is None
    third = reaper.begin_reap(at(2 + 4 * RETRY_MS))
    assert third is not None
    third.run()
    assert disk.entries("") == []


def test_log_uses_a_given_empty_reaper() -> None:
    """An empty reaper is falsy; by mistake, the files of its log were never unlinked."""
    disk = SimDisk()
    disk.make_directory("/d/t-0")
    reaper = Reaper(disk)
    log = Log.open(disk, "/d/t-0", LogConfig(), T0, reaper=reaper)
    put(log, b"x")
    log.roll(T0)
    advance_start(log, Offset(1))
    assert delete_old_segments(log, T0, Offset(1)) == 1
    assert len(reaper) == 1
