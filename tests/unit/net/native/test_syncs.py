"""Native syncs next to the loop: each ends once, a failed one names its file, and a stop loses none."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path

import pytest

from odradek.base.units import Offset, TopicName, TopicPartition
from odradek.core.disks.flushes import Sync, Synced
from odradek.log.files.disk import DiskFailed, RealDisk, RealFile
from odradek.log.files.unsynced import UnsyncedDisk
from odradek.log.log.flush import Flush
from odradek.net.native.syncs import HAS_SYNCER, THREADS_MAX, Syncs
from support.limits import descriptors

if not HAS_SYNCER:  # pragma: no cover
    pytest.skip("the syncer was built without a compiler", allow_module_level=True)

SECONDS_MAX = 10


def on_loop(test: Callable[[Path], Coroutine[None, None, None]]) -> Callable[[Path], None]:
    @wraps(test)
    def run(tmp_path: Path) -> None:
        asyncio.run(test(tmp_path))

    return run


class Ended:
    """Results of syncs, in the order of their reports."""

    def __init__(self) -> None:
        self.synced: list[Synced] = []
        self.seconds: list[float] = []
        self._more = asyncio.Event()

    def __call__(self, synced: Synced, seconds: float) -> None:
        self.synced.append(synced)
        self.seconds.append(seconds)
        self._more.set()

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while len(self.synced) < count:
                self._more.clear()
                await self._more.wait()


@asynccontextmanager
async def running() -> AsyncIterator[tuple[Syncs, Ended]]:
    ended = Ended()
    syncs = Syncs(asyncio.get_running_loop(), ended)
    try:
        yield syncs, ended
    finally:
        syncs.stop()


def partition(number: int) -> TopicPartition:
    return TopicPartition(TopicName("t"), number)


def flush_of(*files: RealFile, disk: RealDisk | None = None, paths: Sequence[str] = ()) -> Flush:
    return Flush(disk or RealDisk(), Offset(1), files=files, paths=paths, directories=())


def file_in(directory: Path, name: str = "f", disk: RealDisk | None = None) -> RealFile:
    file = (disk or RealDisk()).create(str(directory / name))
    assert isinstance(file, RealFile)
    file.write(0, b"x")
    return file


def no_file() -> RealFile:
    """Return a pipe, which cannot be synced."""
    reading, writing = os.pipe()
    os.close(reading)
    return RealFile(writing, "/a/pipe")


others: set[threading.Thread] = set()  # Threads of brokers left running by other tests.


@pytest.fixture(autouse=True)
def others_are_known() -> None:
    others.update(threading.enumerate())


def sync_threads() -> list[threading.Thread]:
    return [
        thread for thread in threading.enumerate() if thread.name.startswith("odradek-sync") and thread not in others
    ]


@on_loop
async def test_each_sync_ends_once(tmp_path: Path) -> None:
    async with running() as (syncs, ended):
        flushes = [flush_of(file_in(tmp_path, str(number))) for number in range(100)]
        for number, flush in enumerate(flushes):
            assert syncs.start_sync(Sync({partition(number): flush}))
        await ended.wait_for(100)
        await asyncio.sleep(0.01)

    assert len(ended.synced) == 100
    synced_flushes = {name: flush for synced in ended.synced for name, flush in synced.flushes.items()}
    assert synced_flushes == {partition(number): flush for number, flush in enumerate(flushes)}
    assert all(0 <= seconds < SECONDS_MAX for seconds in ended.seconds)


@on_loop
async def test_threads_are_started_as_needed(tmp_path: Path) -> None:
    async with running() as (syncs, ended):
        assert not sync_threads()
        for count in range(1, 4):
            assert syncs.start_sync(Sync({partition(0): flush_of(file_in(tmp_path))}))
            await ended.wait_for(count)
        assert len(sync_threads()) == 1
        for number in range(20):
            assert syncs.start_sync(Sync({partition(number): flush_of(file_in(tmp_path, str(number)))}))
        assert len(sync_threads()) <= THREADS_MAX
        await ended.wait_for(23)
    assert not sync_threads()


@on_loop
async def test_failed_sync_is_reported_for_its_log_only(tmp_path: Path) -> None:
    """Each flush has its own files: one flush continues when files of another fail."""
    flushes = {
        partition(0): flush_of(file_in(tmp_path, "0"), file_in(tmp_path, "1")),
        partition(1): flush_of(file_in(tmp_path, "2"), no_file(), file_in(tmp_path, "3")),
        partition(2): flush_of(),
        partition(3): flush_of(file_in(tmp_path, "4")),
    }
    async with running() as (syncs, ended):
        assert syncs.start_sync(Sync(flushes))
        await ended.wait_for(1)

    found = dict(ended.synced[0].flushes)
    failed = found.pop(partition(1))
    assert isinstance(failed, DiskFailed)
    assert (failed.errno, failed.filename) == (errno.EINVAL, "/a/pipe")
    assert flushes[partition(1)].has_failed
    assert found == {name: flush for name, flush in flushes.items() if name != partition(1)}
    assert not any(flush.has_failed for flush in (flushes[partition(0)], flushes[partition(3)]))


@on_loop
async def test_result_equals_that_of_a_sync_in_a_python_thread(tmp_path: Path) -> None:
    def sync() -> Sync:
        return Sync({partition(0): flush_of(file_in(tmp_path)), partition(1): flush_of(no_file())})

    async with running() as (syncs, ended):
        assert syncs.start_sync(sync())
        await ended.wait_for(1)

    ours, theirs = ended.synced[0].flushes, sync().run().flushes
    assert str(ours[partition(1)]) == str(theirs[partition(1)])
    assert isinstance(ours[partition(0)], Flush)
    assert isinstance(theirs[partition(0)], Flush)


@on_loop
async def test_sync_of_more_than_open_files_is_left_to_a_python_thread(tmp_path: Path) -> None:
    file = file_in(tmp_path)
    unsynced = UnsyncedDisk()
    flushes = [
        flush_of(file, paths=[file.path]),
        Flush(RealDisk(), Offset(1), files=[file], paths=(), directories=[str(tmp_path)]),
        flush_of(file_in(tmp_path, disk=unsynced), disk=unsynced),
    ]
    async with running() as (syncs, ended):
        for flush in flushes:
            assert not syncs.start_sync(Sync({partition(0): flush_of(file), partition(1): flush}))
        await asyncio.sleep(0.01)
    assert not ended.synced


@on_loop
async def test_unsynced_disk_needs_no_thread(tmp_path: Path) -> None:
    unsynced = UnsyncedDisk()
    missing = str(tmp_path / "gone")
    async with running() as (syncs, ended):
        for number in range(3):
            file = file_in(tmp_path, disk=unsynced)
            flush = Flush(unsynced, Offset(1), files=[file], paths=[file.path, missing], directories=[str(tmp_path)])
            assert syncs.start_sync(Sync({partition(number): flush}))
        assert not ended.synced, "not before whoever began it is done"
        await ended.wait_for(3)
        assert not sync_threads()
        assert all(isinstance(flush, Flush) for synced in ended.synced for flush in synced.flushes.values())
        assert syncs.start_sync(Sync({partition(0): flush}))
        syncs.stop()
        await asyncio.sleep(0.01)
        assert len(ended.synced) == 3


@on_loop
async def test_a_file_stays_open_until_it_is_synced(tmp_path: Path) -> None:
    gc.collect()  # Of failures in other tests.
    before = descriptors()
    async with running() as (syncs, ended):
        for number in range(50):
            assert syncs.start_sync(Sync({partition(0): flush_of(file_in(tmp_path, str(number)))}))
        await ended.wait_for(50)
        assert all(isinstance(synced.flushes[partition(0)], Flush) for synced in ended.synced)
    ended.synced.clear()
    assert descriptors() == before


@on_loop
async def test_stop_waits_for_running_syncs_and_reports_nothing(tmp_path: Path) -> None:
    async with running() as (syncs, ended):
        for number in range(50):
            assert syncs.start_sync(Sync({partition(number): flush_of(file_in(tmp_path, str(number)))}))
        syncs.stop()
        assert not sync_threads()
        reported = len(ended.synced)
        assert not syncs.start_sync(Sync({partition(0): flush_of(file_in(tmp_path))}))
        await asyncio.sleep(0.01)
        assert len(ended.synced) == reported


@on_loop
async def test_failed_report_of_a_sync_does_not_delay_others(tmp_path: Path) -> None:
    reported: list[Synced] = []

    def ended(synced: Synced, seconds: float) -> None:
        reported.append(synced)
        if len(reported) == 1:
            raise ValueError("a bug")

    syncs = Syncs(asyncio.get_running_loop(), ended)
    try:
        for number in range(5):
            assert syncs.start_sync(Sync({partition(number): flush_of(file_in(tmp_path, str(number)))}))
        async with asyncio.timeout(SECONDS_MAX):
            while len(reported) < 5:
                await asyncio.sleep(0.001)
    finally:
        syncs.stop()
