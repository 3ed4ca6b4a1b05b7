"""Lines from a file or a pipe, with word of every pause: a slow pipe's records should not wait for a full batch."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator

from odradek.app.failure import CommandFailed
from odradek.base.units import KIB, MIB

CHUNK_BYTES = 256 * KIB
LINE_BYTES_MAX = 100 * MIB  # No record that long passes socket.request.max.bytes.


def lines_of(fd: int, pause_ms: int, on_pause: Callable[[], None]) -> Iterator[bytes]:
    """Yields lines without their newline; the last may have none.  Calls on_pause() after pause_ms without input."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    begun: list[bytes] = []  # The pieces of a line whose end has not come; joined once, however many there are.
    begun_bytes = 0
    while True:
        if not poller.poll(pause_ms):
            on_pause()
        chunk = os.read(fd, CHUNK_BYTES)
        if not chunk:
            break
        head, newline, rest = chunk.partition(b"\n")
        begun.append(head)
        begun_bytes += len(head)
        if begun_bytes > LINE_BYTES_MAX:
            raise CommandFailed(f"a line of more than {LINE_BYTES_MAX // MIB} MiB is no record")
        if newline:
            yield b"".join(begun)
            *whole, tail = rest.split(b"\n")
            yield from whole
            begun, begun_bytes = [tail], len(tail)
    last = b"".join(begun)
    if last:
        yield last
