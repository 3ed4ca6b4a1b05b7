"""First process of `odradek serve --brokers N`, which starts and supervises the brokers.

    first process ──starts───> broker 1, 2, 3    each `odradek serve` in a process of its own
                                                 (app/serve/local_brokers.py, app/serve/child.py)
                  <──lines───                    forwarded: `ready` to standard output, the rest to standard error
                  ──lifeline─>                   a pipe that closes with the first process; the brokers then stop
                                                 (app/supervised.py), so none survives, even after kill -9

A broker that ends is restarted: at once the first time, then after pauses that grow while its runs are short. A broker
that fails before it was ever ready is not restarted: its configuration is wrong, or its port or folder is in use, and
the user must see that.

The supervisor is one loop in one thread, idle without events. It avoids asyncio to save memory.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import time
from collections.abc import Sequence
from math import ceil
from pathlib import Path

from odradek.app.logging import log_format as logs
from odradek.app.serve.child import ERR, Child, supervised_odradek
from odradek.app.serve.line_queue import LineQueue
from odradek.app.serve.local_brokers import brokers_of
from odradek.app.terminal.wakeups import Wakeups

log = logging.getLogger(__name__)

STOPPED, FAILED, USAGE_ERROR = 0, 1, 2
RESTART_PAUSES_SECONDS = (0, 1, 2, 4, 8, 16, 30)
STEADY_SECONDS = 60  # A run this long is not short.
# A broker waits 300 s for its disk, then logs that and exits (app/serve/server.py). This limit is for one that hangs.
STOP_SECONDS_MAX = 310


def run(
    count: int,
    config_path: Path | None,
    overrides: Sequence[str],
    *,
    insecure: bool = False,
    log_format: str = logs.TEXT,
    log_levels: Sequence[str] = (),
) -> int:
    """Run `count` brokers until SIGTERM or Ctrl-C. Return the exit status. Main thread only.

    Raise ConfigError before any is started.
    """
    brokers = brokers_of(count, config_path, overrides, insecure=insecure, log_format=log_format, log_levels=log_levels)
    program, writes_json = supervised_odradek(), log_format == logs.JSON
    children = [Child(f"broker {broker.id}", program, broker.arguments, writes_json=writes_json) for broker in brokers]
    queue = LineQueue()
    log_to(queue, writes_json=writes_json)
    return Supervisor(children, queue).run()


def log_to(queue: LineQueue, *, writes_json: bool) -> None:
    """Send the supervisor's log to standard error through the queue."""
    handler = _QueueHandler(queue)
    handler.setFormatter(logs.JsonFormatter() if writes_json else logs.TextFormatter())
    log.addHandler(handler)
    log.propagate = False


class _QueueHandler(logging.Handler):
    """Handler that queues log lines among those of the brokers."""

    def __init__(self, queue: LineQueue) -> None:
        super().__init__()
        self._queue = queue

    def emit(self, record: logging.LogRecord) -> None:
        self._queue.put(ERR, self.format(record).encode() + b"\n")


class RestartBackoff:
    """Pauses before an ended process is restarted."""

    def __init__(self, seconds: Sequence[float] = RESTART_PAUSES_SECONDS) -> None:
        self._seconds = seconds
        self._attempts = 0

    def next(self, uptime_seconds: float) -> float:
        """Return the next, longer pause in seconds, or the first again after a run of STEADY_SECONDS."""
        if uptime_seconds >= STEADY_SECONDS:
            self._attempts = 0
        pause = self._seconds[min(self._attempts, len(self._seconds) - 1)]
        self._attempts += 1
        return pause


class SupervisedChild:
    """Child with its start time, and the time of its next restart."""

    def __init__(self, child: Child, pauses: RestartBackoff) -> None:
        self.child = child
        self.pauses = pauses
        self.started_at = 0.0
        self.restart_at: float | None = None


class Supervisor:
    """Supervisor of children until a signal stops it, or one fails before it was ready."""

    def __init__(
        self,
        children: Sequence[Child],
        queue: LineQueue,
        pauses_seconds: Sequence[float] = RESTART_PAUSES_SECONDS,
        stop_seconds_max: float = STOP_SECONDS_MAX,
    ) -> None:
        self._children = [SupervisedChild(child, RestartBackoff(pauses_seconds)) for child in children]
        self._queue = queue
        self._stop_seconds_max = stop_seconds_max
        self._status: int | None = None  # Set when the children are signalled to stop.
        self._kill_at: float | None = None
        self._interrupts = 0
        self._lifeline = -1
        self._polls_again = False

    def run(self) -> int:
        """Run until all children have ended. Return 0 after a signal, else a failed child's status."""
        self._lifeline, lifeline_writer = os.pipe()
        try:
            with Wakeups((signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)) as wakeups:
                for supervised in self._children:
                    supervised.restart_at = time.monotonic()
                while any(
                    supervised.child.is_running or supervised.restart_at is not None for supervised in self._children
                ):
                    self._run_once(wakeups)
                self._queue.flush_last()
        finally:
            os.close(lifeline_writer)
            os.close(self._lifeline)
        return STOPPED if self._status is None else self._status

    def _run_once(self, wakeups: Wakeups) -> None:
        self._wait(wakeups)
        ended = [
            (supervised, status)
            for supervised in self._children
            if (status := supervised.child.poll_exit_status()) is not None
        ]
        # Read the signals after checking for ended children: Ctrl-C reaches them and this process at the same time.
        numbers = wakeups.read_signals()
        self._polls_again = signal.SIGCHLD in numbers  # It may have arrived after the check.
        for number in numbers:
            self._on_signal(number)
        for supervised, status in ended:
            supervised.child.read_last(self._queue)
            self._on_end(supervised, status, _describe_status(status))
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill(f"did not stop within {self._stop_seconds_max} s")
        self._start_due()  # Last: if that fails, nothing may be left to wait for.

    def _start_due(self) -> None:
        for supervised in self._children:
            if supervised.restart_at is not None and time.monotonic() >= supervised.restart_at:
                supervised.restart_at, supervised.started_at = None, time.monotonic()
                try:
                    supervised.child.start(self._lifeline)
                except OSError as error:
                    self._on_end(supervised, FAILED, f"failed to start ({error})")

    def _wait(self, wakeups: Wakeups) -> None:
        """Wait for the next event, and forward the children's output."""
        poll = select.poll()
        poll.register(wakeups, select.POLLIN)
        if self._queue.waits_for is not None:
            poll.register(self._queue.waits_for, select.POLLOUT)
        # During shutdown, output may be lost, but must not block the children.
        reads = self._queue.has_room or self._status is not None
        writers = (
            {fd: supervised.child for supervised in self._children for fd in supervised.child.descriptors}
            if reads
            else {}
        )
        for descriptor in writers:
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(self._wait_ms()):
            if descriptor in writers:
                writers[descriptor].read(descriptor, self._queue)
        self._queue.flush()

    def _wait_ms(self) -> int | None:
        if self._polls_again:
            return 0
        times = [
            at for at in (self._kill_at, *(supervised.restart_at for supervised in self._children)) if at is not None
        ]
        return max(0, ceil(1000 * (min(times) - time.monotonic()))) if times else None

    def _on_signal(self, number: int) -> None:
        if number != signal.SIGCHLD:
            self._stop(STOPPED)
        if number == signal.SIGINT:
            self._interrupts += 1
            if self._interrupts == 2:
                self._kill("did not stop before the second interrupt")

    def _on_end(self, supervised: SupervisedChild, status: int, how: str) -> None:
        if self._status is not None:
            return
        if not supervised.child.was_ready and status in (FAILED, USAGE_ERROR):
            log.critical("%s %s before it was ready: stopping all brokers", supervised.child.name, how)
            self._stop(status)
            return
        now = time.monotonic()
        pause = supervised.pauses.next(now - supervised.started_at)
        when = f"in {pause:g} s" if pause else "now"
        log.warning("%s %s: restarting %s", supervised.child.name, how, when)
        supervised.restart_at = now + pause

    def _stop(self, status: int) -> None:
        if self._status is not None:
            return
        self._status = status
        self._kill_at = time.monotonic() + self._stop_seconds_max
        for supervised in self._children:
            supervised.restart_at = None
            supervised.child.signal(signal.SIGTERM)

    def _kill(self, why: str) -> None:
        self._kill_at = None
        for supervised in self._children:
            if supervised.child.is_running:
                log.error("%s %s: killing it", supervised.child.name, why)
                supervised.child.signal(signal.SIGKILL)


def _describe_status(status: int) -> str:
    """Describe how a process with this status ended; a negative status is a signal."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
