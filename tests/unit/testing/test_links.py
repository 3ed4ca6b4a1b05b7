"""Connections of a broker's event loop that are cut or slow: held, delayed and lost data."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from odradek.base.units import BrokerId
from odradek.testing.links import LinkedLoop
from odradek.testing.network import NO_CUTS, Network, Partition, cuts_between

ONE, TWO = BrokerId(1), BrokerId(2)
SECONDS_MAX = 120
HOUR_SECONDS = 3600


class Channel(asyncio.BufferedProtocol):
    """A connection that records the received data."""

    def __init__(self) -> None:
        self.received = b""
        self.is_lost = False
        self._buffer = bytearray(100)
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]


class Linked:
    """The event loop of broker 1 in its own thread, and a listening socket of broker 2."""

    def __init__(self) -> None:
        self.network = Network(2)
        self.peer = socket.create_server(("127.0.0.1", 0))
        self.peer.settimeout(SECONDS_MAX)
        self.network.ports[self.peer.getsockname()[1]] = TWO
        self.loop = LinkedLoop(self.network, ONE)
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        self.peer.close()

    def connecting(self) -> Future[Channel]:
        async def connect() -> Channel:
            channel = Channel()
            await self.loop.create_connection(lambda: channel, *self.peer.getsockname())
            return channel

        return asyncio.run_coroutine_threadsafe(connect(), self.loop)

    def connected(self) -> tuple[Channel, socket.socket]:
        connecting = self.connecting()
        accepted, _ = self.peer.accept()
        accepted.settimeout(SECONDS_MAX)
        return connecting.result(SECONDS_MAX), accepted

    def write(self, channel: Channel, data: bytes) -> None:
        self.call(lambda: channel.transport.write(data))

    def call(self, function: Any) -> Any:
        async def called() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(called(), self.loop).result(SECONDS_MAX)

    def until(self, condition: Any) -> None:
        async def wait() -> None:
            while not condition():
                await asyncio.sleep(0.005)

        asyncio.run_coroutine_threadsafe(wait(), self.loop).result(SECONDS_MAX)

    def cut(self, first: BrokerId, second: BrokerId, *, one_way: bool = False) -> Partition:
        sides = [frozenset((first,)), frozenset((second,))]
        return self.network.add(cuts_between(sides, self.network.nodes, one_way=one_way), lambda: None)


@pytest.fixture
def linked() -> Iterator[Linked]:
    linked = Linked()
    yield linked
    linked.end()


def is_silent(peer: socket.socket) -> bool:
    """Return True if neither data nor the end of the stream can be read."""
    peer.setblocking(False)
    try:
        return not peer.recv(1) and False
    except BlockingIOError:
        return True
    finally:
        peer.settimeout(SECONDS_MAX)


def read(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = peer.recv(size - len(data))
        assert piece, f"the connection ended after {data!r}"
        data += piece
    return data


def test_connection_works_without_a_partition(linked: Linked) -> None:
    channel, peer = linked.connected()
    linked.write(channel, b"asked")
    assert read(peer, 5) == b"asked"
    peer.sendall(b"answered")
    linked.until(lambda: channel.received == b"answered")
    peer.close()
    linked.until(lambda: channel.is_lost)


def test_data_sent_during_a_partition_arrives_in_order_after_healing(linked: Linked) -> None:
    channel, peer = linked.connected()
    linked.write(channel, b"0")
    assert read(peer, 1) == b"0"
    with linked.cut(ONE, TWO):
        for number in range(1, 10):
            linked.write(channel, b"%d" % number)
        peer.sendall(b"answered")
        assert is_silent(peer)
        assert linked.call(lambda: channel.received) == b""
    linked.write(channel, b"!")
    assert read(peer, 10) == b"123456789!"
    linked.until(lambda: channel.received == b"answered")


def test_one_way_partition_cuts_one_direction(linked: Linked) -> None:
    channel, peer = linked.connected()
    with linked.cut(ONE, TWO, one_way=True):
        linked.write(channel, b"lost")
        peer.sendall(b"heard")
        linked.until(lambda: channel.received == b"heard")
        assert is_silent(peer)
    assert read(peer, 4) == b"lost"
    with linked.cut(TWO, ONE, one_way=True):
        linked.write(channel, b"heard")
        assert read(peer, 5) == b"heard"
        peer.sendall(b", too")
        assert linked.call(lambda: channel.received) == b"heard"
    linked.until(lambda: channel.received == b"heard, too")


@pytest.mark.parametrize(("first", "second"), [(ONE, TWO), (TWO, ONE)])
def test_connecting_completes_after_healing(linked: Linked, first: BrokerId, second: BrokerId) -> None:
    partition = linked.cut(first, second, one_way=True)
    connecting = linked.connecting()
    linked.call(lambda: None)
    linked.peer.setblocking(False)
    with pytest.raises(BlockingIOError):
        linked.peer.accept()
    assert not connecting.done()
    another = linked.cut(ONE, TWO)
    partition.heal()
    assert not connecting.done()
    another.heal()
    linked.peer.settimeout(SECONDS_MAX)
    linked.peer.accept()[0].close()
    connecting.result(SECONDS_MAX)


def test_cancelled_connect_opens_no_connection(linked: Linked) -> None:
    with linked.cut(ONE, TWO):
        connecting = linked.connecting()
        linked.call(lambda: None)
        connecting.cancel()
    _, peer = linked.connected()
    peer.close()


def test_data_of_an_aborted_connection_does_not_arrive(linked: Linked) -> None:
    channel, peer = linked.connected()
    with linked.cut(ONE, TWO):
        linked.write(channel, b"given up")
        linked.call(channel.transport.abort)
        linked.until(lambda: channel.is_lost)
    assert peer.recv(1) == b""


def test_end_of_stream_arrives_after_healing(linked: Linked) -> None:
    channel, peer = linked.connected()
    with linked.cut(ONE, TWO):
        peer.close()
        assert not linked.call(lambda: channel.is_lost)
    linked.until(lambda: channel.is_lost)


@pytest.mark.waits
def test_connections_to_other_servers_are_not_affected(linked: Linked) -> None:
    with linked.cut(ONE, TWO), socket.create_server(("127.0.0.1", 0)) as other:
        channel = Channel()
        connecting = asyncio.run_coroutine_threadsafe(
            linked.loop.create_connection(lambda: channel, *other.getsockname()), linked.loop
        )
        connecting.result(SECONDS_MAX)
        linked.write(channel, b"one")
        accepted, _ = other.accept()
        with accepted:
            assert read(accepted, 3) == b"one"


@pytest.mark.waits
def test_stopped_loop_does_not_block_a_partition() -> None:
    linked = Linked()
    linked.end()
    linked.cut(ONE, TWO)
    unused = LinkedLoop(linked.network, ONE)
    unused.close()
    linked.network.clear()


# Slow ones.


def slow(linked: Linked, *, seconds: float, one_way: bool = False) -> Partition:
    ways = cuts_between([frozenset((ONE,)), frozenset((TWO,))], linked.network.nodes, one_way=one_way)
    return linked.network.add(NO_CUTS, lambda: None, dict.fromkeys(ways, seconds))


def test_data_over_a_slow_connection_arrives_complete_and_in_order(linked: Linked) -> None:
    channel, peer = linked.connected()
    request = b"".join(b"%d," % number for number in range(300))
    with slow(linked, seconds=0.01):
        for number in range(300):
            linked.write(channel, b"%d," % number)
        assert read(peer, len(request)) == request
        peer.sendall(request)  # More than the buffer holds.
        linked.until(lambda: channel.received == request)
        peer.close()
        linked.until(lambda: channel.is_lost)


def test_delayed_data_arrives_when_the_network_is_fast_again(linked: Linked) -> None:
    channel, peer = linked.connected()
    way = slow(linked, seconds=HOUR_SECONDS)
    linked.write(channel, b"asked")
    peer.sendall(b"answered")
    with linked.cut(ONE, TWO):
        linked.write(channel, b" again")
    assert is_silent(peer)
    assert linked.call(lambda: channel.received) == b""
    cut = linked.cut(ONE, TWO)
    way.heal()
    assert is_silent(peer), "it is cut by now"
    cut.heal()
    linked.write(channel, b"!")
    assert read(peer, 12) == b"asked again!"
    linked.until(lambda: channel.received == b"answered")


def test_delayed_data_arrives_before_the_end_of_stream(linked: Linked) -> None:
    channel, peer = linked.connected()
    slow(linked, seconds=HOUR_SECONDS)
    peer.sendall(b"the last")
    peer.close()
    linked.until(lambda: channel.is_lost)
    assert linked.call(lambda: channel.received) == b"the last"


def test_one_way_delay_affects_one_direction(linked: Linked) -> None:
    channel, peer = linked.connected()
    way = slow(linked, seconds=HOUR_SECONDS, one_way=True)
    linked.write(channel, b"asked")
    peer.sendall(b"heard")
    linked.until(lambda: channel.received == b"heard")
    assert is_silent(peer)
    way.heal()
    assert read(peer, 5) == b"asked"
