"""Durations for which a loop is blocked: the processor time of its thread in one callback, with garbage collection.

    with timed_loops() as timing, Broker() as broker:      # A broker in this process,
        timing.begin()
        ...
        holds = timing.holds()                             # the longest first.

support/timed_serve.py measures `odradek serve` in a process of its own.

A loop of asyncio or uvloop receives its callbacks through a few methods (call_soon, add_reader, create_server, ...). A
loop of `timed` wraps each of them in two readings of the thread's clock. Processor time, not wall time: other processes
and threads that hold the interpreter lock do not count.

With ODRADEK_LOOP_STACKS=1 a second thread samples the loop's stack every few milliseconds, which shows the location in
a slow callback. This is optional: CPython 3.11 has crashed in it, since frames are freed concurrently.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, NamedTuple, Protocol

import uvloop

from support.pace import memory_slowness, slowness

STACKS_VARIABLE = "ODRADEK_LOOP_STACKS"
HOLD_MS_MAX = 20.0  # The bound of processor time in one callback on a usual machine, which the broker guarantees.
_SAMPLE_SECONDS = 0.004
_SAMPLED_FROM_NS = 6_000_000
_KEPT_FROM_NS = 2_000_000
_KEPT_MAX = 50


_Places = list[tuple[str, int, str]]  # File, line and function, outermost first.


class Hold(NamedTuple):
    """One callback. `gc_ms` of its time was spent in garbage collections; `stack` is its sampled stack."""

    ms: float
    gc_ms: float
    callback: str
    stack: str

    def without_collections(self) -> Hold:
        """Return the same callback without the time that garbage collections took."""
        return self._replace(ms=self.ms - self.gc_ms, gc_ms=0.0)

    def __str__(self) -> str:
        collected = f", {self.gc_ms:.1f} ms of it garbage collection" if self.gc_ms else ""
        return f"{self.ms:.1f} ms in {self.callback}{collected}\n{self.stack or f'{STACKS_VARIABLE}=1 shows where'}"


def hold_ms_max() -> float:
    """Return the usual bound of a hold, scaled to the current speed of this machine."""
    return HOLD_MS_MAX * slowness()


def hold_ms_allowed(longest: float) -> float:
    """Return the bound for the longest hold; above the usual bound, this machine's memory speed counts, too."""
    most = hold_ms_max()
    return most if longest <= most else max(most, HOLD_MS_MAX * memory_slowness())  # The measurement takes seconds.


class LoopTime:
    """The times of one loop's callbacks. It starts to count with `begin`, which may be called repeatedly."""

    def __init__(self) -> None:
        self._thread = 0
        self._clock = 0
        self._depth = 0
        self._since = 0  # By the clock of the loop's thread; 0 outside callbacks.
        self._gc_began = 0
        self._gc_ns = 0
        self._stack: _Places = []
        self._found: list[tuple[int, int, str, _Places]] = []
        self.counted = 0  # Callbacks since `begin`.
        self._is_over = threading.Event()
        self._sampler = threading.Thread(target=self._sample, name="loop-time", daemon=True)

    def begin(self) -> None:
        self._found = []
        self.counted = 0

    def holds(self) -> list[Hold]:
        """Return the longest callbacks since `begin`, longest first, without very short ones."""
        longest = sorted(self._found, reverse=True)[:_KEPT_MAX]
        return [Hold(ns / 1e6, gc_ns / 1e6, name, _text(places)) for ns, gc_ns, name, places in longest]

    def end(self) -> None:
        self._is_over.set()
        if self._sampler.is_alive():
            self._sampler.join()
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)

    # In the loop's thread.

    def wrapped(self, callback: Callable[..., Any], name: str | None = None) -> Callable[..., Any]:
        return partial(self._timed, name, callback)

    def _timed(self, name: str | None, callback: Callable[..., Any], *arguments: Any) -> Any:
        if self._depth:
            return callback(*arguments)
        if not self._thread:
            self._watch_this_thread()
        self._depth = 1
        self._gc_ns = 0
        self._stack = []
        began = self._since = time.thread_time_ns()
        try:
            return callback(*arguments)
        finally:
            took = time.thread_time_ns() - began
            self._since = self._depth = 0
            self.counted += 1
            if took >= _KEPT_FROM_NS:
                self._found.append((took, self._gc_ns, name or _name(callback), self._stack))

    def _watch_this_thread(self) -> None:
        self._thread = threading.get_ident()
        self._clock = time.pthread_getcpuclockid(self._thread)
        gc.callbacks.append(self._collected)
        if os.environ.get(STACKS_VARIABLE):
            self._sampler.start()

    def _collected(self, phase: str, _: dict[str, int]) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._gc_began = time.thread_time_ns()
        else:
            self._gc_ns += time.thread_time_ns() - self._gc_began

    # In a thread of its own.

    def _sample(self) -> None:
        while not self._is_over.wait(_SAMPLE_SECONDS):
            since = self._since
            if not since or self._stack or time.clock_gettime_ns(self._clock) - since < _SAMPLED_FROM_NS:
                continue
            frame = sys._current_frames().get(self._thread)
            if frame is not None and self._since == since:
                self._stack = _below_timed(frame)


def _below_timed(frame: FrameType) -> _Places:
    """Return the stack without reading source files: that would release the interpreter, and the callback would end."""
    places: _Places = []
    for one, line in traceback.walk_stack(frame):
        if one.f_code.co_filename == __file__:
            break
        places.append((one.f_code.co_filename, line, one.f_code.co_name))
    return places[::-1]


def _text(places: _Places) -> str:
    return "".join(traceback.format_list([traceback.FrameSummary(*place, lookup_line=False) for place in places]))


def _name(callback: Callable[..., Any]) -> str:
    while isinstance(callback, partial):
        is_ours = getattr(callback.func, "__func__", None) is LoopTime._timed  # A loop may call its own methods.
        callback = callback.args[1] if is_ours else callback.func
    owner = getattr(callback, "__self__", None)
    own = getattr(callback, "__qualname__", repr(callback))
    return f"{own} of {owner!r}" if isinstance(owner, asyncio.Task) else own


class _TimedProtocol(asyncio.BufferedProtocol):
    """A wrapper of a protocol of either kind, which measures its callbacks."""

    def __init__(self, timing: LoopTime, protocol: asyncio.BaseProtocol) -> None:
        for name in dir(protocol):
            if name in _PROTOCOL_METHODS:
                method = getattr(protocol, name)
                setattr(self, name, timing.wrapped(method, f"{type(protocol).__name__}.{name}"))


_PROTOCOL_METHODS = {
    "connection_made",
    "connection_lost",
    "get_buffer",
    "buffer_updated",
    "eof_received",
    "pause_writing",
    "resume_writing",
}


def timed(base: type[asyncio.AbstractEventLoop], timing: LoopTime) -> asyncio.AbstractEventLoop:
    """Return a new loop of that kind with measured callbacks."""

    class Timed(base):  # type: ignore[misc, valid-type]
        def call_soon(self, callback: Callable[..., Any], *arguments: Any, context: Any = None) -> Any:
            return super().call_soon(timing.wrapped(callback), *arguments, context=context)

        def call_soon_threadsafe(self, callback: Callable[..., Any], *arguments: Any, context: Any = None) -> Any:
            return super().call_soon_threadsafe(timing.wrapped(callback), *arguments, context=context)

        def call_later(self, delay: float, callback: Callable[..., Any], *arguments: Any, context: Any = None) -> Any:
            return super().call_later(delay, timing.wrapped(callback), *arguments, context=context)

        def call_at(self, when: float, callback: Callable[..., Any], *arguments: Any, context: Any = None) -> Any:
            return super().call_at(when, timing.wrapped(callback), *arguments, context=context)

        def add_reader(self, file: Any, callback: Callable[..., Any], *arguments: Any) -> Any:
            return super().add_reader(file, timing.wrapped(callback), *arguments)

        def add_writer(self, file: Any, callback: Callable[..., Any], *arguments: Any) -> Any:
            return super().add_writer(file, timing.wrapped(callback), *arguments)

        async def create_server(self, factory: Callable[[], Any], *arguments: Any, **keywords: Any) -> Any:
            return await super().create_server(lambda: _TimedProtocol(timing, factory()), *arguments, **keywords)

        async def connect_accepted_socket(self, factory: Callable[[], Any], *arguments: Any, **keywords: Any) -> Any:
            made: list[Any] = []

            def make() -> _TimedProtocol:
                made.append(factory())
                return _TimedProtocol(timing, made[0])

            transport, _ = await super().connect_accepted_socket(make, *arguments, **keywords)
            return transport, made[0]

    loop: asyncio.AbstractEventLoop = Timed()
    return loop


class Timing(Protocol):
    """The measurement of a broker's loop, in this process or in another one."""

    def begin(self) -> None: ...

    def holds(self) -> list[Hold]: ...


@contextmanager
def no_long_callbacks(timing: Timing, counts_collections: bool = True) -> Iterator[None]:
    """Assert that no callback blocks the loop too long; if the process is not the broker's, without collections."""
    timing.begin()
    yield
    holds = timing.holds() if counts_collections else [hold.without_collections() for hold in timing.holds()]
    most = hold_ms_allowed(max((hold.ms for hold in holds), default=0.0))
    too_long = [str(hold) for hold in holds if hold.ms > most]
    assert not too_long, "\n".join(too_long)


@contextmanager
def timed_loops() -> Iterator[LoopTime]:
    """Measure the next broker of odradek.testing that starts in this process."""
    timing, make = LoopTime(), uvloop.new_event_loop
    uvloop.new_event_loop = lambda: timed(uvloop.Loop, timing)  # type: ignore[assignment, arg-type, return-value]
    try:
        yield timing
    finally:
        uvloop.new_event_loop = make
        timing.end()
