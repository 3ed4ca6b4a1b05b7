"""Transfers that wait for the disk: they delay no other transfer and no cancellation."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from random import Random

import pytest

from odradek.log.files.page_cache import is_absent
from odradek.net.native.movers import COLD_THREADS as MOVERS_COLD_THREADS
from odradek.net.native.movers import HAS_MOVER, Movers

if not HAS_MOVER:  # pragma: no cover
    pytest.skip("the mover was built without a compiler", allow_module_level=True)

from odradek.net.native.mover import Transfer
from odradek.record.crc import crc32c
from support.limits import descriptors
from support.moving import COLD_THREADS, SECONDS_MAX, THREADS, Held, Moving, beside, nothing, pair, read, until
from support.slow_disk import SlowFile, slow_file

pytestmark = [pytest.mark.slow, pytest.mark.disk]

MIB = 1 << 20
BYTES = 8 * MIB


@pytest.fixture(scope="module")
def content(disk_path: Path) -> Path:
    path = disk_path / "file"
    path.write_bytes(Random(1).randbytes(BYTES))
    return path


@pytest.fixture(scope="module")
def data(content: Path) -> bytes:
    return content.read_bytes()


@pytest.fixture
def slow(content: Path) -> Iterator[SlowFile]:
    with slow_file(content) as file:
        if not is_absent(file.fileno(), 0, 1):
            pytest.skip("the system can't say what the page cache has of a file system of ours")
        yield file


class Ends(ExitStack):
    """Socket pairs that are closed at the end."""

    def pair(self) -> tuple[socket.socket, socket.socket]:
        return self.enter_context(pair())


@pytest.fixture
def ends() -> Iterator[Ends]:
    with Ends() as stack:
        yield stack


def begin(mover: Moving, ours: socket.socket, file: SlowFile | Held, position: int, size: int) -> Transfer:
    transfer = mover.send(ours.fileno(), b"head", file, position, size, b"end", False, nothing)
    assert transfer is not None
    return transfer


def answer(peer: socket.socket, size: int) -> bytes:
    """Return the records of a complete response."""
    got = bytearray()
    read(peer, size + 7, got)
    assert (got[:4], got[-3:]) == (b"head", b"end")
    return bytes(got[4:-3])


def check_that_hot_transfers_end(mover: Moving, file: Held, ends: Ends, data: bytes) -> None:
    """Check as many sends as there are threads, and as many stores."""
    os.pwrite(file.fileno(), data, 0)
    for _ in range(2 * THREADS):
        ours, theirs = ends.pair()
        with beside(lambda peer=theirs: read(peer, len(data) + 7, bytearray())):  # type: ignore[misc]
            sent = begin(mover, ours, file, 0, len(data))
            assert mover.wait() == [sent]
        assert (sent.moved, sent.error) == (len(data), 0)
        with beside(lambda peer=theirs: peer.sendall(data)):  # type: ignore[misc]
            stored = mover.store(ours.fileno(), file, 0, len(data), 0, 0, nothing)
            assert mover.wait() == [stored]
        assert stored is not None
        assert (stored.moved, stored.crc) == (len(data), crc32c(data))


def test_hot_transfers_do_not_wait_for_cold_ones(
    mover: Moving, slow: SlowFile, file: Held, ends: Ends, data: bytes
) -> None:
    """The disk of the cold ones does not respond, and they outnumber the threads."""
    slow.hold()
    positions = [number * MIB // 2 for number in range(2 * (THREADS + COLD_THREADS))]
    peers = {}
    for position in positions:
        ours, theirs = ends.pair()
        peers[begin(mover, ours, slow, position, MIB)] = position, theirs
    slow.wait_for_reads()
    check_that_hot_transfers_end(mover, file, ends, data[: 2 * MIB])
    assert not any(mover.moved(transfer) for transfer in peers)
    slow.let_go()
    got: list[tuple[int, bytes]] = []
    for transfer, (position, theirs) in peers.items():
        got.append((position, answer(theirs, MIB)))
        until(lambda one=transfer: mover.moved(one) == MIB)  # type: ignore[misc]
    assert set(mover.wait(len(peers))) == set(peers)
    assert not any(transfer.error for transfer in peers)
    assert all(records == data[position : position + MIB] for position, records in got)


def test_hot_transfers_do_not_wait_for_those_that_become_cold(
    mover: Moving, slow: SlowFile, file: Held, ends: Ends, data: bytes
) -> None:
    """The start of each file is in the page cache and is sent."""
    hot_bytes, size = 2 * MIB, 4 * MIB
    assert os.pread(slow.fileno(), hot_bytes, 0) == data[:hot_bytes]
    until(lambda: is_absent(slow.fileno(), hot_bytes + MIB, 1))
    slow.hold(hot_bytes + MIB)
    with ExitStack() as readers:
        peers = {}
        for _ in range(THREADS + COLD_THREADS):
            (ours, theirs), got = ends.pair(), bytearray()
            peers[begin(mover, ours, slow, 0, size)] = got
            readers.enter_context(beside(partial(read, theirs, size + 7, got)))
        slow.wait_for_reads()
        check_that_hot_transfers_end(mover, file, ends, data[:MIB])
        assert all(mover.moved(transfer) <= hot_bytes + MIB for transfer in peers)
        until(lambda: all(mover.moved(transfer) > hot_bytes - MIB for transfer in peers))
        slow.let_go()
        assert set(mover.wait(len(peers))) == set(peers)
    assert all(got == b"head" + data[:size] + b"end" for got in peers.values())


def test_cancellation_does_not_wait_for_the_disk(
    mover: Moving, slow: SlowFile, file: Held, ends: Ends, data: bytes
) -> None:
    """The socket and slot are free immediately, and the file may be closed."""
    os.pwrite(file.fileno(), data[:MIB], 0)
    slow.hold()
    peers = [ends.pair() for _ in range(COLD_THREADS + 1)]
    files = [slow.again() for _ in peers]
    at_rest = descriptors()
    transfers = []
    for number, (ours, theirs) in enumerate(peers):
        transfers.append((begin(mover, ours, files.pop(), number * 2 * MIB, MIB), ours, theirs))
    slow.wait_for_reads()
    until(lambda: descriptors() == at_rest + COLD_THREADS)  # Each thread waits, with a descriptor of its own.
    before, alarm = descriptors(), threading.Timer(SECONDS_MAX / 4, slow.let_go)  # It would wait forever.
    alarm.start()
    for transfer, ours, theirs in transfers:
        assert mover.cancel(transfer) == 0
        again = mover.store(ours.fileno(), file, 0, 4, 0, 0, nothing)
        theirs.sendall(data[:4])
        assert mover.wait() == [again]
        again = begin(mover, ours, file, 4, 1000)
        assert mover.wait() == [again]
        assert answer(theirs, 1000) == data[4:1004]
    assert alarm.is_alive(), "it waited for the disk"
    alarm.cancel()
    assert descriptors() == before - len(transfers), "their files are closed"
    slow.let_go()
    ours, theirs = ends.pair()
    cold = begin(mover, ours, slow, BYTES - MIB, MIB)
    assert answer(theirs, MIB) == data[BYTES - MIB :]
    assert mover.wait() == [cold]
    until(lambda: descriptors() == before - len(transfers) - COLD_THREADS + 2)
    for _, _, theirs in transfers:
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs.recv(1)


@pytest.mark.waits
def test_lost_disk_fails_the_waiting_transfer(mover: Moving, content: Path, ends: Ends, data: bytes) -> None:
    (ours, theirs), got = ends.pair(), bytearray()
    with ExitStack() as disk:
        slow = disk.enter_context(slow_file(content))
        with beside(lambda: read(theirs, BYTES, got)):
            slow.hold(MIB)
            transfer = begin(mover, ours, slow.again(), 0, 4 * MIB)
            slow.wait_for_reads()
            disk.close()
            assert mover.wait() == [transfer]
            ours.shutdown(socket.SHUT_WR)
    assert transfer.error
    assert transfer.is_files_error
    assert transfer.moved <= MIB
    assert got == b"head"[: len(got)] + data[: transfer.moved]


def test_peer_that_left_during_the_wait_fails_the_transfer(mover: Moving, slow: SlowFile, ends: Ends) -> None:
    slow.hold()
    ours, theirs = ends.pair()
    transfer = begin(mover, ours, slow, 0, MIB)
    slow.wait_for_reads()
    theirs.close()
    slow.let_go()
    assert mover.wait() == [transfer]
    assert (transfer.moved, transfer.error, transfer.is_files_error) == (0, errno.EPIPE, False)


def test_mover_can_be_stopped_during_a_wait_for_the_disk(slow: SlowFile, ends: Ends, data: bytes) -> None:
    """The thread ends when the disk responds, and sent bytes are counted."""
    moving = Moving()
    slow.hold()
    ours, theirs = ends.pair()
    transfer = begin(moving, ours, slow, 0, 4 * MIB)
    slow.wait_for_reads()
    moving.stop()
    slow.let_go()
    moving.end()
    ours.shutdown(socket.SHUT_WR)
    got = bytearray()
    read(theirs, BYTES, got)
    assert len(got) == (moving.moved(transfer) + 4 if got else 0) < 4 * MIB
    assert (b"head" + data).startswith(got)


def test_mover_can_be_resized_during_a_wait_for_the_disk(slow: SlowFile, file: Held, ends: Ends, data: bytes) -> None:
    os.pwrite(file.fileno(), data[:MIB], 0)
    reported: list[Transfer] = []

    def send(movers: Movers, file: Held | SlowFile, position: int) -> socket.socket:
        ours, theirs = ends.pair()
        assert movers.send(
            ours.fileno(), b"head", file, position, MIB, after=b"end", is_quiet=False, done=reported.append
        )
        return theirs

    async def wait_for_reports(count: int) -> None:
        while len(reported) < count:
            await asyncio.sleep(0.01)

    async def work() -> None:
        movers = Movers(asyncio.get_running_loop(), THREADS)
        slow.hold()
        peers = [send(movers, slow, number * MIB) for number in range(MOVERS_COLD_THREADS + 2)]
        slow.wait_for_reads()
        movers.resize(1)
        hot = send(movers, file, 0)
        assert await asyncio.to_thread(answer, hot, MIB) == data[:MIB]
        await wait_for_reports(1)
        slow.let_go()
        for number, peer in enumerate(peers):
            assert await asyncio.to_thread(answer, peer, MIB) == data[number * MIB : (number + 1) * MIB]
        await wait_for_reports(1 + len(peers))
        movers.stop()

    asyncio.run(work())
    assert not any(transfer.error for transfer in reported)


# ---------------------------------------------------------------- a disk as it is


def drop(file: Held) -> None:
    """Drop the file from the page cache; skip the test where there is no disk below."""
    was_absent = is_absent(file.fileno(), 0, 1)
    os.fsync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if was_absent or not is_absent(file.fileno(), 0, 1):
        pytest.skip("files are in memory here, or the system can't say what the page cache has")


def test_only_cold_threads_send_cold_runs(file: Held, ends: Ends, data: bytes) -> None:
    os.pwrite(file.fileno(), data, 0)
    drop(file)
    (ours, theirs), (others, third) = ends.pair(), ends.pair()
    without_others = Moving(running=[])
    cold = begin(without_others, ours, file, 0, 64 << 10)
    assert answer(theirs, 64 << 10) == data[: 64 << 10]
    assert without_others.wait() == [cold]
    without_others.end()

    without_cold = Moving(cold=0)
    drop(file)
    begin(without_cold, ours, file, 0, MIB)
    assert os.pread(file.fileno(), MIB, 4 * MIB) == data[4 * MIB : 5 * MIB]
    hot = begin(without_cold, others, file, 4 * MIB, MIB)
    assert answer(third, MIB) == data[4 * MIB : 5 * MIB]
    assert without_cold.wait() == [hot]
    assert not without_cold.has_news(0.05)
    without_cold.end()


def test_transfer_that_is_hot_again_returns_to_a_hot_thread(file: Held, ends: Ends, data: bytes) -> None:
    """The hot thread does not run here; until then cold threads send."""
    os.pwrite(file.fileno(), data, 0)
    drop(file)
    assert os.pread(file.fileno(), BYTES, MIB // 2) == data[MIB // 2 :]
    ours, theirs = ends.pair()
    mover = Moving(running=[])
    transfer = begin(mover, ours, file, 0, BYTES)
    got = bytearray()
    read(theirs, 4 + 64 * 1024, got)
    theirs.settimeout(0.2)
    with pytest.raises(TimeoutError):
        read(theirs, BYTES, got)
    assert 0 < mover.moved(transfer) <= MIB
    late = threading.Thread(target=mover.run, args=(0,), daemon=True)
    late.start()
    theirs.settimeout(SECONDS_MAX)
    read(theirs, BYTES + 7, got)
    assert got == b"head" + data + b"end"
    assert mover.wait() == [transfer]
    mover.end()
    late.join(SECONDS_MAX)


def test_cold_transfers_are_sent_without_a_free_descriptor(mover: Moving, file: Held, ends: Ends, data: bytes) -> None:
    os.pwrite(file.fileno(), data, 0)
    drop(file)
    ours, theirs = ends.pair()
    theirs.setblocking(True)  # A wait with a timeout takes a poll, which is refused then.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        transfer = begin(mover, ours, file, 0, BYTES)
        got = answer(theirs, BYTES)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert got == data
    assert mover.wait() == [transfer]


@pytest.mark.parametrize("size", [0, 3000, MIB // 2 + 5, 3 * MIB + 1])
def test_short_cold_file_fails_the_transfer(mover: Moving, file: Held, ends: Ends, data: bytes, size: int) -> None:
    os.pwrite(file.fileno(), data[:size], 0)
    if size:
        drop(file)
    ours, theirs = ends.pair()
    got = bytearray()
    with beside(lambda: read(theirs, size + 4, got)):
        transfer = begin(mover, ours, file, 0, BYTES)
        assert mover.wait() == [transfer]
    assert (transfer.moved, transfer.error, transfer.is_files_error) == (size, errno.EIO, True)
    assert got[4:] == data[:size]


def test_file_truncated_during_the_send_fails_the_transfer(mover: Moving, file: Held, ends: Ends, data: bytes) -> None:
    os.pwrite(file.fileno(), data, 0)
    drop(file)
    ours, theirs = ends.pair()
    transfer = begin(mover, ours, file, 0, BYTES)
    got = bytearray()
    read(theirs, 1000, got)
    os.truncate(file.fileno(), BYTES // 2)
    with beside(lambda: read(theirs, BYTES // 2 + 4, got)):
        assert mover.wait() == [transfer]
    assert (transfer.moved, transfer.error, transfer.is_files_error) == (BYTES // 2, errno.EIO, True)
    assert got[4:] == data[: BYTES // 2]


class Reading:
    """A peer that reads its response in small pieces."""

    def __init__(self, ours: socket.socket, theirs: socket.socket, records: bytes) -> None:
        self.records = records
        self._ours = ours
        self._theirs = theirs
        self._got = bytearray()
        theirs.setblocking(False)

    def take(self, size: int) -> None:
        with suppress(BlockingIOError):
            self._got += self._theirs.recv(size)

    def received(self) -> bytes:
        """Return all received bytes after the last send."""
        self._ours.close()
        self._theirs.setblocking(True)
        read(self._theirs, len(self.records) + 8, self._got)
        return bytes(self._got)


@pytest.mark.parametrize("seed", range(3))
def test_many_concurrent_transfers_with_cold_and_cancelled_ones(
    mover: Moving, tmp_path: Path, ends: Ends, data: bytes, seed: int
) -> None:
    """Pages are dropped throughout; each peer gets only its own bytes, and none after a cancellation."""
    random = Random(seed)
    file = Held(tmp_path / "file")
    os.pwrite(file.fileno(), data, 0)
    os.fsync(file.fileno())
    going: dict[Transfer, Reading] = {}
    begun = 0
    while begun < 150 or going:
        if begun < 150 and len(going) < 24:
            position = random.randrange(BYTES)
            ours, theirs = ends.pair()
            size = min(random.choice([1, 5000, 300_000, MIB, 3 * MIB]), BYTES - position)
            transfer = begin(mover, ours, file, position, size)
            going[transfer] = Reading(ours, theirs, data[position : position + size])
            begun += 1
        for reading in random.sample(list(going.values()), min(len(going), 8)):
            reading.take(random.choice([1, 100_000, MIB]))
        if random.random() < 0.3:
            os.posix_fadvise(file.fileno(), random.randrange(BYTES), random.randrange(BYTES), os.POSIX_FADV_DONTNEED)
        if going and random.random() < 0.1:
            transfer = random.choice(list(going))
            moved, reading = mover.cancel(transfer), going.pop(transfer)
            got = reading.received()
            assert (b"head" + reading.records + b"end").startswith(got)
            assert min(max(len(got) - 4, 0), len(reading.records)) == moved
        for transfer in mover.finished():
            reading = going.pop(transfer)
            assert (transfer.error, transfer.moved) == (0, len(reading.records))
            assert reading.received() == b"head" + reading.records + b"end"
    assert mover.finished() == []
