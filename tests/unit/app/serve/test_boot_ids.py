"""Detection of data directories that may have lost unsynced writes."""

from __future__ import annotations

import pytest

from odradek.app.serve.boot_ids import may_have_lost
from odradek.log.directory.directory import NO_LOCK, LogDirectory
from sim.simdisk import SimDisk

BOOT, NEXT = "first", "second"


def directory(disk: SimDisk, *, clean: bool = False) -> LogDirectory:
    found = LogDirectory(disk, "", None, None, NO_LOCK)
    found.clean_shutdown = clean
    return found


def test_process_crash_loses_no_writes() -> None:
    disk = SimDisk()
    may_have_lost([directory(disk)], BOOT)
    assert not may_have_lost([directory(disk)], BOOT)


@pytest.mark.parametrize(("clean", "lost"), [(False, True), (True, False)])
def test_machine_restart_may_lose_writes_unless_the_stop_was_clean(clean: bool, lost: bool) -> None:
    disk = SimDisk()
    may_have_lost([directory(disk)], BOOT)
    assert may_have_lost([directory(disk, clean=clean)], NEXT) is lost
    assert not may_have_lost([directory(disk)], NEXT), "it is known of this boot now"


def test_new_data_directory_may_have_lost_writes() -> None:
    disk = SimDisk()
    may_have_lost([directory(disk)], BOOT)
    assert may_have_lost([directory(disk), directory(SimDisk())], BOOT)


def test_unknown_boot_id_may_always_lose_writes() -> None:
    disk = SimDisk()
    may_have_lost([directory(disk)], None)
    assert may_have_lost([directory(disk)], None)


def test_failure_to_store_the_boot_id_does_not_prevent_the_start() -> None:
    disk = SimDisk()
    disk.room = 0
    found = directory(disk)
    assert may_have_lost([found], BOOT)
    assert found.problems
