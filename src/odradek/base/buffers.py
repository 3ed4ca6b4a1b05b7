"""Buffers that are used again as soon as nobody looks at what they held."""

from __future__ import annotations


def is_free(buffer: bytearray) -> bool:
    """True if no view of the buffer exists: the interpreter refuses to resize one of which there is a view."""
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True
