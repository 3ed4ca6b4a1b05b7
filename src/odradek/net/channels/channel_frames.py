"""Frames of responses from the bytes of a connection, without the connection.

│ i32 length of the rest │ i32 correlation id │ ...

The length that a peer announces allocates nothing: the buffer grows to twice the bytes received, up to the end of the
response. The buffer of a large response is reused for the next one if nothing refers to it by then. Before this reuse,
a follower spent most of its time on freshly allocated memory.
"""

from __future__ import annotations

from struct import Struct

from odradek.base.buffers import is_free
from odradek.base.units import KIB
from odradek.wire.schema.malformed import Malformed
from odradek.wire.schema.primitives import Buffer

KEPT_BYTES = 16 * KIB  # Larger responses get a buffer of their own; few responses between brokers are larger.

_LENGTH = Struct(">i")


class ResponseFrames:
    """Receive buffer of one connection: bytes go into `get_buffer`, whole frames come out of `next_frame`."""

    __slots__ = ("_begin", "_buffer", "_end", "_frame_bytes_max", "_room_end", "_spare")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = bytearray(KEPT_BYTES)
        self._room_end = KEPT_BYTES  # A large response's buffer is filled only up to the end of that response.
        self._begin = self._end = 0
        self._spare: bytearray | None = None  # Buffer of the last response, if that was a large one.

    @property
    def buffer_bytes(self) -> int:
        return len(self._buffer) + len(self._spare or b"")

    def get_buffer(self) -> memoryview:
        """Return room for at least one byte; call only after `next_frame` has returned None."""
        if self._end == self._room_end:
            self._make_room()
        return memoryview(self._buffer)[self._end : self._room_end]

    def drop_spare(self) -> None:
        """Free the memory of the last large response, as the next one may be a long time coming."""
        self._spare = None

    def received(self, size: int) -> None:
        """Record that `size` bytes were written into the last buffer."""
        self._end += size

    def next_frame(self) -> Buffer | None:
        """Return the next response without its length, or None if it is incomplete.  Raises Malformed.

        A returned frame is never written to again.
        """
        frame_bytes = self._frame_bytes()
        start = self._begin + _LENGTH.size
        if frame_bytes is None or start + frame_bytes > self._end:
            return None
        self._begin = start + frame_bytes
        if len(self._buffer) <= KEPT_BYTES:
            frame: Buffer = bytes(memoryview(self._buffer)[start : self._begin])
            self._spare = None
        else:
            frame = memoryview(self._buffer)[start : self._begin]
            self._spare = self._buffer
            self._replace_buffer(bytearray(KEPT_BYTES), KEPT_BYTES)
        if self._begin == self._end:
            self._begin = self._end = 0
        return frame

    def _frame_bytes(self) -> int | None:
        if self._end - self._begin < _LENGTH.size:
            return None
        (size,) = _LENGTH.unpack_from(self._buffer, self._begin)
        if not _LENGTH.size <= size <= self._frame_bytes_max:
            raise Malformed(f"a response of {size} bytes exceeds the limit of {self._frame_bytes_max} bytes")
        return int(size)

    def _make_room(self) -> None:
        frame_bytes = self._frame_bytes()
        whole = max(KEPT_BYTES, 0 if frame_bytes is None else _LENGTH.size + frame_bytes)
        size = max(KEPT_BYTES, min(whole, 2 * (self._end - self._begin)))
        spare, self._spare = self._spare, None
        if size > KEPT_BYTES and spare is not None and len(spare) >= size and is_free(spare):
            self._replace_buffer(spare, min(whole, len(spare)))
        else:
            self._replace_buffer(bytearray(size), size)

    def _replace_buffer(self, buffer: bytearray, room_end: int) -> None:
        # A bytearray cannot grow while the transport or a frame has a view of it.
        rest = memoryview(self._buffer)[self._begin : self._end]
        assert len(rest) <= room_end <= len(buffer), "a buffer holds no more than its response"
        memoryview(buffer)[: len(rest)] = rest
        self._buffer, self._room_end = buffer, room_end
        self._begin, self._end = 0, len(rest)
