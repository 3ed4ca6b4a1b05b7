"""Buffers that are reused as soon as no view of their contents exists."""

from __future__ import annotations


def is_free(buffer: bytearray) -> bool:
    """Return whether no view of the buffer exists; the interpreter can't resize a buffer with a view."""
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True
