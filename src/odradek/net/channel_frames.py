"""The frames of responses from the bytes of a connection, without the connection.

│ i32 length of the rest │ i32 correlation id │ ...

What a peer announces costs nothing: the buffer grows to twice what has arrived, up to the end of the response.
"""

from __future__ import annotations

from struct import Struct

from odradek.base.units import KIB
from odradek.wire.errors import Malformed
from odradek.wire.primitives import Buffer

KEPT_BYTES = 16 * KIB  # Larger responses get a buffer of their own; few of those between brokers are.

_LENGTH = Struct(">i")


class ResponseFrames:
    """The receive buffer of one connection: bytes go into `get_buffer`, whole frames come out of `next_frame`."""

    __slots__ = ("_begin", "_buffer", "_end", "_frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = bytearray(KEPT_BYTES)
        self._begin = self._end = 0

    @property
    def buffer_bytes(self) -> int:
        return len(self._buffer)

    def get_buffer(self) -> memoryview:
        """Returns room for at least one byte; `next_frame` must have returned None before."""
        if self._end == len(self._buffer):
            self._make_room()
        return memoryview(self._buffer)[self._end :]

    def received(self, size: int) -> None:
        """Notes that `size` bytes were put into the last buffer."""
        self._end += size

    def next_frame(self) -> Buffer | None:
        """Returns the next response without its length, or None if it is not complete.  Raises Malformed.

        Nothing is written into a returned frame any more.
        """
        frame_bytes = self._frame_bytes()
        start = self._begin + _LENGTH.size
        if frame_bytes is None or start + frame_bytes > self._end:
            return None
        self._begin = start + frame_bytes
        if len(self._buffer) <= KEPT_BYTES:
            frame: Buffer = bytes(memoryview(self._buffer)[start : self._begin])
        else:
            frame = memoryview(self._buffer)[start : self._begin]
            self._replace_buffer(KEPT_BYTES)
        if self._begin == self._end:
            self._begin = self._end = 0
        return frame

    def _frame_bytes(self) -> int | None:
        if self._end - self._begin < _LENGTH.size:
            return None
        (size,) = _LENGTH.unpack_from(self._buffer, self._begin)
        if not _LENGTH.size <= size <= self._frame_bytes_max:
            raise Malformed(f"a response announced {size} bytes, {self._frame_bytes_max} are allowed")
        return int(size)

    def _make_room(self) -> None:
        frame_bytes = self._frame_bytes()
        whole = KEPT_BYTES if frame_bytes is None else _LENGTH.size + frame_bytes
        self._replace_buffer(max(KEPT_BYTES, min(whole, 2 * (self._end - self._begin))))

    def _replace_buffer(self, size: int) -> None:
        # A bytearray can't grow while the transport or a frame has a view of it.
        rest = memoryview(self._buffer)[self._begin : self._end]
        assert len(rest) <= size, "a large buffer ends with its response"
        self._buffer = bytearray(size)
        self._buffer[: len(rest)] = rest
        self._begin, self._end = 0, len(rest)
