"""Standard output of a command that has periodic work to do while output is blocked.

A pager, a stopped terminal or a full pipe can block output. Once poll() reports that a pipe is writable, it accepts
PIPE_BUF bytes without blocking. A terminal accepts at least as many bytes as it displays. A regular file never blocks.
"""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from signal import SIGTERM, signal

from odradek.base.units import SECOND_MS

BLOCKED_CALL_MS = 1 * SECOND_MS


class PatientOutput:
    """Writer to a file descriptor that calls on_blocked() about once a second while it is blocked."""

    def __init__(self, fd: int, on_blocked: Callable[[], object]) -> None:
        self._fd = fd
        self._on_blocked = on_blocked
        self._is_file = stat.S_ISREG(os.fstat(fd).st_mode)
        self._poller = select.poll()
        self._poller.register(fd, select.POLLOUT)

    @classmethod
    def standard(cls, on_blocked: Callable[[], object]) -> PatientOutput:
        sys.stdout.flush()
        return cls(sys.stdout.fileno(), on_blocked)

    def write(self, data: bytes) -> None:
        """Write all of the data. Raise BrokenPipeError once the reader has closed the pipe."""
        view = memoryview(data)
        while view:
            if self._is_file:
                view = view[os.write(self._fd, view) :]
            elif self._poller.poll(BLOCKED_CALL_MS):
                view = view[os.write(self._fd, view[: select.PIPE_BUF]) :]
            else:
                self._on_blocked()


@contextmanager
def terminated_in_order() -> Iterator[None]:
    """Make SIGTERM end the block as Ctrl-C does: run its finally clauses and exit with the usual status."""

    def exit_on_sigterm(number: int, frame: object) -> None:
        raise SystemExit(128 + SIGTERM)

    before = signal(SIGTERM, exit_on_sigterm)
    try:
        yield
    finally:
        signal(SIGTERM, before)
