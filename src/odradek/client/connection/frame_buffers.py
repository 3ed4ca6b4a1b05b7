"""Reusable buffers for received frames.

Reading a fetch answer of a megabyte into a new buffer costs a page fault for each of its 256 pages; a used buffer costs
none. A caller may keep a view of an answer indefinitely. A bytearray can't be resized while it has a view, so a buffer
in use is detected and the next frame gets a different one.
"""

from __future__ import annotations

from odradek.base.buffers import is_free
from odradek.base.units import KIB, MIB

KEPT_BUFFERS_MAX = 3  # One being received, one being decoded, one spare.
KEPT_BYTES_MAX = 64 * MIB
SMALLEST_BYTES = 64 * KIB


class FrameBuffers:
    """The receive buffers of one connection."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def claim_buffer(self, size: int) -> memoryview:
        """Return `size` writable bytes with undefined content; the buffer is free again without views."""
        for buffer in self._kept:
            if len(buffer) >= size and is_free(buffer):
                return memoryview(buffer)[:size]
        buffer = bytearray(max(size, SMALLEST_BYTES))
        self._keep(buffer)
        return memoryview(buffer)[:size]

    def _keep(self, buffer: bytearray) -> None:
        self._kept.append(buffer)
        self._kept.sort(key=len)
        while len(self._kept) > KEPT_BUFFERS_MAX or (len(self._kept) > 1 and self._bytes() > KEPT_BYTES_MAX):
            # Remove the smallest other buffer, so that the sizes converge to those this connection receives.
            self._kept.pop(1 if self._kept[0] is buffer else 0)

    def _bytes(self) -> int:
        return sum(map(len, self._kept))
