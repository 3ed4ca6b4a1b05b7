"""Load from processes of their own, which begin together and report what they saw.

Each is forked with everything it sends already made, connects and warms up, says that it is ready, waits for the word
to go, and ends with a report.  Between the word and the last report the broker's processor time is counted.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe

REPORT_SECONDS_MAX = 120

_fork = multiprocessing.get_context("fork")


Latencies = list[tuple[float, int]]  # Seconds, and how many requests took that long.


class LoadFailed(RuntimeError):
    """A load process could not do its work, or got answers it must not get."""


@dataclass
class Report:
    """What one load process did after the word to go.  Times are of the monotonic clock, all processes share it."""

    begun: float
    ended: float
    requests: int = 0
    records: int = 0
    wire_bytes: int = 0
    failures: int = 0
    cpu_seconds: float = 0.0
    latencies: Latencies = field(default_factory=list)
    marks: list[tuple[int, float]] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)  # What is measured besides.
    total_records: int = 0  # With those of the warm-up: what the log must hold.


class Gate:
    """A load process's end of its pipe."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def wait(self) -> None:
        """Say that warm-up is over, and wait for the word to go."""
        self._pipe.send("ready")
        self._pipe.recv()


Work = Callable[[Gate], Report]


@dataclass
class Crowd:
    """Several load processes: `ready` returns when all are warm, `go` when all have reported."""

    works: Sequence[Work]

    def __enter__(self) -> Crowd:
        self._pipes: list[Pipe] = []
        self._processes = []
        for work in self.works:
            ours, theirs = _fork.Pipe()
            process = _fork.Process(target=_run, args=(work, theirs), daemon=True)
            with _uninterrupted():
                process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        return self

    def ready(self) -> None:
        for pipe in self._pipes:
            _receive(pipe)

    def go(self) -> list[Report]:
        for pipe in self._pipes:
            pipe.send("go")
        return [_receive(pipe) for pipe in self._pipes]

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()


def loaded(works: Sequence[Work]) -> list[Report]:
    """Has all do their work; returns what they saw."""
    return measured(works, lambda: 0.0)[0]


def measured(works: Sequence[Work], cpu_seconds: Callable[[], float]) -> tuple[list[Report], float]:
    """Does the same, and returns how much was added to `cpu_seconds` once they were warm."""
    with Crowd(works) as crowd:
        crowd.ready()
        before = cpu_seconds()
        reports = crowd.go()
        return reports, cpu_seconds() - before


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """What a signal's handler raises while modules clean up behind a fork is ignored, and with it the signal."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _receive(pipe: Pipe) -> Report:
    if not pipe.poll(REPORT_SECONDS_MAX):
        raise LoadFailed("a load process is stuck")
    try:
        message = pipe.recv()
    except EOFError:
        raise LoadFailed("a load process ended without a report") from None
    if isinstance(message, BaseException):
        raise message
    return message


def _run(work: Work, pipe: Pipe) -> None:
    gc.disable()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    gate = Gate(pipe)
    try:
        report = work(gate)
        pipe.send(report)
    except BaseException:
        pipe.send(LoadFailed(traceback.format_exc()))
    os._exit(0)


def one_at_a_time(gate: Gate, frame: bytes, seconds: Sequence[float], send: Callable[[float], Latencies]) -> Report:
    """Warms up, and reports what follows: requests of one record; `seconds` of both, and `send` gives each its time."""
    warm = len(send(seconds[0]))
    gate.wait()
    begun, cpu = clock()
    latencies = send(seconds[1])
    return Report(
        begun=begun,
        ended=time.monotonic(),
        requests=len(latencies),
        records=len(latencies),
        wire_bytes=len(latencies) * len(frame),
        cpu_seconds=time.process_time() - cpu,
        latencies=latencies,
        total_records=warm + len(latencies),
    )


def clock() -> tuple[float, float]:
    """Now, and this process's own processor time."""
    return time.monotonic(), time.process_time()
