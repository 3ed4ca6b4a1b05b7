"""Descriptor shortage: logs are requested to release files, at a temporary limit of this process."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from odradek.base.limits import SHORT_LIVED_FILES
from odradek.log.files.disk import DiskFailed, RealDisk, check_may_stay
from odradek.net.loop import descriptors
from odradek.net.loop.descriptor_room import DescriptorRoom

STDERR = 2


@contextmanager
def limited_to(free: int) -> Iterator[int]:
    """Limit descriptors to the lowest free number plus the given count; open ones leave no gaps below it."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(one.name) for one in Path("/dev/fd").iterdir())
    with ExitStack() as fillers:
        while (lowest := descriptors.lowest_free()) is not None and lowest < highest:
            fillers.callback(os.close, os.dup(STDERR))
        assert lowest is not None
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + free, before[1]))
        try:
            yield lowest
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)


class Logs:
    """A recorder of release requests, with a given number of releases."""

    def __init__(self, released: int = 1) -> None:
        self.releases: list[tuple[int, int]] = []
        self.released = released

    def release(self, count: int, below: int) -> int:
        self.releases.append((count, below))
        return self.released


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    with closing(asyncio.new_event_loop()) as running:
        yield running


def turn(loop: asyncio.AbstractEventLoop) -> None:
    loop.call_soon(loop.stop)
    loop.run_forever()


def test_file_with_one_of_the_last_descriptors_requests_a_release(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    logs = Logs()
    disk = RealDisk(DescriptorRoom(loop, logs.release).opened)
    disk.create(f"{tmp_path}/f")
    turn(loop)
    assert not logs.releases
    with limited_to(3) as lowest:
        for _ in range(5):
            disk.open(f"{tmp_path}/f")
        assert not logs.releases, "nothing is let go in the middle of something else"
        turn(loop)
        assert logs.releases == [(descriptors.spare_of(lowest + 3), lowest + 3)]


def test_file_without_a_descriptor_requests_a_release(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    logs = Logs()
    disk = RealDisk(DescriptorRoom(loop, logs.release).opened)
    disk.create(f"{tmp_path}/f")
    with limited_to(0):
        with pytest.raises(DiskFailed) as failed:
            disk.open(f"{tmp_path}/f")
        assert failed.value.is_out_of_files
        turn(loop)
        assert len(logs.releases) == 1


def test_long_lived_file_leaves_descriptors_for_short_lived_ones(tmp_path: Path) -> None:
    disk = RealDisk()
    disk.create(f"{tmp_path}/f")
    with limited_to(SHORT_LIVED_FILES + 1):
        kept = [disk.open(f"{tmp_path}/f")]
        check_may_stay(kept[0])
        kept.append(disk.open(f"{tmp_path}/f"))
        with pytest.raises(DiskFailed) as failed:
            check_may_stay(kept[1])
        assert failed.value.is_out_of_files


def test_release_is_requested_once_a_second(loop: asyncio.AbstractEventLoop) -> None:
    logs = Logs()
    room = DescriptorRoom(loop, logs.release)
    room.make_room_if_short()
    assert not logs.releases
    with limited_to(3):
        room.make_room_if_short()
        assert len(logs.releases) == 1


def test_connection_needs_descriptors_below_those_of_logs(loop: asyncio.AbstractEventLoop) -> None:
    logs = Logs()
    room = DescriptorRoom(loop, logs.release)
    limit = descriptors.limit()
    assert limit is not None
    assert room.for_connection()
    assert logs.releases == [(descriptors.spare_of(limit), limit - descriptors.reserved_of(limit))]
    logs.released = 0
    assert not room.for_connection()
    assert not room.for_connection()
    assert len(logs.releases) == 2, "who finds nothing looks again after a while"


def test_stopped_room_requests_no_release(loop: asyncio.AbstractEventLoop) -> None:
    logs = Logs()
    room = DescriptorRoom(loop, logs.release)
    room.opened(-1)
    room.stop()
    room.opened(-1)
    turn(loop)
    assert not room.for_connection()
    assert not logs.releases
