"""Turns of the loop with many ready sockets, counted."""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise

import pytest
import uvloop

from odradek.net.clients.receiving import ReceivingTransport
from odradek.net.loop.readers import CROWD_SECONDS, DIRECT_MAX, PER_TURN, TURN_SECONDS, Readers
from support.crowd import need_files

BUSY = 2000  # More than uvloop takes at a time.

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="needs epoll")


@pytest.fixture(params=[uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def loop(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    with closing(request.param()) as running:
        yield running


@pytest.fixture
def readers(loop: asyncio.AbstractEventLoop) -> Iterator[Readers]:
    with closing(Readers(loop, clock=lambda: 0.0)) as one:
        yield one


def turns(loop: asyncio.AbstractEventLoop, count: int, each: Callable[[], None]) -> None:
    def one_turn(left: int) -> None:
        each()
        if left:
            loop.call_soon(one_turn, left - 1)
        else:
            loop.stop()

    loop.call_soon(one_turn, count)
    loop.run_forever()


def test_two_thousand_ready_sockets_do_not_delay_turns(loop: asyncio.AbstractEventLoop, readers: Readers) -> None:
    need_files(BUSY + 500)
    read: Counter[int] = Counter()
    in_turn: list[int] = []
    descriptors = [os.eventfd(1) for _ in range(BUSY)]
    for one in descriptors:
        readers.add(one, lambda one=one: read.update((one,)))  # type: ignore[misc]

    def count() -> None:
        in_turn.append(read.total() - sum(in_turn))

    rounds = 3
    turns(loop, rounds * (BUSY // PER_TURN + 2), count)
    assert max(in_turn) <= DIRECT_MAX + PER_TURN
    assert len(read) == BUSY
    in_set = [read[one] for one in descriptors[DIRECT_MAX:]]
    assert min(in_set) >= rounds - 1
    assert max(in_set) - min(in_set) <= 1, "each in turn"
    for one in descriptors:
        readers.remove(one)
        os.close(one)


def test_slow_readers_leave_turns_for_others(loop: asyncio.AbstractEventLoop) -> None:
    now = 0.0
    read: Counter[int] = Counter()
    in_turn: list[int] = []

    def take(one: int) -> None:
        nonlocal now
        now += TURN_SECONDS / 2
        read[one] += 1

    with closing(Readers(loop, direct_max=0, clock=lambda: now)) as readers:
        descriptors = [os.eventfd(1) for _ in range(9)]
        for one in descriptors:
            readers.add(one, lambda one=one: take(one))  # type: ignore[misc]
        turns(loop, 12, lambda: in_turn.append(read.total() - sum(in_turn)))
        assert max(in_turn) == 3
        assert len(read) == 9
        assert max(read.values()) - min(read.values()) <= 1, "each in turn"
        in_turn.clear()
        readers.make_way(is_crowded=True)
        turns(loop, 12, lambda: in_turn.append(read.total()))
        assert max(after - before for before, after in pairwise(in_turn)) == 1, "those who wait at the door come first"
        in_turn.clear()
        now += CROWD_SECONDS
        turns(loop, 12, lambda: in_turn.append(read.total()))
        assert max(after - before for before, after in pairwise(in_turn)) == 3, "but not for ever"
        for one in descriptors:
            readers.remove(one)
            os.close(one)


def test_busy_readers_leave_turns_for_many_newcomers(loop: asyncio.AbstractEventLoop) -> None:
    now = 0.0
    called: list[int] = []

    def take(one: int) -> None:
        nonlocal now
        now += TURN_SECONDS / 4
        called.append(one)

    with closing(Readers(loop, direct_max=0, clock=lambda: now)) as readers:
        busy, newcomers = ([os.eventfd(1) for _ in range(count)] for count in (20, 40))
        for one in busy:
            readers.add(one, lambda one=one: take(one))  # type: ignore[misc]
        turns(loop, 2, lambda: None)
        called.clear()
        for one in newcomers:
            readers.add(one, lambda one=one: take(one), is_newcomer=True)  # type: ignore[misc]
        while not set(newcomers) <= set(called):
            turns(loop, 1, lambda: None)
        before = max(called.index(one) for one in newcomers)
        assert before <= len(newcomers) + 5 + 8, "one whole turn of the busy at most, then one call of theirs in each"
        assert now < CROWD_SECONDS
        called.clear()
        turns(loop, 4, lambda: None)
        assert len(called) >= 3 * 5, "whole turns again, when the crowd is in"
        for one in (*busy, *newcomers):
            readers.remove(one)
            os.close(one)


def test_reader_removed_in_the_same_turn_is_not_called(loop: asyncio.AbstractEventLoop) -> None:
    with closing(Readers(loop, direct_max=0)) as readers:
        descriptors = [os.eventfd(1) for _ in range(2)]
        called = []

        def take(one: int) -> None:
            called.append(one)
            for each in descriptors:
                readers.remove(each)

        for one in descriptors:
            readers.add(one, lambda one=one: take(one))  # type: ignore[misc]
        turns(loop, 3, lambda: None)
        assert len(called) == 1
        for one in descriptors:
            os.close(one)


def test_newcomer_does_not_wait_behind_busy_readers(loop: asyncio.AbstractEventLoop, readers: Readers) -> None:
    descriptors = [os.eventfd(1) for _ in range(BUSY)]
    called: list[int] = []
    for one in descriptors:
        readers.add(one, lambda one=one: called.append(one))  # type: ignore[misc]
    turns(loop, 3, lambda: None)
    newcomer = os.eventfd(0)
    readers.add(newcomer, lambda: called.append(newcomer), is_newcomer=True)
    turns(loop, 3, lambda: None)
    assert newcomer not in called, "it has sent nothing"
    os.eventfd_write(newcomer, 1)
    called.clear()
    turns(loop, 2, lambda: None)
    assert called.count(newcomer) == 1
    called.clear()
    turns(loop, 10, lambda: None)
    assert newcomer not in called, "by now it is as all others"
    turns(loop, 2 * BUSY // PER_TURN, lambda: None)
    assert 1 <= called.count(newcomer) <= 3
    for one in [*descriptors, newcomer]:
        readers.remove(one)
        os.close(one)


def test_removed_newcomer_is_not_called(loop: asyncio.AbstractEventLoop) -> None:
    with closing(Readers(loop, direct_max=0)) as readers:
        one, other = os.eventfd(1), os.eventfd(1)
        called = []

        def take(mine: int, others: int) -> None:
            called.append(mine)
            readers.remove(others)

        readers.add(one, lambda: take(one, other), is_newcomer=True)
        readers.add(other, lambda: take(other, one), is_newcomer=True)
        turns(loop, 5, lambda: None)
        assert len(set(called)) == 1
        for each in (one, other):
            readers.remove(each)
            os.close(each)


def test_newcomer_refused_by_the_set_is_still_called(loop: asyncio.AbstractEventLoop) -> None:
    with closing(Readers(loop, direct_max=0)) as readers:
        one = os.eventfd(1)
        called = []
        readers.add(one, lambda: called.append(one), is_newcomer=True)
        assert readers._sets is not None
        busy, _ = readers._sets
        busy.epoll.register(one, 0)  # An existing entry is refused with OSError, as for lack of memory.
        turns(loop, 5, lambda: None)
        assert len(called) >= 2
        busy.epoll.unregister(one)
        turns(loop, 5, lambda: None)
        readers.remove(one)
        called.clear()
        turns(loop, 5, lambda: None)
        assert not called
        os.close(one)


class Protocol(asyncio.BufferedProtocol):
    """A protocol that records its calls."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.space = bytearray(8)
        self.error: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.calls.append("made")

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.space)

    def buffer_updated(self, nbytes: int) -> None:
        self.calls.append(bytes(self.space[:nbytes]))
        if self.error is not None:
            raise self.error

    def eof_received(self) -> bool:
        self.calls.append("eof")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append(exc)


class Pair:
    """A connection's transport, and its peer's socket."""

    def __init__(self, loop: asyncio.AbstractEventLoop, direct_max: int) -> None:
        self.loop = loop
        self.readers = Readers(loop, direct_max)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.peer = socket.create_connection(listening.getsockname())
            self.accepted, address = listening.accept()
        self.accepted.setblocking(False)
        self.protocol = Protocol()
        self.transport = ReceivingTransport(loop, self.readers, self.accepted, address, self.protocol)

    def turn(self) -> list[object]:
        """Run a turn, and return the calls of the protocol in it."""
        turns(self.loop, 3, lambda: None)
        calls, self.protocol.calls = self.protocol.calls, []
        return calls

    def close(self) -> None:
        self.transport.close()
        self.turn()
        self.readers.close()
        self.peer.close()


@pytest.fixture(params=[1, 0], ids=["direct", "set"])
def pair(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> Iterator[Pair]:
    with closing(Pair(loop, request.param)) as one:
        yield one


def test_data_sent_with_the_connection_is_read_immediately(pair: Pair) -> None:
    pair.peer.sendall(b"first")
    pair.transport.start_receiving()
    assert pair.protocol.calls == ["made", b"first"]


@pytest.mark.waits
def test_connection_is_a_newcomer_until_its_first_data(loop: asyncio.AbstractEventLoop) -> None:
    with closing(Pair(loop, direct_max=0)) as pair:
        pair.transport.start_receiving()
        assert pair.turn() == ["made"]
        assert pair.readers._sets is not None
        busy, newcomers = pair.readers._sets
        assert pair.accepted.fileno() in newcomers.callbacks
        pair.peer.sendall(b"a")
        assert pair.turn() == [b"a"]
        assert not newcomers.callbacks and pair.accepted.fileno() in busy.callbacks
        pair.peer.sendall(b"b")
        assert pair.turn() == [b"b"]


def test_a_full_buffer_is_read_again_in_the_same_turn(pair: Pair) -> None:
    pair.peer.sendall(b"12345678rest")
    pair.transport.start_receiving()
    assert pair.protocol.calls == ["made", b"12345678", b"rest"]


def test_nothing_is_read_while_reading_is_paused(pair: Pair) -> None:
    pair.transport.start_receiving()
    for _ in range(2):
        pair.turn()
        pair.transport.pause_reading()
        pair.transport.pause_reading()
        pair.peer.sendall(b"later")
        assert pair.turn() == []
        pair.transport.resume_reading()
        assert pair.turn() == [b"later"]


def test_end_of_stream_is_reported(pair: Pair) -> None:
    pair.transport.start_receiving()
    pair.peer.shutdown(socket.SHUT_WR)
    assert pair.turn() == ["made", "eof", None]
    assert pair.transport.is_closing()
    assert pair.accepted.fileno() == -1


def test_reset_is_reported_as_an_error(pair: Pair) -> None:
    pair.transport.start_receiving()
    pair.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    pair.peer.close()
    made, error = pair.turn()
    assert made == "made"
    assert isinstance(error, ConnectionResetError)


def test_connection_loss_is_reported_once_in_a_later_turn(pair: Pair) -> None:
    pair.transport.start_receiving()
    pair.transport.abort()
    pair.transport.close()
    assert pair.protocol.calls == ["made"]
    assert pair.accepted.fileno() >= 0, "until then the descriptor is nobody else's"
    assert pair.turn() == ["made", None]
    assert pair.peer.recv(1) == b""


def test_exception_in_the_protocol_closes_the_connection(pair: Pair) -> None:
    contexts = []
    pair.loop.set_exception_handler(lambda _, context: contexts.append(context))
    pair.transport.start_receiving()
    pair.protocol.error = ValueError("a bug")
    pair.peer.sendall(b"x")
    assert pair.turn() == ["made", b"x", pair.protocol.error]
    (context,) = contexts
    assert context["exception"] is pair.protocol.error
    assert context["transport"].get_extra_info("peername") == pair.peer.getsockname()


def test_transport_has_the_extra_info_of_its_socket(pair: Pair) -> None:
    pair.transport.start_receiving()
    assert pair.transport.get_extra_info("socket") is pair.accepted
    assert pair.transport.get_extra_info("sockname") == pair.peer.getpeername()
    assert pair.transport.get_extra_info("sslcontext", "none") == "none"
