"""Lines from a file or a pipe, with word of every pause: a slow pipe's records should not wait for a full batch."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator

from odradek.app.terminal.command_failed import CommandFailed
from odradek.base.units import KIB, MIB

CHUNK_BYTES = 256 * KIB
LINE_BYTES_MAX = 100 * MIB  # No record that long passes socket.request.max.bytes.


def lines_of(fd: int, pause_ms: int, on_pause: Callable[[], None]) -> Iterator[bytes]:
    r"""Yields lines without their end; the last may have none.  Calls on_pause() after pause_ms without input.

    A line ends with \n, \r\n or \r, as for Kafka's console producer.
    """
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    begun: list[bytes] = []  # The pieces of a line whose end has not come; joined once, however many there are.
    begun_bytes = 0
    is_after_return = False
    while True:
        if not poller.poll(pause_ms):
            on_pause()
        chunk = os.read(fd, CHUNK_BYTES)
        if not chunk:
            break
        if is_after_return or b"\r" in chunk:
            # Of \r\n in two chunks the first has ended the line.
            chunk, is_after_return = unified(chunk, is_after_return), chunk.endswith(b"\r")
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


def unified(chunk: bytes, is_after_return: bool) -> bytes:
    r"""Writes every line end as \n; the chunk's first \n is left out if it belongs to a \r before the chunk."""
    if is_after_return and chunk.startswith(b"\n"):
        chunk = chunk[1:]
    return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
