"""Whether a data directory may lack what was written to it."""

from __future__ import annotations

import pytest

from odradek.app.serve.boots import may_have_lost
from odradek.log.directory.directory import NOBODY_ELSE, LogDirectory
from sim.simdisk import SimDisk

BOOT, NEXT = "first", "second"


def directory(disk: SimDisk, *, clean: bool = False) -> LogDirectory:
    found = LogDirectory(disk, "", None, None, NOBODY_ELSE)
    found.clean_shutdown = clean
    return found


def test_a_process_that_died_has_lost_nothing() -> None:
    disk = SimDisk()
    may_have_lost([directory(disk)], BOOT)
    assert not may_have_lost([directory(disk)], BOOT)


@pytest.mark.parametrize(("clean", "lost"), [(False, True), (True, False)])
def test_a_machine_that_has_started_anew_may_have(clean: bool, lost: bool) -> None:
    disk = SimDisk()
    may_have_lost([directory(disk)], BOOT)
    assert may_have_lost([directory(disk, clean=clean)], NEXT) is lost
    assert not may_have_lost([directory(disk)], NEXT), "it is known of this boot now"


def test_a_disk_that_is_new_may_have() -> None:
    disk = SimDisk()
    may_have_lost([directory(disk)], BOOT)
    assert may_have_lost([directory(disk), directory(SimDisk())], BOOT)


def test_where_nobody_knows_the_boot_it_may_always_have() -> None:
    disk = SimDisk()
    may_have_lost([directory(disk)], None)
    assert may_have_lost([directory(disk)], None)


def test_a_disk_that_takes_no_note_stops_nobody() -> None:
    disk = SimDisk()
    disk.room = 0
    found = directory(disk)
    assert may_have_lost([found], BOOT)
    assert found.problems
