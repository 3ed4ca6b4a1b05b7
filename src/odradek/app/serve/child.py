"""A process that app/serve/supervisor has started: its start, its output and its end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import IO, NamedTuple

from odradek.app.serve.line_queue import LineBuffer, LineQueue
from odradek.base.units import KIB

READ_BYTES = 64 * KIB  # What a pipe holds.
OUT, ERR = 1, 2


def supervised_odradek() -> list[str]:
    """Returns the command that `app/supervised` is run by; it finds its modules where this process does."""
    is_module = getattr(sys.modules["__main__"], "__spec__", None) is not None
    # python -m looks into the current directory first, where a random.py would be in the way; the odradek command not.
    safe_path = ["-P"] if sys.flags.safe_path or not is_module else []
    return [sys.executable, *safe_path, "-m", "odradek.app.supervised"]


class Stream(NamedTuple):
    """A standard stream of a child: what it is read from, which one of ours it goes to, and the line it has begun."""

    pipe: IO[bytes]
    target: int
    buffer: LineBuffer


class Child:
    """A process, or several one after the other; `name` is what a person is told it is.

    The command is `program`, the descriptor of the lifeline and `arguments`.
    """

    def __init__(self, name: str, program: Sequence[str], arguments: Sequence[str], *, writes_json: bool) -> None:
        self.name = name
        self.was_ready = False  # Ever.
        self._command = (program, arguments)
        self._prefix = f"{name}: ".encode()
        self._writes_json = writes_json
        self._process: subprocess.Popen[bytes] | None = None
        self._streams: dict[int, Stream] = {}  # By descriptor.

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Those of its standard output and error, as long as they are open."""
        return tuple(self._streams)

    def start(self, lifeline: int) -> None:
        """Starts the process.  Raises OSError."""
        program, arguments = self._command
        self._process = subprocess.Popen(
            [*program, str(lifeline), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            pass_fds=[lifeline],
        )
        for target, pipe in ((OUT, self._process.stdout), (ERR, self._process.stderr)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._streams[pipe.fileno()] = Stream(pipe, target, LineBuffer())

    def ended(self) -> int | None:
        """Returns the exit status, or minus the signal that ended the process; None while it runs, and ever after."""
        status = None if self._process is None else self._process.poll()
        if status is not None:
            self._process = None
        return status

    def read(self, descriptor: int, queue: LineQueue) -> None:
        """Puts the lines that can be read from a descriptor into the queue."""
        stream = self._streams[descriptor]
        data = stream.pipe.read(READ_BYTES)  # None if there is nothing to be read.
        if data:
            self._pass_on(stream.target, stream.buffer.feed(data), queue)
        elif data is not None:
            self._close(descriptor, queue)

    def read_last(self, queue: LineQueue) -> None:
        """Puts what an ended process has left in its pipes into the queue, and closes them."""
        for descriptor in self.descriptors:
            self.read(descriptor, queue)  # All of it, whether the pipe has ended or a process of its own may write on.
            if descriptor in self._streams:
                self._close(descriptor, queue)

    def _close(self, descriptor: int, queue: LineQueue) -> None:
        stream = self._streams.pop(descriptor)
        self._pass_on(stream.target, stream.buffer.rest(), queue)
        stream.pipe.close()

    def _pass_on(self, target: int, lines: Iterable[bytes], queue: LineQueue) -> None:
        for line in lines:
            if target == OUT:
                self.was_ready |= line.startswith(b"ready ")
            is_whole = target == OUT or (self._writes_json and line.startswith(b"{"))
            queue.put(target, line if is_whole else self._prefix + line)

    def signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
