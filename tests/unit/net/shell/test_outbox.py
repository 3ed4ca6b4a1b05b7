"""The outbox: its content arrives in order, however slowly the peer reads and wherever the bytes are."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop

from odradek.base.limits import SEND_BYTES_PER_TURN
from odradek.core.kernel.moment import Moment
from odradek.log.files.disk import DiskFailed, File, FileSlice, RealDisk
from odradek.net.loop.active_connections import CHANGES_MAX, ActiveConnections
from odradek.net.loop.traffic import Traffic
from odradek.net.native.movers import HAS_MOVER, Movers
from odradek.net.shell.outbox import COPIED_BYTES_MAX, MOVED_BYTES_MIN, Copies, Outbox
from odradek.wire.schema.primitives import Chunk
from support.limits import descriptors


class Loop:
    """The loop's side of an outbox, as provided by the shell."""

    def __init__(self) -> None:
        self.traffic = Traffic()
        self.loop = asyncio.get_running_loop()
        self.movers = Movers(self.loop, 2)
        self.copies = Copies()
        self.active_connections = ActiveConnections()
        self._threads = ThreadPoolExecutor(2)
        self.unreadable: list[str] = []

    def in_thread(self, work: Callable[[], bytes], then: Callable[[Future[bytes]], None]) -> None:
        self._threads.submit(work).add_done_callback(lambda done: self.loop.call_soon_threadsafe(then, done))

    def soon(self, work: Callable[[], None]) -> None:
        self.loop.call_soon(work)

    def now(self) -> Moment:
        return Moment(0, time.monotonic_ns() // 1_000_000)

    def read_failed(self, path: str, error: OSError) -> None:
        self.unreadable.append(path)

    def record_others(self) -> None:
        """Record so many other connections that none is alone any more."""
        for one in [object() for _ in range(CHANGES_MAX)]:
            self.active_connections.on_received(one, self.now().steady)


class Protocol(asyncio.Protocol):
    """A protocol that connects an outbox to its transport, as a connection does."""

    outbox: Outbox
    loop: Loop
    is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.outbox = Outbox(cast(asyncio.WriteTransport, transport), self.loop, lambda: None)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        self.outbox.drop()


class ColdSlice(FileSlice):
    """A slice that is never in the page cache."""

    def send_to(self, socket: int, size_max: int) -> None:
        return None

    def read_cached(self, space: memoryview) -> int:
        return 0

    def part(self, start: int, size: int) -> ColdSlice:
        return ColdSlice(self.file, self.position + start, min(size, self.size - start))


class FailingSlice(ColdSlice):
    def part(self, start: int, size: int) -> FailingSlice:
        return FailingSlice(self.file, self.position + start, min(size, self.size - start))

    def read(self) -> bytes:
        raise DiskFailed(5, "Input/output error", "nowhere")


@pytest.fixture
def file(tmp_path: Path) -> File:
    (tmp_path / "file").write_bytes(bytes(range(256)) * 40_000)
    return RealDisk().open(str(tmp_path / "file"))


def run(work: Coroutine[Any, Any, None], runner: Callable[[Coroutine[Any, Any, None]], None] = uvloop.run) -> None:
    async def run_on_loop() -> None:
        Protocol.loop = Loop()
        try:
            await asyncio.wait_for(work, 60)
        finally:
            Protocol.loop.movers.stop()

    runner(run_on_loop())


async def connect() -> tuple[Protocol, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(10)
    loop = asyncio.get_running_loop()
    _, protocol = await loop.connect_accepted_socket(Protocol, ours)
    return protocol, theirs


def read_to_the_end(peer: socket.socket) -> bytes:
    data = bytearray()
    while piece := peer.recv(1 << 16):
        data += piece
    return bytes(data)


@pytest.mark.parametrize("has_descriptors", [True, False])
def test_everything_arrives_in_order(file: File, has_descriptors: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def dup(descriptor: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    async def work() -> None:
        if not has_descriptors:
            monkeypatch.setattr(os, "dup", dup)
        protocol, peer = await connect()
        whole = FileSlice(file, 0, 10_240_000)
        assert whole.size > 2 * SEND_BYTES_PER_TURN
        chunks: list[Chunk] = [
            b"one",
            FileSlice(file, 5, 1000),
            b"two" * 100_000,
            ColdSlice(file, 7, 3_000_000),
            b"three",
            whole,
            *(b"%d" % number for number in range(1000)),
            ColdSlice(file, 0, 1),
            FileSlice(file, 10_239_999, 1),
            b"the end",
        ]
        expected = b"".join(chunk if isinstance(chunk, bytes) else slice_bytes(chunk) for chunk in chunks)
        reading = asyncio.create_task(asyncio.to_thread(read_to_the_end, peer))
        for start in range(0, len(chunks), 3):
            protocol.outbox.put(chunks[start : start + 3])
        protocol.outbox.close_when_empty()
        assert await reading == expected

    run(work())


def slice_bytes(chunk: Chunk) -> bytes:
    assert isinstance(chunk, FileSlice)
    return chunk.read()


def test_no_descriptor_is_left_open(file: File) -> None:
    async def open_and_close() -> None:
        protocol, peer = await connect()
        protocol.outbox.put([b"front", FileSlice(file, 0, 10_240_000)])
        assert protocol.outbox.is_backed_up
        peer.close()
        while not protocol.is_lost:
            await asyncio.sleep(0.01)

    async def work() -> None:
        await open_and_close()
        await asyncio.sleep(0.05)  # The transport closes its own after that.
        before = descriptors()
        for _ in range(5):
            await open_and_close()
        while descriptors() > before:  # Brokers of other tests in this process may open a file.
            await asyncio.sleep(0.01)

    run(work())


class CountedSlice(FileSlice):
    reads = 0

    def read_cached(self, space: memoryview) -> int:
        CountedSlice.reads += 1
        return super().read_cached(space)

    def send_to(self, socket: int, size_max: int) -> int | None:
        raise AssertionError("it is small enough to be copied")


def test_small_slices_are_written_with_their_neighbours(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = os.write

    def counted(descriptor: int, data: bytes) -> int:
        written.append(len(data))
        return write(descriptor, data)

    async def work() -> None:
        protocol, peer = await connect()
        monkeypatch.setattr(os, "write", counted)
        protocol.outbox.put([b"head", CountedSlice(file, 3, 100), b"end", b"head", CountedSlice(file, 9, 0), b"end"])
        expected = b"head" + bytes(range(3, 103)) + b"end" + b"headend"
        assert written == [len(expected)]
        assert peer.recv(1000) == expected
        peer.close()

    run(work())


def test_writes_copy_little_data(file: File) -> None:
    async def work() -> None:
        protocol, peer = await connect()
        half = COPIED_BYTES_MAX // 2 + 1
        reading = asyncio.create_task(asyncio.to_thread(read_to_the_end, peer))
        protocol.outbox.put([b"head", FileSlice(file, 0, half), b"between", FileSlice(file, 256, half), b"end"])
        protocol.outbox.close_when_empty()
        slices = slice_bytes(FileSlice(file, 0, half)), slice_bytes(FileSlice(file, 256, half))
        assert await reading == b"head" + slices[0] + b"between" + slices[1] + b"end"

    run(work())


def test_slice_sent_to_many_peers_is_read_once(file: File) -> None:
    copies = Copies()
    CountedSlice.reads = 0
    with copies:
        for _ in range(5):
            assert copies.of(CountedSlice(file, 3, 100)) == bytes(range(3, 103))
        assert CountedSlice.reads == 1
        assert copies.of(CountedSlice(file, 4, 100)) == bytes(range(4, 104))
        assert copies.of(ColdSlice(file, 5, 100)) is None
        assert copies.of(CountedSlice(file, 4, 100)) == bytes(range(4, 104))
        assert CountedSlice.reads == 2
    assert copies.of(CountedSlice(file, 4, 100)) == bytes(range(4, 104))
    assert CountedSlice.reads == 3, "nothing is kept for later"


class Other(asyncio.Protocol):
    """Another connection with data that the loop has not read yet."""

    def __init__(self, events: list[str]) -> None:
        self.events = events

    def data_received(self, data: bytes) -> None:
        self.events.append("other")


@pytest.mark.skipif(not HAS_MOVER, reason="the mover was built without a compiler")
@pytest.mark.parametrize("head", [(), (b"head",)])
@pytest.mark.parametrize("runner", [uvloop.run, asyncio.run])
@pytest.mark.parametrize("kind", ["one of many", "alone", "a follower"])
def test_large_send_gives_way_to_requests_of_others(
    file: File,
    head: tuple[bytes, ...],
    runner: Callable[[Coroutine[Any, Any, None]], None],
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events: list[str] = []
    send = Movers.send
    at_once = kind != "one of many"

    def begun(*arguments: Any, **keywords: Any) -> Any:
        events.append("begun")
        return send(*arguments, **keywords)

    async def work() -> None:
        monkeypatch.setattr(Movers, "send", begun)
        protocol, peer = await connect()
        ours, other = socket.socketpair()
        ours.setblocking(False)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: Other(events), ours)
        await asyncio.sleep(0.05)
        if kind != "alone":
            protocol.loop.record_others()
        protocol.outbox.must_yield = kind != "a follower"
        other.sendall(b"?")
        size = MOVED_BYTES_MIN
        protocol.outbox.put([*head, FileSlice(file, 3, size), b"end"])
        protocol.outbox.put([*head, FileSlice(file, 5, size), b"end"])
        assert bool(events) == at_once  # The first may have been sent already, and the second started.
        protocol.outbox.close_when_empty()
        received = await asyncio.to_thread(read_to_the_end, peer)
        first, second = (b"".join(head) + slice_bytes(FileSlice(file, at, size)) + b"end" for at in (3, 5))
        assert received == first + second
        assert sorted(events) == ["begun", "begun", "other"]
        assert events[0] == ("begun" if at_once else "other")
        other.close()

    run(work(), runner)


def test_peer_that_left_before_its_turn_is_sent_nothing(file: File) -> None:
    async def work() -> None:
        protocol, peer = await connect()
        protocol.loop.record_others()
        protocol.outbox.put([b"head", FileSlice(file, 0, MOVED_BYTES_MIN)])
        assert protocol.outbox.is_backed_up
        protocol.outbox.drop()
        await asyncio.sleep(0.05)
        peer.setblocking(False)
        with pytest.raises(BlockingIOError):
            peer.recv(1)
        peer.close()

    run(work())


def test_outbox_of_a_peer_that_does_not_read_is_backed_up(file: File) -> None:
    async def work() -> None:
        protocol, peer = await connect()
        protocol.outbox.put([FileSlice(file, 0, 10_240_000)])
        await asyncio.sleep(0.05)
        assert protocol.outbox.is_backed_up
        reading = asyncio.create_task(asyncio.to_thread(read_to_the_end, peer))
        protocol.outbox.close_when_empty()
        assert len(await reading) == 10_240_000
        assert not protocol.outbox.is_backed_up

    run(work())


@pytest.mark.parametrize("kind", [FileSlice, FailingSlice])
def test_unreadable_bytes_end_the_connection(file: File, kind: type[FileSlice]) -> None:
    """Their length was already sent; any other bytes in their place would be taken for records."""

    async def work() -> None:
        protocol, peer = await connect()
        protocol.outbox.put([b"length", kind(file, 10_240_000 - 10, 1000), b"after"])
        received = await asyncio.to_thread(read_until_closed, peer)
        assert received in (b"", b"length", b"length" + slice_bytes(FileSlice(file, 10_240_000 - 10, 10)))
        await asyncio.sleep(0.05)
        assert protocol.is_lost
        assert protocol.loop.unreadable == [file.path if kind is FileSlice else "nowhere"]

    run(work())


def read_until_closed(peer: socket.socket) -> bytes:
    try:
        return read_to_the_end(peer)
    except ConnectionError:
        return b""


def test_nothing_is_written_after_a_disconnect(file: File) -> None:
    """The descriptor of a closed socket is soon reused: a late read must not write there."""

    class SlowSlice(ColdSlice):
        def part(self, start: int, size: int) -> SlowSlice:
            return SlowSlice(self.file, self.position + start, min(size, self.size - start))

        def read(self) -> bytes:
            may_continue.wait(5)
            return super().read()

    may_continue = threading.Event()

    async def work() -> None:
        protocol, peer = await connect()
        protocol.outbox.put([b"first", SlowSlice(file, 0, 1000), b"last"])
        assert await asyncio.to_thread(peer.recv, 5) == b"first"
        peer.close()
        # Until the transport detects it.
        while not protocol.is_lost:
            protocol.outbox.put([b"x"])
            may_continue.set()
            await asyncio.sleep(0.01)
        other, third = socket.socketpair()
        protocol.outbox.put([b"for nobody"])
        await asyncio.sleep(0.05)
        for one in (other, third):
            one.setblocking(False)
            with pytest.raises(BlockingIOError):
                one.recv(1)
        other.close()
        third.close()

    run(work())
