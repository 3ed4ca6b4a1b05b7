"""The mover alone: each byte arrives once in its place, and nothing moves after a cancellation."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import resource
import socket
import struct
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from odradek.net.native.movers import HAS_MOVER, Movers

if not HAS_MOVER:  # pragma: no cover
    pytest.skip("the mover was built without a compiler", allow_module_level=True)

from odradek.net.native.mover import Mover, Transfer
from odradek.record.crc import crc32c
from support.limits import descriptors, file_size_limit
from support.moving import SECONDS_MAX, THREADS, Held, Moving, beside, following, nothing, pair, read, tcp_pair, until
from support.waiting import readable

pytestmark = pytest.mark.slow

if not Mover.can_store:  # pragma: no cover
    pytest.skip("this processor has no instruction for CRC-32C", allow_module_level=True)

KIB, MIB = 1 << 10, 1 << 20
BLOCK_BYTES = 2048  # Three of these are one step of the checksum.
SLOTS = 1024


def send_in_pieces(peer: socket.socket, data: bytes, sizes: list[int]) -> None:
    at = 0
    for size in sizes:
        peer.sendall(data[at : at + size])
        at += size
    peer.sendall(data[at:])


def send_and_leave(peer: socket.socket, data: bytes) -> None:
    peer.sendall(data)
    peer.close()


def reset(peer: socket.socket) -> None:
    """Close the socket as a crashed peer does."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


@pytest.fixture(scope="module")
def shared_file(tmp_path_factory: pytest.TempPathFactory) -> Held:
    return Held(tmp_path_factory.mktemp("mover") / "file")


def content(file: Held, position: int = 0) -> bytes:
    return os.pread(file.fileno(), 1 << 27, position)


# ---------------------------------------------------------------- send


@pytest.mark.waits
@pytest.mark.parametrize("head_bytes", [0, 1, 1000, 300 * KIB])
@pytest.mark.parametrize("size", [1, 4096, 128 * KIB, MIB - 1, MIB, MIB + 1, 5 * MIB + 3])
@pytest.mark.parametrize("end_bytes", [0, 3, 300 * KIB])
def test_response_is_sent_completely(mover: Moving, file: Held, head_bytes: int, size: int, end_bytes: int) -> None:
    data, head, end, position = os.urandom(size + 200), os.urandom(head_bytes), os.urandom(end_bytes), 77
    whole = head + data[position : position + size] + end + b"after"
    os.pwrite(file.fileno(), data, 0)
    got = bytearray()
    for connected in (pair, tcp_pair):
        got.clear()
        with connected() as (ours, theirs), beside(lambda peer=theirs: read(peer, len(whole), got)):  # type: ignore[misc]
            begun = mover.send(ours.fileno(), head, file, position, size, end, False, nothing)
            (ended,) = mover.wait()
            assert ended is begun
            assert (ended.moved, ended.error, ended.done) == (size, 0, nothing)
            ours.setblocking(True)
            ours.sendall(b"after")
        assert bytes(got) == whole


def test_head_and_end_of_a_transfer_outlive_their_creator(mover: Moving, file: Held) -> None:
    os.pwrite(file.fileno(), b"x" * 1000, 0)
    got = bytearray()
    with pair() as (ours, theirs):
        head, end = bytes(bytearray(b"h" * 2 * MIB)), bytes(bytearray(b"e" * 2 * MIB))
        mover.send(ours.fileno(), head, file, 0, 1000, end, False, nothing)
        del head, end
        gc.collect()
        read(theirs, 4 * MIB + 1000, got, 5000)
        mover.wait()
    assert got == b"h" * 2 * MIB + b"x" * 1000 + b"e" * 2 * MIB


def test_short_file_fails_the_transfer(mover: Moving, file: Held) -> None:
    os.pwrite(file.fileno(), b"x" * 3000, 0)
    with pair() as (ours, theirs):
        mover.send(ours.fileno(), b"head", file, 1000, 5000, b"", False, nothing)
        (ended,) = mover.wait()
        assert (ended.moved, ended.error, ended.is_files_error) == (2000, errno.EIO, True)
        assert theirs.recv(9999) == b"head" + b"x" * 2000


@pytest.mark.waits
@pytest.mark.parametrize("leave", [socket.socket.close, reset])
def test_reader_that_disconnects_fails_the_transfer(
    mover: Moving, file: Held, leave: Callable[[socket.socket], None]
) -> None:
    os.truncate(file.fileno(), 64 * MIB)
    with tcp_pair() as (ours, theirs):
        transfer = mover.send(ours.fileno(), b"head", file, 0, 64 * MIB, b"", False, nothing)
        assert transfer is not None
        assert theirs.recv(4) == b"head"
        leave(theirs)
        (ended,) = mover.wait()
        assert ended is transfer
        assert ended.error in (errno.EPIPE, errno.ECONNRESET)
        assert not ended.is_files_error
        assert ended.moved < 64 * MIB


def test_disconnected_reader_fails_the_transfer(mover: Moving, file: Held) -> None:
    os.truncate(file.fileno(), MIB)
    for head in (b"", b"head"):
        with pair() as (ours, theirs):
            theirs.close()
            mover.send(ours.fileno(), head, file, 0, MIB, b"", False, nothing)
            (ended,) = mover.wait()
            assert (ended.moved, ended.error, ended.is_files_error) == (0, errno.EPIPE, False)


# ---------------------------------------------------------------- store

EDGES = [1, 7, BLOCK_BYTES, 3 * BLOCK_BYTES, 6 * BLOCK_BYTES, 128 * KIB, 256 * KIB, MIB, 2 * MIB]
SIZES = st.one_of(
    st.integers(1, 20_000),
    st.tuples(st.sampled_from(EDGES), st.integers(-9, 9)).map(lambda one: max(sum(one), 1)),
    st.integers(1, 3 * MIB),
)


@examples(max_examples=150)
@given(
    size=SIZES,
    tail=st.integers(0, 16),
    before=st.binary(max_size=100),
    position=st.integers(0, 5000),
    pieces=st.lists(st.one_of(st.integers(1, 300), st.integers(1, 400 * KIB)), max_size=12),
    seed=st.integers(0, 1000),
)
@example(size=1, tail=0, before=b"", position=0, pieces=[], seed=0)
@example(size=MIB, tail=16, before=b"x", position=1, pieces=[MIB, 1, 1, 1, 1], seed=0)
def test_stored_bytes_equal_the_sent_bytes(  # noqa: PLR0917
    mover: Moving, shared_file: Held, size: int, tail: int, before: bytes, position: int, pieces: list[int], seed: int
) -> None:
    data = Random(seed).randbytes(size)
    os.truncate(shared_file.fileno(), 0)
    os.pwrite(shared_file.fileno(), b"\xaa" * (position + size + 50), 0)
    sent = data + bytes(range(1, tail + 1)) + b"next"
    with pair() as (ours, theirs), beside(lambda: send_in_pieces(theirs, sent, pieces)):
        begun = mover.store(ours.fileno(), shared_file, position, size, crc32c(before), tail, nothing)
        (ended,) = mover.wait()
        assert ended is begun
        assert (ended.moved, ended.error, ended.is_files_error) == (size, 0, False)
        assert ended.tail == bytes(range(1, tail + 1))
        assert ended.crc == crc32c(before + data)
        assert following(ours) == b"next"
    assert content(shared_file) == b"\xaa" * position + data + b"\xaa" * 50


def test_checksums_are_right_for_every_length_around_the_blocks(mover: Moving, file: Held) -> None:
    """Each starts at another alignment of the piece, because the data before it has another length."""
    data = Random(1).randbytes(13 * BLOCK_BYTES)
    with pair() as (ours, theirs):
        for size in [*range(1, 70), *(n * BLOCK_BYTES + more for n in range(1, 13) for more in (-8, -1, 0, 1, 7))]:
            start = size % 61
            piece = data[start : start + size]
            mover.store(ours.fileno(), file, 0, len(piece), crc32c(data[:start]), 0, nothing)
            theirs.sendall(piece)
            (ended,) = mover.wait()
            assert ended.crc == crc32c(data[: start + size]), size


def test_pipelined_requests_are_stored_separately(mover: Moving, file: Held) -> None:
    """All data is in the socket at once; each transfer takes its own bytes and no more."""
    sizes = [300 * KIB, 1, 64 * KIB, 2 * MIB, 5000]
    data = os.urandom(sum(sizes) + 3 * len(sizes))
    with pair() as (ours, theirs), beside(lambda: theirs.sendall(data)):
        at = position = 0
        for size in sizes:
            mover.store(ours.fileno(), file, position, size, 0, 3, nothing)
            (ended,) = mover.wait()
            assert (ended.moved, ended.tail) == (size, data[at + size : at + size + 3])
            assert ended.crc == crc32c(data[at : at + size])
            assert content(file, position) == data[at : at + size]
            at, position = at + size + 3, position + size


@pytest.mark.parametrize("tail", [0, 3])
@pytest.mark.parametrize("missing", [1, 2, 4, 100_000])
def test_writer_that_disconnects_fails_the_transfer(mover: Moving, file: Held, tail: int, missing: int) -> None:
    data = os.urandom(500_000)
    sent = (data + b"abc"[:tail])[:-missing]
    with pair() as (ours, theirs), beside(lambda: send_and_leave(theirs, sent)):
        mover.store(ours.fileno(), file, 0, len(data), 0, tail, nothing)
        (ended,) = mover.wait()
    assert (ended.moved + len(ended.tail), ended.error) == (len(sent), 0)
    assert content(file) == data[: ended.moved]
    assert ended.tail == sent[len(data) :]


@pytest.mark.waits
def test_writer_that_crashes_fails_the_transfer(mover: Moving, file: Held) -> None:
    with tcp_pair() as (ours, theirs):
        transfer = mover.store(ours.fileno(), file, 0, MIB, 0, 0, nothing)
        assert transfer is not None
        theirs.sendall(b"x" * 1000)
        mover.until_moved(transfer, 1000)
        reset(theirs)
        (ended,) = mover.wait()
        assert (ended.moved, ended.error, ended.is_files_error) == (1000, errno.ECONNRESET, False)


def test_full_disk_fails_the_transfer_after_its_end(mover: Moving) -> None:
    """The rest is still received: the next request follows it."""
    data = os.urandom(3 * MIB)
    with pair() as (ours, theirs), beside(lambda: theirs.sendall(data + b"\0\0\0next")):
        mover.store(ours.fileno(), Held("/dev/full"), 0, len(data), 0, 3, nothing)
        (ended,) = mover.wait()
        assert (ended.moved, ended.error, ended.is_files_error) == (len(data), errno.ENOSPC, True)
        assert ended.tail == b"\0\0\0"
        assert following(ours) == b"next"


def test_disk_that_becomes_full_fails_the_transfer(mover: Moving, file: Held) -> None:
    """The first write without enough room is a short one."""
    data = os.urandom(3 * MIB)
    with file_size_limit(1_000_000), pair() as (ours, theirs), beside(lambda: theirs.sendall(data)):
        mover.store(ours.fileno(), file, 0, len(data), 0, 0, nothing)
        (ended,) = mover.wait()
        assert (ended.moved, ended.error, ended.is_files_error) == (len(data), errno.EFBIG, True)
    assert content(file) == data[:1_000_000]


def test_nothing_is_written_after_a_failed_write(mover: Moving, file: Held) -> None:
    """The disk has room again before the end, and writing would leave a gap."""
    with pair() as (ours, theirs):
        with file_size_limit(1000):
            transfer = mover.store(ours.fileno(), file, 0, 5000, 0, 0, nothing)
            assert transfer is not None
            theirs.sendall(b"a" * 3000)
            mover.until_moved(transfer, 3000)
        theirs.sendall(b"b" * 2000)
        (ended,) = mover.wait()
    assert (ended.moved, ended.error, content(file)) == (5000, errno.EFBIG, b"a" * 1000)


def test_tail_may_arrive_byte_by_byte(mover: Moving, file: Held) -> None:
    with pair() as (ours, theirs):
        mover.store(ours.fileno(), file, 0, 1000, 0, 16, nothing)
        for piece in (b"a" * 1000, *(bytes([number]) for number in range(16))):
            theirs.sendall(piece)
            until(lambda: not readable(ours, seconds=0))
        (ended,) = mover.wait()
    assert ended.tail == bytes(range(16))


# ---------------------------------------------------------------- cancel


def test_cancelled_store_writes_nothing_more(mover: Moving, file: Held) -> None:
    with pair() as (ours, theirs):
        transfer = mover.store(ours.fileno(), file, 10, MIB, 0, 3, nothing)
        assert transfer is not None
        theirs.sendall(b"a" * 100_000)
        mover.until_moved(transfer, 100_000)
        assert mover.cancel(transfer) == transfer.moved == 100_000
        assert (transfer.crc, transfer.tail) == (crc32c(b"a" * 100_000), b"")
        theirs.sendall(b"b" * 5000)
        ours.setblocking(True)
        assert ours.recv(9000) == b"b" * 5000, "they are the next one's"
        assert content(file) == bytes(10) + b"a" * 100_000
        assert mover.cancel(transfer) == 100_000, "once more changes nothing"
        assert not mover.has_news(0.05)
        check_store(mover, ours, theirs, file)


def test_store_can_be_cancelled_amid_its_tail(mover: Moving, file: Held) -> None:
    with pair() as (ours, theirs):
        transfer = mover.store(ours.fileno(), file, 0, 1000, 0, 3, nothing)
        assert transfer is not None
        theirs.sendall(b"a" * 1000 + b"\x01\x02")
        until(lambda: not readable(ours, seconds=0) and mover.moved(transfer) == 1000)
        mover.cancel(transfer)
        assert (transfer.moved, transfer.tail) == (1000, b"\x01\x02")
        theirs.sendall(b"\x03")
        assert ours.recv(9) == b"\x03"


def test_cancelled_send_sends_nothing_more(mover: Moving, file: Held) -> None:
    data = os.urandom(16 * MIB)
    os.pwrite(file.fileno(), data, 0)
    got = bytearray()
    with pair() as (ours, theirs):
        transfer = mover.send(ours.fileno(), b"head", file, 0, len(data), b"", False, nothing)
        assert transfer is not None
        read(theirs, 1_000_000, got)
        moved = mover.cancel(transfer)
        assert 0 < moved < len(data)
        ours.shutdown(socket.SHUT_WR)
        read(theirs, len(data), got)
    assert bytes(got) == b"head" + data[:moved]


def test_ended_transfer_can_be_cancelled_before_its_notification(mover: Moving, file: Held) -> None:
    with pair() as (ours, theirs), pair() as (others, third):
        first = mover.store(ours.fileno(), file, 0, 5, 0, 0, nothing)
        second = mover.store(others.fileno(), file, 5, 5, 0, 0, nothing)
        assert first is not None
        theirs.sendall(b"first")
        assert mover.has_news()
        assert mover.cancel(first) == 5
        assert mover.finished() == []
        assert not mover.has_news(0.05)
        third.sendall(b"other")
        assert mover.wait() == [second]
        assert content(file) == b"firstother"
        check_store(mover, ours, theirs, file)


def test_transfer_can_be_cancelled_after_its_notification(mover: Moving, file: Held) -> None:
    """Its slot then belongs to another transfer, which is not affected."""
    with pair() as (ours, theirs):
        first = mover.store(ours.fileno(), file, 0, 5, 0, 0, nothing)
        assert first is not None
        theirs.sendall(b"first")
        mover.wait()
        second = mover.store(ours.fileno(), file, 0, 6, 0, 0, nothing)
        assert (mover.cancel(first), mover.moved(first)) == (5, 5)
        theirs.sendall(b"second")
        assert mover.wait() == [second]
        assert content(file) == b"second"


def test_second_transfer_on_a_socket_is_refused(mover: Moving, file: Held) -> None:
    os.pwrite(file.fileno(), b"x" * 100, 0)
    with pair() as (ours, theirs):
        transfer = mover.store(ours.fileno(), file, 0, 5, 0, 0, nothing)
        for _ in range(2 * SLOTS):
            assert mover.store(ours.fileno(), file, 0, 5, 0, 0, nothing) is None
            assert mover.send(ours.fileno(), b"", file, 0, 5, b"", False, nothing) is None
        theirs.sendall(b"first")
        assert mover.wait() == [transfer]
        mover.send(ours.fileno(), b"", file, 0, 5, b"", False, nothing)
        mover.wait()
        assert theirs.recv(9) == b"first"


def check_store(mover: Moving, ours: socket.socket, theirs: socket.socket, file: Held) -> None:
    """The socket can be in another transfer now."""
    ours.setblocking(False)
    os.truncate(file.fileno(), 0)
    data = os.urandom(5000)
    mover.store(ours.fileno(), file, 0, len(data), 0, 0, nothing)
    theirs.sendall(data)
    (ended,) = mover.wait()
    assert (ended.moved, ended.crc, content(file)) == (5000, crc32c(data), data)


# ---------------------------------------------------------------- many


class Peer:
    """One of many transfers, with the test as its peer."""

    def __init__(self, mover: Moving, random: Random, path: Path) -> None:
        self.mover = mover
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.theirs.setblocking(False)
        self.file = Held(path)
        self.is_store = random.random() < 0.5
        self.data = random.randbytes(random.choice([1, 5000, 128 * KIB, 400 * KIB]))
        self.done = 0
        self.got = bytearray()
        if not self.is_store:
            os.pwrite(self.file.fileno(), self.data, 0)
        self.transfer = self._begin()

    def _begin(self) -> Transfer:
        size, socket = len(self.data), self.ours.fileno()
        begun = (
            self.mover.store(socket, self.file, 0, size, 0, 0, nothing)
            if self.is_store
            else self.mover.send(socket, b"head", self.file, 0, size, b"end", False, nothing)
        )
        assert begun is not None
        return begun

    def play(self, random: Random) -> None:
        """Do a small part of the peer's work."""
        try:
            if self.is_store:
                self.done += self.theirs.send(self.data[self.done : self.done + random.randint(1, 100_000)])
            else:
                self.got += self.theirs.recv(random.randint(1, 100_000))
        except BlockingIOError:
            pass

    def check(self) -> None:
        moved = self.transfer.moved
        if self.is_store:
            assert content(self.file) == self.data[:moved]
            assert self.transfer.crc == crc32c(self.data[:moved])
            self.theirs.close()
            rest = bytearray()
            self.ours.setblocking(True)
            read(self.ours, self.done, rest)
            assert rest == self.data[moved : self.done], "not one byte more was taken"
        else:
            self.ours.close()
            self.theirs.setblocking(True)
            read(self.theirs, len(self.data) + 10, self.got)
            whole = b"head" + self.data + b"end"
            assert whole.startswith(self.got)
            assert min(max(len(self.got) - 4, 0), len(self.data)) == moved
        self.ours.close()
        self.theirs.close()


@pytest.mark.parametrize("seed", range(3))
def test_many_concurrent_transfers_with_cancellations(mover: Moving, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    peers = [Peer(mover, random, tmp_path / str(number)) for number in range(220)]
    going = {peer.transfer: peer for peer in peers}
    deadline = time.monotonic() + SECONDS_MAX
    while going:
        assert time.monotonic() < deadline
        for peer in random.sample(list(going.values()), min(len(going), 30)):
            peer.play(random)
        if random.random() < 0.2:
            peer = random.choice(list(going.values()))
            mover.cancel(peer.transfer)
            del going[peer.transfer]
            peer.check()
        for transfer in mover.finished():
            peer = going.pop(transfer)
            assert (transfer.error, transfer.moved) == (0, len(peer.data))
            peer.check()
            assert peer.is_store or peer.got.endswith(b"end")
    assert mover.finished() == []


def test_transfers_beyond_the_slots_are_refused(mover: Moving, file: Held) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * SLOTS + 200
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"{needed} files can't be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    copies: list[int] = []
    try:
        with pair() as (ours, theirs):
            copies = [os.dup(ours.fileno()) for _ in range(SLOTS + 1)]
            transfers = [mover.store(copy, file, 0, 5, 0, 0, nothing) for copy in copies]
            begun = [transfer for transfer in transfers if transfer is not None]
            assert transfers[-1] is None
            assert len(begun) == SLOTS
            assert mover.send(copies[-1], b"", file, 0, 5, b"", False, nothing) is None
            for transfer in begun:
                assert mover.cancel(transfer) == 0
            check_store(mover, ours, theirs, file)
    finally:
        for copy in copies:
            os.close(copy)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# ---------------------------------------------------------------- beginning and end


def test_file_is_referenced_as_long_as_needed(mover: Moving, tmp_path: Path) -> None:
    with pair() as (ours, theirs):
        for is_cancelled in (False, True):
            file = Held(tmp_path / "file")
            reference = weakref.ref(file)
            transfer = mover.store(ours.fileno(), file, 0, 4, 0, 0, nothing)
            assert transfer is not None
            del file
            assert reference() is not None
            if is_cancelled:
                mover.cancel(transfer)
            else:
                theirs.sendall(b"data")
                mover.wait()
                assert (tmp_path / "file").read_bytes() == b"data"
            assert reference() is None


def test_mover_can_be_stopped_amid_transfers(file: Held) -> None:
    moving = Moving()
    os.pwrite(file.fileno(), b"x" * 4 * MIB, 0)
    with pair() as (ours, theirs), pair() as (others, third):
        moving.store(ours.fileno(), file, 0, MIB, 0, 0, nothing)
        sending = moving.send(others.fileno(), b"", file, 0, 4 * MIB, b"", False, nothing)
        assert sending is not None
        assert third.recv(1)
        moving.end()
        theirs.sendall(b"a" * 1000)
        assert ours.recv(9000) == b"a" * 1000
        assert content(file)[:1000] == b"x" * 1000
        sent = moving.moved(sending)
        got = bytearray(b"x")
        others.shutdown(socket.SHUT_WR)
        read(third, 4 * MIB, got)
        assert len(got) == sent


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    def start_and_stop() -> None:
        moving = Moving()
        file = Held(tmp_path / "file")
        with pair() as (ours, theirs), pair() as (others, _):
            moving.store(ours.fileno(), file, 0, 4, 0, 0, nothing)
            stalled = moving.store(others.fileno(), file, 0, 4, 0, 0, nothing)
            theirs.sendall(b"data")
            moving.wait()
            assert stalled is not None
            moving.cancel(stalled)
            moving.store(ours.fileno(), file, 0, 4, 0, 0, nothing)  # Stopping closes this one too.
            moving.end()

    start_and_stop()
    gc.collect()
    before = descriptors()
    for _ in range(20):
        start_and_stop()
    gc.collect()
    until(lambda: descriptors() <= before)


def test_cancelled_transfer_is_not_reported(file: Held) -> None:
    """Not even if it ended together with the transfer whose end caused the cancellation."""
    reported: list[Transfer] = []

    async def work() -> None:
        movers = Movers(asyncio.get_running_loop(), THREADS)
        with pair() as (ours, theirs), pair() as (others, third):
            transfers: list[Transfer] = []

            def ended(transfer: Transfer) -> None:
                reported.append(transfer)
                for one in transfers:
                    if one is not transfer:
                        movers.cancel(one)

            for end, position in ((ours, 0), (others, 3)):
                transfer = movers.store(end.fileno(), file, position, 3, crc=0, tail_bytes=0, done=ended)
                assert transfer is not None
                transfers.append(transfer)
            theirs.sendall(b"one")
            third.sendall(b"two")
            until(lambda: content(file) == b"onetwo")  # The loop gets both ends at once.
            while not reported:
                await asyncio.sleep(0)
            await asyncio.sleep(0.01)
        movers.stop()

    asyncio.run(work())
    assert len(reported) == 1
