"""Lines from a file or a pipe, with a callback on each pause in the input.

The callback lets a producer send the records of a slow pipe without waiting for a full batch.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator

from odradek.app.terminal.command_failed import CommandFailed
from odradek.base.units import KIB, MIB

CHUNK_BYTES = 256 * KIB
LINE_BYTES_MAX = 100 * MIB  # A longer record exceeds socket.request.max.bytes.


def lines_of(fd: int, pause_ms: int, on_pause: Callable[[], None]) -> Iterator[bytes]:
    r"""Yield lines without their ends, and call on_pause() after pause_ms without input.

    A line ends with \n, \r\n or \r, as in Kafka's console producer. The last line may have no end.
    """
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    pieces: list[bytes] = []  # Pieces of an incomplete line, joined only once.
    pieces_bytes = 0
    is_after_return = False
    while True:
        if not poller.poll(pause_ms):
            on_pause()
        chunk = os.read(fd, CHUNK_BYTES)
        if not chunk:
            break
        if is_after_return or b"\r" in chunk:
            # If \r\n is split across two chunks, the \r has ended the line.
            chunk, is_after_return = unify_newlines(chunk, is_after_return), chunk.endswith(b"\r")
        head, newline, rest = chunk.partition(b"\n")
        pieces.append(head)
        pieces_bytes += len(head)
        if pieces_bytes > LINE_BYTES_MAX:
            raise CommandFailed(f"line too long: a record can have at most {LINE_BYTES_MAX // MIB} MiB")
        if newline:
            yield b"".join(pieces)
            *whole, tail = rest.split(b"\n")
            yield from whole
            pieces, pieces_bytes = [tail], len(tail)
    last = b"".join(pieces)
    if last:
        yield last


def unify_newlines(chunk: bytes, is_after_return: bool) -> bytes:
    r"""Normalize line ends to \n, and drop a leading \n that follows the previous chunk's \r."""
    if is_after_return and chunk.startswith(b"\n"):
        chunk = chunk[1:]
    return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
