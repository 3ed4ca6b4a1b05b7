"""Process started by app/serve/supervisor.py: its start, output and end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import IO, NamedTuple

from odradek.app.serve.line_queue import LineBuffer, LineQueue
from odradek.base.units import KIB

READ_BYTES = 64 * KIB  # Capacity of a pipe.
OUT, ERR = 1, 2


def supervised_odradek() -> list[str]:
    """Return the command that runs `app/supervised.py`, with the module search path of this process."""
    is_module = getattr(sys.modules["__main__"], "__spec__", None) is not None
    # Unlike the odradek command, python -m searches the current directory first, where a random.py would interfere.
    safe_path = ["-P"] if sys.flags.safe_path or not is_module else []
    return [sys.executable, *safe_path, "-m", "odradek.app.supervised"]


class Stream(NamedTuple):
    """Standard stream of a child: its pipe, our target descriptor, and its incomplete line."""

    pipe: IO[bytes]
    target: int
    buffer: LineBuffer


class Child:
    """Process of a fixed command, restarted as needed; `name` identifies it in messages.

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
        """Return the open descriptors of its standard output and error."""
        return tuple(self._streams)

    def start(self, lifeline: int) -> None:
        """Start the process. Raise OSError."""
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

    def poll_exit_status(self) -> int | None:
        """Return the exit status, or the negated signal that ended the process, once. Otherwise return None."""
        status = None if self._process is None else self._process.poll()
        if status is not None:
            self._process = None
        return status

    def read(self, descriptor: int, queue: LineQueue) -> None:
        """Append the lines that can be read from a descriptor to the queue."""
        stream = self._streams[descriptor]
        data = stream.pipe.read(READ_BYTES)  # None if no data is available.
        if data:
            self._forward(stream.target, stream.buffer.feed(data), queue)
        elif data is not None:
            self._close(descriptor, queue)

    def read_last(self, queue: LineQueue) -> None:
        """Append the rest of an ended process's output to the queue, and close its pipes."""
        for descriptor in self.descriptors:
            self.read(descriptor, queue)  # All available data, even if a process that it started keeps writing.
            if descriptor in self._streams:
                self._close(descriptor, queue)

    def _close(self, descriptor: int, queue: LineQueue) -> None:
        stream = self._streams.pop(descriptor)
        self._forward(stream.target, stream.buffer.take_unfinished_line(), queue)
        stream.pipe.close()

    def _forward(self, target: int, lines: Iterable[bytes], queue: LineQueue) -> None:
        for line in lines:
            if target == OUT:
                self.was_ready |= line.startswith(b"ready ")
            is_whole = target == OUT or (self._writes_json and line.startswith(b"{"))
            queue.put(target, line if is_whole else self._prefix + line)

    def signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
