"""Lines of several writers, passed on whole: LineBuffer puts one writer's together, LineQueue writes those of all.

Neither takes more than a bounded room: a long line is cut, and while nobody reads what the queue writes, its user reads
no more from the writers, who then wait as they would at a full pipe of their own.
"""

from __future__ import annotations

import os
import select
from collections import deque
from contextlib import suppress

from odradek.base.units import KIB, MIB, SECOND_MS

# The longest event of app/logging/log_format, a traceback in JSON with every character escaped, is shorter.
LINE_BYTES_MAX = 256 * KIB
QUEUE_BYTES_MAX = 1 * MIB
LAST_MS_MAX = 1 * SECOND_MS


class LineBuffer:
    """The line that one writer has begun."""

    def __init__(self) -> None:
        self._begun = bytearray()
        self._cut_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the lines that these bytes end, each with its newline; what is beyond LINE_BYTES_MAX is cut off."""
        *ends, begin = data.split(b"\n")
        lines = []
        for end in ends:
            self._add(end)
            lines.append(self._line())
        self._add(begin)
        return lines

    def rest(self) -> list[bytes]:
        """Returns the unfinished last line, if there is one, with a newline."""
        return [self._line()] if self._begun else []

    def _add(self, piece: bytes) -> None:
        room = LINE_BYTES_MAX - len(self._begun)
        self._begun += piece[:room]
        self._cut_bytes += max(0, len(piece) - room)

    def _line(self) -> bytes:
        more = b"... (%d more)" % self._cut_bytes if self._cut_bytes else b""
        line = bytes(self._begun) + more + b"\n"
        self._begun.clear()
        self._cut_bytes = 0
        return line


class LineQueue:
    """Lines on their way to descriptors of this process; one queue for all of these, which may be one terminal."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, memoryview]] = deque()
        self._bytes = 0

    @property
    def has_room(self) -> bool:
        """False while half of QUEUE_BYTES_MAX waits: who reads from writers waits, too."""
        return self._bytes < QUEUE_BYTES_MAX // 2

    @property
    def waits_for(self) -> int | None:
        """The descriptor that has to become writable for `flush` to do anything; None if the queue is empty."""
        return self._waiting[0][0] if self._waiting else None

    def put(self, descriptor: int, line: bytes) -> None:
        """Appends a line; drops it if QUEUE_BYTES_MAX wait already."""
        if self._bytes + len(line) <= QUEUE_BYTES_MAX:
            self._waiting.append((descriptor, memoryview(line)))
            self._bytes += len(line)

    def flush(self) -> None:
        """Writes as much as is taken without blocking; a line that can't be written, to a closed pipe say, is lost."""
        while self._waiting:
            descriptor, line = self._waiting[0]
            if not _is_writable(descriptor):
                return
            written = len(line)
            with suppress(OSError):
                # A pipe that takes anything takes so much without blocking.
                written = os.write(descriptor, line[: select.PIPE_BUF])
            self._bytes -= written
            if written < len(line):
                self._waiting[0] = descriptor, line[written:]
            else:
                self._waiting.popleft()

    def flush_last(self) -> None:
        """Writes all, but for what nobody takes for LAST_MS_MAX."""
        self.flush()
        while self._waiting and _is_writable(self._waiting[0][0], LAST_MS_MAX):
            self.flush()


def _is_writable(descriptor: int, wait_ms: int = 0) -> bool:
    """True also for a closed pipe: writing tells."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(wait_ms))
