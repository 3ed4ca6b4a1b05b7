"""The simulated disk: it keeps what POSIX promises, and loses everything else."""

from __future__ import annotations

from random import Random

import pytest
from simdisk import SimDisk

from odradek.log.files.disk import DiskFailed


def crashed_contents(disk: SimDisk, path: str, crashes: int = 60) -> set[bytes | None]:
    found: set[bytes | None] = set()
    for seed in range(crashes):
        survivor = disk.crash(Random(seed))
        try:
            found.add(survivor.open(path).pread(0, 1 << 20))
        except DiskFailed:
            found.add(None)
    return found


def test_synced_bytes_under_a_synced_name_stay() -> None:
    disk = SimDisk()
    file = disk.create("/a")
    file.write(0, b"kept")
    file.sync()
    disk.sync_directory("")
    file.write(4, b" and more")
    assert all(content is not None and content.startswith(b"kept") for content in crashed_contents(disk, "/a"))


def test_a_name_may_be_lost_with_its_synced_bytes() -> None:
    disk = SimDisk()
    disk.create("/a").sync()
    assert crashed_contents(disk, "/a") == {None, b""}


def test_an_unsynced_write_may_survive_wholly_partly_or_not() -> None:
    disk = SimDisk()
    file = disk.create("/a")
    disk.sync_directory("")
    file.write(0, b"x" * 2000)
    contents = crashed_contents(disk, "/a")
    assert b"" in contents
    assert b"x" * 2000 in contents
    assert any(content and 0 < content.count(b"x") < 1999 for content in contents)


def test_a_rename_leaves_exactly_one_name() -> None:
    disk = SimDisk()
    disk.create("/new")
    old = disk.create("/old")
    old.write(0, b"content")
    old.sync()
    disk.sync_directory("")
    disk.rename("/old", "/new")
    for seed in range(30):
        survivor = disk.crash(Random(seed))
        names = {entry.name for entry in survivor.entries("")}
        assert names in ({"old", "new"}, {"new"})
        if "old" not in names:
            assert survivor.open("/new").pread(0, 10) == b"content"


def test_a_killed_process_loses_nothing_written() -> None:
    disk = SimDisk()
    disk.create("/a").write(0, b"written")
    assert disk.kill().open("/a").pread(0, 10) == b"written"


def test_a_full_disk_writes_what_fits() -> None:
    disk = SimDisk()
    file = disk.create("/a")
    disk.room = 3
    with pytest.raises(DiskFailed) as failed:
        file.write(0, b"12345")
    assert failed.value.is_full
    assert file.pread(0, 10) == b"123"


def test_a_later_sync_does_not_restore_data_of_a_failed_one() -> None:
    disk = SimDisk()
    disk.drops_unsynced = True
    file = disk.create("/a")
    disk.sync_directory("")
    file.write(0, b"dropped")
    disk.fails_to_sync = True
    with pytest.raises(DiskFailed):
        file.sync()
    disk.mend()
    file.write(7, b" kept")
    file.sync()
    assert file.pread(0, 20) == b"dropped kept", "the process sees it"
    assert disk.has_dropped
    assert crashed_contents(disk, "/a") == {bytes(7) + b" kept"}
    assert disk.kill().open("/a").pread(0, 20) == bytes(7) + b" kept", "read anew"


def test_reads_may_be_excluded_from_failures() -> None:
    disk = SimDisk()
    disk.create("/a").write(0, b"there")
    disk.reads_fail = False
    disk.fail_call(0)
    assert disk.open("/a").pread(0, 10) == b"there"
    with pytest.raises(DiskFailed):
        disk.rename("/a", "/b")
    disk.rename("/a", "/b")
    assert disk.failures == 1


def test_a_device_keeps_failing_until_it_is_repaired() -> None:
    disk = SimDisk()
    disk.fail_from(0)
    survivor = disk.kill()
    survivor.fail_as(disk)
    with pytest.raises(DiskFailed):
        survivor.create("/a")
    survivor.mend()
    survivor.create("/a")
