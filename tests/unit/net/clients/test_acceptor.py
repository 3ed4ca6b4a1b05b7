"""The acceptor: clients do not wait, measured in turns of the loop, on both loops that a broker may use."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from odradek.net.clients import acceptor as doors
from odradek.net.clients.acceptor import ACCEPTING_SECONDS, Acceptor, bound
from support.crowd import need_files

pytestmark = pytest.mark.waits

WAITING = 400
HOLD = 1000  # Some work in each turn, so that none is short.
BACKLOG = 4096
PER_TURN = 150  # As many as the acceptor accepts in its time.
LOOPS = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


class Counting(socket.socket):
    """A listening socket that counts its accept calls."""

    accepts = 0

    def _accept(self) -> tuple[int, Any]:
        self.accepts += 1
        accepted: tuple[int, Any] = super()._accept()  # type: ignore[misc]
        return accepted


class Recorder:
    """A recorder of accepted connections, their turns, and refused connections."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.turn = 0
        self.entered: list[tuple[int, socket.socket]] = []
        self.turned_away = 0
        self.listening = Counting()
        self.listening.bind(("127.0.0.1", 0))
        self.listening.setblocking(False)
        self.crowded: list[bool] = []
        self.now = 0.0
        self.entering_seconds = 0.0  # Time to accept one.
        self.door = Acceptor(
            loop, [self.listening], self._enter, self._turned_away, self.crowded.append, clock=lambda: self.now
        )
        self.door.open(BACKLOG)

    def connected(self, count: int) -> list[socket.socket]:
        """Return waiting clients: the loop does not run in between."""
        return [socket.create_connection(self.listening.getsockname()) for _ in range(count)]

    def run_until(self, is_enough: Callable[[], bool]) -> None:
        """Run a busy loop: every turn has other work, and the loop never sleeps."""

        def one_turn() -> None:
            self.turn += 1
            sum(range(HOLD))
            if is_enough():
                self.loop.stop()
            else:
                self.loop.call_soon(one_turn)

        self.loop.call_soon(one_turn)
        self.loop.run_forever()

    def close(self) -> None:
        self.door.close()
        for _, one in self.entered:
            one.close()

    def _enter(self, accepted: socket.socket, address: tuple[Any, ...]) -> None:
        assert accepted.gettimeout() == 0
        assert address == accepted.getpeername()
        self.entered.append((self.turn, accepted))
        self.now += self.entering_seconds

    def _turned_away(self, address: tuple[Any, ...]) -> None:
        self.turned_away += 1


@pytest.fixture(params=LOOPS.values(), ids=LOOPS)
def loop(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    with closing(request.param()) as running:
        yield running


@pytest.fixture
def recorder(loop: asyncio.AbstractEventLoop) -> Iterator[Recorder]:
    need_files(3 * WAITING)
    with closing(Recorder(loop)) as one:
        yield one


def close_all(clients: list[socket.socket]) -> None:
    for one in clients:
        one.close()


def test_waiting_clients_are_accepted_in_one_turn(recorder: Recorder) -> None:
    clients = recorder.connected(WAITING)
    recorder.run_until(lambda: len(recorder.entered) == WAITING)
    assert len({turn for turn, _ in recorder.entered}) == 1
    assert recorder.crowded == [False]
    close_all(clients)


def test_flood_of_connections_leaves_turns_for_accepted_ones(recorder: Recorder) -> None:
    recorder.entering_seconds = ACCEPTING_SECONDS / (PER_TURN - 0.5)
    clients = recorder.connected(WAITING)
    recorder.run_until(lambda: len(recorder.entered) == WAITING and recorder.crowded[-1:] == [False])
    turns = [turn for turn, _ in recorder.entered]
    assert turns.count(turns[0]) == PER_TURN
    assert turns[-1] <= turns[0] + WAITING // PER_TURN + 1
    assert recorder.crowded == [True, True, False], "those inside are told while some wait"
    close_all(clients)


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Set the limit to the lowest free descriptor, so that no further one is available."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free(), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def lowest_free() -> int:
    one = os.dup(2)
    os.close(one)
    return one


def alone(check: Callable[[Recorder], None], new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Run the check in a process where no thread of another test opens or closes descriptors."""
    process = multiprocessing.get_context("spawn").Process(target=_check_with_recorder, args=(check, new_loop))
    process.start()
    process.join()
    assert process.exitcode == 0, "what failed is in its output"


def _check_with_recorder(check: Callable[[Recorder], None], new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    need_files(3 * WAITING)
    with closing(new_loop()) as loop, closing(Recorder(loop)) as recorder:
        check(recorder)


@pytest.mark.parametrize("new_loop", LOOPS.values(), ids=LOOPS)
def test_connection_without_a_free_descriptor_is_closed_immediately(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    alone(_is_closed_immediately, new_loop)


def _is_closed_immediately(recorder: Recorder) -> None:
    clients = recorder.connected(WAITING)
    accepts_by_turn: dict[int, int] = {}

    def is_over() -> bool:
        accepts_by_turn[recorder.turn] = recorder.listening.accepts
        return recorder.turn == 50

    with ExitStack() as limits:
        # On the loop: uvloop needs some itself to start.
        recorder.loop.call_soon(limits.enter_context, no_descriptor_left())
        recorder.run_until(is_over)
    assert recorder.turned_away == WAITING
    assert not recorder.entered
    assert recorder.listening.accepts <= 2 * WAITING + 2, "each time without a descriptor, and with the spare one"
    assert accepts_by_turn[10] == accepts_by_turn[50], "when nobody waits, nobody is asked for"
    for one in clients:
        assert one.recv(1) == b""
    with closing(recorder.connected(1)[0]):
        recorder.run_until(lambda: len(recorder.entered) == 1)
    close_all(clients)


@pytest.mark.parametrize("new_loop", LOOPS.values(), ids=LOOPS)
def test_without_a_spare_descriptor_the_loop_does_not_spin(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    alone(_does_not_spin, new_loop)


def _does_not_spin(recorder: Recorder) -> None:
    clients = recorder.connected(1)
    spare = recorder.door._spare
    assert spare is not None
    os.close(spare)
    recorder.door._spare = None  # As if a log had taken it first.
    doors.PAUSE_SECONDS = 3600  # type: ignore[misc]
    logged: list[logging.LogRecord] = []
    doors.log.addFilter(logged.append)  # type: ignore[arg-type]
    with ExitStack() as limits:
        recorder.loop.call_soon(limits.enter_context, no_descriptor_left())
        recorder.run_until(lambda: recorder.turn == 50)
    assert recorder.listening.accepts == 1
    assert not recorder.entered
    assert not recorder.turned_away
    assert "accepting no connections" in logged[0].getMessage()
    recorder.door._watch()  # At the end of the time.
    recorder.run_until(lambda: len(recorder.entered) == 1)
    assert recorder.door._spare is not None
    close_all(clients)


def test_failed_accept_does_not_affect_other_connections(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    def accept(one: Counting) -> tuple[int, Any]:
        one.accepts += 1
        if one.accepts == 1:
            raise ConnectionAbortedError(103, "it has gone")
        accepted: tuple[int, Any] = socket.socket._accept(one)  # type: ignore[attr-defined]
        return accepted

    monkeypatch.setattr(Counting, "_accept", accept)
    with closing(recorder.connected(1)[0]):
        recorder.run_until(lambda: len(recorder.entered) == 1)
    assert recorder.listening.accepts == 3


def test_closed_acceptor_refuses_connections(recorder: Recorder) -> None:
    address = recorder.listening.getsockname()
    recorder.door.close()
    recorder.door.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


def test_accepted_connection_has_tcp_nodelay(loop: asyncio.AbstractEventLoop) -> None:
    (one,) = loop.run_until_complete(bound(loop, "127.0.0.1", 0))
    with one:
        one.listen()
        with socket.create_connection(one.getsockname()), one.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.skipif(not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists(), reason="there is no IPv6 here")
def test_empty_host_binds_every_interface_on_one_port(loop: asyncio.AbstractEventLoop) -> None:
    sockets = loop.run_until_complete(bound(loop, "", 0))
    assert {one.family for one in sockets} == {socket.AF_INET, socket.AF_INET6}
    assert len({one.getsockname()[1] for one in sockets}) == 1
    close_all(sockets)


def test_failed_bind_leaves_no_open_socket(loop: asyncio.AbstractEventLoop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        before = lowest_free()
        with pytest.raises(OSError, match="in use"):
            loop.run_until_complete(bound(loop, "127.0.0.1", taken.getsockname()[1]))
    assert lowest_free() <= before


def test_short_accept_queue_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "somaxconn"
    monkeypatch.setattr(doors, "SOMAXCONN", path)
    doors.tell_of_short_queue.cache_clear()
    doors.tell_of_short_queue(4000)  # The file is missing: another system.
    path.write_text("128\n")
    doors.tell_of_short_queue(128)
    assert not caplog.records
    for _ in range(2):
        doors.tell_of_short_queue(4096)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "somaxconn is 128" in caplog.text
    doors.tell_of_short_queue.cache_clear()
