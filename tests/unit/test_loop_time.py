"""The instrument that measures callbacks: it finds the one that blocks the loop, and its stack."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from collections.abc import Callable
from functools import partial

import pytest
import uvloop

from support.loop_time import STACKS_VARIABLE, Hold, LoopTime, timed

pytestmark = pytest.mark.slow

LOOPS = [asyncio.SelectorEventLoop, uvloop.Loop]
MS = 1_000_000


@pytest.fixture(autouse=True)
def _record_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STACKS_VARIABLE, "1")


def busy(ms: int) -> None:
    until = time.thread_time_ns() + ms * MS
    while time.thread_time_ns() < until:
        pass


def measure_holds(base: type[asyncio.AbstractEventLoop], do: Callable[[asyncio.AbstractEventLoop], None]) -> list[Hold]:
    """Return the holds measured on a loop while it runs the scheduled actions, which stop it."""
    timing = LoopTime()
    loop = timed(base, timing)
    try:
        loop.call_soon(timing.begin)
        do(loop)
        loop.run_forever()
        return timing.holds()
    finally:
        loop.close()
        timing.end()


def hold_and_stop(loop: asyncio.AbstractEventLoop, ms: int = 200) -> None:
    busy(ms)
    loop.stop()


@pytest.mark.parametrize("base", LOOPS)
def test_slow_callback_is_found(base: type[asyncio.AbstractEventLoop]) -> None:
    def do(loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon(busy, 5)
        loop.call_later(0.01, hold_and_stop, loop)

    longest, *others = measure_holds(base, do)
    assert longest.ms >= 200
    assert longest.callback == "hold_and_stop"
    assert "busy(ms)" in longest.stack
    assert any(5 <= hold.ms < 200 and hold.callback == "busy" for hold in others)


@pytest.mark.parametrize("base", LOOPS)
def test_waiting_time_does_not_count(base: type[asyncio.AbstractEventLoop]) -> None:
    def do(loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon(time.sleep, 0.3)
        loop.call_later(0.01, loop.stop)

    assert all(hold.ms < 100 for hold in measure_holds(base, do))


@pytest.mark.parametrize("base", LOOPS)
def test_garbage_collection_counts(base: type[asyncio.AbstractEventLoop]) -> None:
    kept = [[number] for number in range(300_000)]

    def collect(loop: asyncio.AbstractEventLoop) -> None:
        gc.collect()
        loop.stop()

    longest = measure_holds(base, lambda loop: loop.call_soon(collect, loop) and None)[0]
    assert longest.callback.endswith("collect")
    assert longest.ms >= longest.gc_ms > longest.ms / 2
    assert kept


@pytest.mark.waits
@pytest.mark.parametrize("base", LOOPS)
@pytest.mark.parametrize("way", ["reader", "protocol", "task", "threadsafe"])
def test_every_kind_of_callback_is_measured(base: type[asyncio.AbstractEventLoop], way: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        longest = measure_holds(base, partial(_begin, way, ours, theirs))[0]
    assert longest.ms >= 200
    assert "busy(ms)" in longest.stack


class _Receiving(asyncio.BufferedProtocol):
    def get_buffer(self, sizehint: int) -> bytearray:
        return bytearray(10)

    def buffer_updated(self, nbytes: int) -> None:
        hold_and_stop(asyncio.get_running_loop())


def _begin(way: str, ours: socket.socket, theirs: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
    async def hold() -> None:
        hold_and_stop(loop)

    async def serve() -> None:
        server = await loop.create_server(_Receiving, "127.0.0.1", 0)
        theirs.close()
        _CLIENTS.append(socket.create_connection(server.sockets[0].getsockname()))
        _CLIENTS[-1].send(b"x")

    match way:
        case "reader":
            loop.add_reader(ours, hold_and_stop, loop)
            theirs.send(b"x")
        case "protocol":
            _TASKS.append(loop.create_task(serve()))
        case "task":
            _TASKS.append(loop.create_task(hold()))
        case "threadsafe":
            loop.call_soon_threadsafe(hold_and_stop, loop)


_TASKS: list[asyncio.Task[None]] = []
_CLIENTS: list[socket.socket] = []
