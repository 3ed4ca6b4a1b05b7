"""TLS connections on real sockets: data, failures, and fairness to other connections."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop

from odradek.core.kernel.moment import Moment
from odradek.log.files.disk import FileSlice, RealDisk
from odradek.net.clients import secure_connection as secure
from odradek.net.clients.secure_connection import ListenerTls, SecureFront, SecureTransport
from odradek.net.loop.active_connections import ActiveConnections
from odradek.net.loop.traffic import Traffic
from odradek.net.shell.outbox import outbox_of
from odradek.tls.ssl_contexts import Contexts, client_context, server_context
from odradek.tls.tls_config import TlsConfig
from odradek.wire.schema.primitives import Chunk
from support.certificates import Authority, Known

pytestmark = [pytest.mark.slow, pytest.mark.waits]

SECONDS_MAX = 60


class Shell:
    """The part of a shell that outboxes need."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.traffic = Traffic()
        self.movers: Any = None
        self.active_connections = ActiveConnections()
        self._pool = ThreadPoolExecutor(1)

    def in_thread(self, work: Callable[[], bytes], then: Callable[[Future[bytes]], None]) -> None:
        self._pool.submit(work).add_done_callback(lambda done: self.loop.call_soon_threadsafe(then, done))

    def soon(self, work: Callable[[], None]) -> None:
        self.loop.call_soon(work)

    def now(self) -> Moment:
        return Moment(0, int(self.loop.time() * 1000))

    def read_failed(self, path: str, error: OSError) -> None: ...


class Door:
    """A listener that counts its connections."""

    name = "SSL"

    def __init__(self, contexts: Contexts) -> None:
        self.loop = Shell()
        self.entrance = ListenerTls(contexts)
        self.inside: set[object] = set()
        self.made: list[RecordingProtocol] = []

    def on_connected(self, connection: object, address: str) -> None:
        self.inside.add(connection)

    def forget(self, connection: object) -> None:
        self.inside.discard(connection)

    def now_ms(self) -> int:
        return int(self.loop.loop.time() * 1000)

    def accepted(self) -> SecureFront:
        self.made.append(RecordingProtocol())
        return SecureFront(self, self.entrance, self.made[-1])  # type: ignore[arg-type]  # Shell has what it takes.


class RecordingProtocol(asyncio.BufferedProtocol):
    """A connection that records its input, in a buffer of another size than any record."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.calls: list[str] = []
        self.sizes: list[int] = []
        self.turns: list[int] = []  # Turns of the loop in which data arrived.
        self._turn = 0
        self._space = memoryview(bytearray(50_001))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.calls.append("made")
        self.transport = cast(SecureTransport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.calls.append("lost")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._space

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._space[:nbytes]
        self.sizes.append(nbytes)
        self.turns.append(self._turn)
        asyncio.get_running_loop().call_soon(self._turn_over)

    def _turn_over(self) -> None:
        self._turn = len(self.turns)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def known(authority: Authority) -> Known:
    return authority.known()


@pytest.fixture
def contexts(authority: Authority, known: Known) -> Contexts:
    chain, key = known.chain, known.key
    pem = {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
    return Contexts(TlsConfig.parse(pem), server_context)


@pytest.fixture
def outer(authority: Authority) -> ssl.SSLContext:
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority.pem}
    return client_context(TlsConfig.parse(trust))


def run(contexts: Contexts, work: Callable[[Door, int], Any]) -> None:
    """Run `work` with the listener and its port, on a uvloop loop."""

    async def serve() -> None:
        door = Door(contexts)
        server = await door.loop.loop.create_server(door.accepted, "127.0.0.1", 0)
        try:
            await asyncio.wait_for(work(door, server.sockets[0].getsockname()[1]), SECONDS_MAX)
        finally:
            server.close()

    uvloop.run(serve())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


@contextmanager
def talking(port: int, outer: ssl.SSLContext, talk: Callable[[ssl.SSLSocket], None]) -> Iterator[threading.Thread]:
    """Run a client in a thread."""

    def go() -> None:
        plain = socket.create_connection(("127.0.0.1", port), SECONDS_MAX)
        with outer.wrap_socket(plain, server_hostname="localhost") as stream:
            talk(stream)

    thread = threading.Thread(target=go)
    thread.start()
    yield thread


async def wait_for_thread(thread: threading.Thread) -> None:
    await until(lambda: not thread.is_alive())


def test_data_and_end_of_stream_arrive(contexts: Contexts, outer: ssl.SSLContext) -> None:
    sent = os.urandom(1_000_000)

    async def work(door: Door, port: int) -> None:
        with talking(port, outer, lambda stream: stream.sendall(sent)) as thread:
            await wait_for_thread(thread)
            await until(lambda: door.made[0].calls == ["made", "lost"])
            assert door.made[0].received == sent
            assert not door.inside

    run(contexts, work)


def test_one_byte_records_take_short_turns(contexts: Contexts, outer: ssl.SSLContext) -> None:
    """Each takes nearly as long as one of 16 KiB, and one read of a socket may return 10,000."""
    data = os.urandom(40_000)

    def send(stream: ssl.SSLSocket) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = outer.wrap_bio(incoming, outgoing, server_hostname="localhost")
        plain = socket.create_connection(stream.getpeername(), SECONDS_MAX)
        while True:
            try:
                session.do_handshake()
                break
            except ssl.SSLWantReadError:
                plain.sendall(outgoing.read())
                incoming.write(plain.recv(65_536))
        for byte in data:
            session.write(bytes([byte]))
        plain.sendall(outgoing.read())
        plain.close()

    async def work(door: Door, port: int) -> None:
        with talking(port, outer, send) as thread:
            await wait_for_thread(thread)
            await until(lambda: len(door.made) == 2 and door.made[1].calls == ["made", "lost"])
            assert door.made[1].received == data
            assert max(door.made[1].sizes) <= secure.RECORDS_PER_TURN
            assert len(set(door.made[1].turns)) >= len(data) / secure.RECORDS_PER_TURN / 2

    run(contexts, work)


class ColdSlice(FileSlice):
    """A slice that is never in the page cache."""

    def read_cached(self, space: memoryview) -> int:
        return 0

    def part(self, start: int, size: int) -> ColdSlice:
        return ColdSlice(self.file, self.position + start, min(size, self.size - start))


@pytest.mark.parametrize("kind", [FileSlice, ColdSlice])
def test_responses_arrive_in_order_from_memory_and_files(
    contexts: Contexts, outer: ssl.SSLContext, tmp_path: Path, kind: type[FileSlice]
) -> None:
    content = os.urandom(3_000_000)
    (tmp_path / "log").write_bytes(content)
    file = RealDisk().open(str(tmp_path / "log"))
    received = bytearray()

    def listen(stream: ssl.SSLSocket) -> None:
        while data := stream.recv(30_000):
            received.extend(data)

    async def work(door: Door, port: int) -> None:
        with talking(port, outer, listen) as thread:
            await until(lambda: bool(door.made and door.made[0].calls))
            outbox = outbox_of(door.made[0].transport, door.loop, lambda: None)  # type: ignore[arg-type]
            chunks = [b"front", kind(file, 10, 2_500_000), b"end", b"x" * 200_000, kind(file, 0, 100), b""]
            outbox.put([cast(Chunk, chunk) for chunk in chunks])
            outbox.put([b"last"])
            outbox.close_when_empty()
            await wait_for_thread(thread)

    run(contexts, work)
    assert received == b"front" + content[10:2_500_010] + b"end" + b"x" * 200_000 + content[:100] + b"last"


def test_encryption_is_paced_by_a_slow_reader(contexts: Contexts, outer: ssl.SSLContext, tmp_path: Path) -> None:
    size = 64 * 1024 * 1024
    (tmp_path / "log").write_bytes(bytes(size))
    file = RealDisk().open(str(tmp_path / "log"))
    may_continue, received = threading.Event(), []

    def listen(stream: ssl.SSLSocket) -> None:
        may_continue.wait(SECONDS_MAX)
        total = 0
        while total < size:
            total += len(stream.recv(1 << 20))
        received.append(total)

    async def work(door: Door, port: int) -> None:
        with talking(port, outer, listen) as thread:
            await until(lambda: bool(door.made and door.made[0].calls))
            drained: list[bool] = []
            outbox = outbox_of(door.made[0].transport, door.loop, lambda: drained.append(True))  # type: ignore[arg-type]
            outbox.put([cast(Chunk, FileSlice(file, 0, size))])
            sent = -1
            while door.loop.traffic.bytes_out != sent:  # Until the socket is full.
                sent = door.loop.traffic.bytes_out
                await asyncio.sleep(0.1)
            assert outbox.is_backed_up
            assert sent < size / 2
            may_continue.set()
            await wait_for_thread(thread)
            assert not outbox.is_backed_up
            assert drained

    run(contexts, work)
    assert received == [size]


def test_peer_that_ignores_tls_responses_is_disconnected(contexts: Contexts, outer: ssl.SSLContext) -> None:
    may_end, may_continue = threading.Event(), threading.Event()

    def send(stream: ssl.SSLSocket) -> None:
        may_continue.wait(SECONDS_MAX)
        stream.sendall(b"more")
        may_end.wait(SECONDS_MAX)

    async def work(door: Door, port: int) -> None:
        with talking(port, outer, send) as thread:
            await until(lambda: bool(door.made and door.made[0].calls))
            recording = door.made[0]
            outbox = outbox_of(recording.transport, door.loop, lambda: None)  # type: ignore[arg-type]
            outbox.put([b"x" * 60_000_000])
            assert outbox.is_backed_up
            # Like the state after a peer's key updates, for which Python has no call.
            recording.transport._session._to_send += b"y" * (secure.UNSENT_BYTES_MAX + 1)
            may_continue.set()
            await until(lambda: recording.calls == ["made", "lost"])
            may_end.set()
            await wait_for_thread(thread)

    run(contexts, work)


def test_paused_connection_gets_all_data_later(contexts: Contexts, outer: ssl.SSLContext) -> None:
    async def work(door: Door, port: int) -> None:
        sent = os.urandom(500_000)
        with talking(port, outer, lambda stream: (stream.sendall(sent), stream.recv(1))) as thread:  # type: ignore[arg-type,return-value,func-returns-value]
            await until(lambda: bool(door.made and door.made[0].calls))
            recording = door.made[0]
            recording.transport.pause_reading()
            before = len(recording.received)
            await asyncio.sleep(0.1)
            assert len(recording.received) == before
            recording.transport.resume_reading()
            await until(lambda: recording.received == sent)
            recording.transport.close()
            await wait_for_thread(thread)

    run(contexts, work)


def test_handshake_times_out(
    contexts: Contexts, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secure, "HANDSHAKE_SECONDS_MAX", 0.1)

    async def work(door: Door, port: int) -> None:
        streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        streams[1][1].write(b"\x16\x03\x01")
        for reader, _ in streams:
            assert await reader.read() == b""
        await until(lambda: not door.inside)
        assert [recording.calls for recording in door.made] == [[], [], []], "the connection behind never knew of it"

    run(contexts, work)
    lines = [record.getMessage() for record in caplog.records if record.name == secure.__name__]
    assert [line.partition(" failed: ")[2].partition(" (")[0] for line in lines] == [
        "the peer timed out before sending data",
        "the peer timed out during the TLS handshake",
    ], "each reason once a second"


def test_alert_arrives_while_the_peer_keeps_sending(contexts: Contexts, known: Known) -> None:
    stranger = ssl.create_default_context()  # It trusts the system's authorities.
    errors: list[str] = []

    def refuse(port: int) -> None:
        try:
            stranger.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost")
        except ssl.SSLCertVerificationError as error:
            errors.append(error.verify_message)

    async def work(door: Door, port: int) -> None:
        await asyncio.to_thread(refuse, port)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00" + b"\x00" * 100_000)
        answer = await reader.read()
        assert answer[:1] == b"\x15", "an alert, and not a reset connection"
        writer.close()
        await until(lambda: not door.inside)

    run(contexts, work)
    assert len(errors) == 1
