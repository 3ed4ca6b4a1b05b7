"""Whole lines from several writers to shared outputs, in bounded memory.

LineBuffer assembles one writer's lines and cuts a long one. LineQueue writes the lines of all writers. While its output
is blocked, its user stops reading from the writers, which then block as on a full pipe of their own.
"""

from __future__ import annotations

import os
import select
from collections import deque
from contextlib import suppress

from odradek.base.units import KIB, MIB, SECOND_MS

# The longest event of app/logging/log_format.py, a traceback in JSON with every character escaped, is shorter.
LINE_BYTES_MAX = 256 * KIB
QUEUE_BYTES_MAX = 1 * MIB
LAST_MS_MAX = 1 * SECOND_MS


class LineBuffer:
    """Incomplete line of one writer."""

    def __init__(self) -> None:
        self._unfinished = bytearray()
        self._cut_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that these bytes complete, with newlines and cut to LINE_BYTES_MAX."""
        *ends, unfinished = data.split(b"\n")
        lines = []
        for end in ends:
            self._add(end)
            lines.append(self._line())
        self._add(unfinished)
        return lines

    def take_unfinished_line(self) -> list[bytes]:
        """Return the unfinished last line, if there is one, with a newline."""
        return [self._line()] if self._unfinished else []

    def _add(self, piece: bytes) -> None:
        room = LINE_BYTES_MAX - len(self._unfinished)
        self._unfinished += piece[:room]
        self._cut_bytes += max(0, len(piece) - room)

    def _line(self) -> bytes:
        more = b"... (%d more)" % self._cut_bytes if self._cut_bytes else b""
        line = bytes(self._unfinished) + more + b"\n"
        self._unfinished.clear()
        self._cut_bytes = 0
        return line


class LineQueue:
    """Queue of lines for all output descriptors of this process, which may share one terminal."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, memoryview]] = deque()
        self._bytes = 0

    @property
    def has_room(self) -> bool:
        """Return False while half of QUEUE_BYTES_MAX is queued; the reader of the writers then pauses."""
        return self._bytes < QUEUE_BYTES_MAX // 2

    @property
    def waits_for(self) -> int | None:
        """Return the descriptor that must become writable before `flush` can proceed, None if empty."""
        return self._waiting[0][0] if self._waiting else None

    def put(self, descriptor: int, line: bytes) -> None:
        """Append a line, or drop it if the queue would exceed QUEUE_BYTES_MAX."""
        if self._bytes + len(line) <= QUEUE_BYTES_MAX:
            self._waiting.append((descriptor, memoryview(line)))
            self._bytes += len(line)

    def flush(self) -> None:
        """Write as much as possible without blocking, and drop lines that cannot be written (closed pipe)."""
        while self._waiting:
            descriptor, line = self._waiting[0]
            if not _is_writable(descriptor):
                return
            written = len(line)
            with suppress(OSError):
                # A writable pipe accepts this much without blocking.
                written = os.write(descriptor, line[: select.PIPE_BUF])
            self._bytes -= written
            if written < len(line):
                self._waiting[0] = descriptor, line[written:]
            else:
                self._waiting.popleft()

    def flush_last(self) -> None:
        """Write all lines, except those whose descriptor stays blocked for LAST_MS_MAX."""
        self.flush()
        while self._waiting and _is_writable(self._waiting[0][0], LAST_MS_MAX):
            self.flush()


def _is_writable(descriptor: int, wait_ms: int = 0) -> bool:
    """Return whether a write would not block, which includes a closed pipe: the write then fails."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(wait_ms))
