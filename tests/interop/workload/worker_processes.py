"""Workers in separate processes: librdkafka 2.16 may block one forever, with all of its threads.

A consumer takes its locks in two orders: one thread handles a failed OffsetForLeaderEpoch, while another drops a broker
that is no longer in the metadata (docs/NON_OBVIOUS.md). `Consumer.assign` then waits for it, while it holds the
interpreter lock. The outcome of such a worker's operation is unknown, as after a kill.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterable

from workload.worker import Worker

FORK = multiprocessing.get_context("fork")
STANDING_MAX = 2  # Observed in one of eight runs, a single one.
TRACE_SECONDS = 1.0


class Apart:
    """A worker in a separate process."""

    def __init__(self, worker: Worker) -> None:
        self.name = worker.name
        self._process = FORK.Process(target=_run, args=(worker,), daemon=True)

    def start(self) -> None:
        self._process.start()

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def has_ended(self, seconds: float) -> bool:
        """Wait for this long; kill a process that has not ended by then, after it has printed its stacks."""
        self._process.join(seconds)
        if not self._process.is_alive():
            return True
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGUSR1)
        self._process.join(TRACE_SECONDS)
        self._process.kill()
        self._process.join()
        return False

    @property
    def status(self) -> int | None:
        return self._process.exitcode


def ended(workers: Iterable[Apart], seconds: float) -> list[str]:
    """Return the errors of the workers themselves."""
    until = time.monotonic() + seconds
    standing, problems = [], []
    for worker in workers:
        if not worker.has_ended(max(0.0, until - time.monotonic())):
            standing.append(f"{worker.name} did not end")
            print(standing[-1], file=sys.stderr, flush=True)
        elif worker.status:
            problems.append(f"{worker.name}: exit {worker.status}")
    return problems if len(standing) <= STANDING_MAX else [*problems, *standing]


def _run(worker: Worker) -> None:
    faulthandler.register(signal.SIGUSR1)  # Works for a blocked process, too.
    status = 1
    try:
        worker.run()
        status = 0
    except BaseException:
        print(f"{worker.name}:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)  # This process ends even if a library hangs.
