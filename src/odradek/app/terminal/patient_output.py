"""Standard output of a command that has something to do while nobody reads: a pager, a stopped terminal, a full pipe.

A pipe takes PIPE_BUF bytes without blocking once poll() says that it takes any, and a terminal at least so many as it
shows; a regular file never blocks.
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

MEANWHILE_EVERY_MS = 1 * SECOND_MS


class PatientOutput:
    """Writes to a file descriptor; meanwhile() is called about once a second while it takes nothing."""

    def __init__(self, fd: int, meanwhile: Callable[[], object]) -> None:
        self._fd = fd
        self._meanwhile = meanwhile
        self._is_file = stat.S_ISREG(os.fstat(fd).st_mode)
        self._poller = select.poll()
        self._poller.register(fd, select.POLLOUT)

    @classmethod
    def standard(cls, meanwhile: Callable[[], object]) -> PatientOutput:
        sys.stdout.flush()
        return cls(sys.stdout.fileno(), meanwhile)

    def write(self, data: bytes) -> None:
        """Writes all of it.  Raises BrokenPipeError once nobody can read it any more."""
        view = memoryview(data)
        while view:
            if self._is_file:
                view = view[os.write(self._fd, view) :]
            elif self._poller.poll(MEANWHILE_EVERY_MS):
                view = view[os.write(self._fd, view[: select.PIPE_BUF]) :]
            else:
                self._meanwhile()


@contextmanager
def terminated_in_order() -> Iterator[None]:
    """Has SIGTERM end the block as Ctrl-C does: through its finally clauses, with the status that shells give."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + SIGTERM)

    before = signal(SIGTERM, end)
    try:
        yield
    finally:
        signal(SIGTERM, before)
