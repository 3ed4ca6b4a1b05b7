"""Checked reading of a segment's batches, one chunk at a time, for compaction of whole logs."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from odradek.base.units import Offset
from odradek.log.files.disk import File
from odradek.log.segment.scan import Damaged
from odradek.record.record_batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL,
    Batch,
)

_LENGTH = Struct(">i")
_LOW_ATTRIBUTES_POSITION = 22
_NOT_PLAIN = CODEC_MASK | TRANSACTIONAL | CONTROL


class OldFormat(Exception):
    """Raised for a message set of format 0 or 1, which brokers before 0.11 wrote."""


class Chunk:
    """Part of a segment that begins with a batch; `at` is the number of bytes already read.

    `is_last` is True if the chunk contains the segment's end.  Offsets, which no checksum covers, must rise from
    `next_offset` to below `end_offset`.  `next` raises Damaged and OldFormat.
    """

    def __init__(
        self, path: str, position: int, data: memoryview, next_offset: Offset, end_offset: Offset, *, is_last: bool
    ) -> None:
        assert next_offset <= end_offset, "a segment ends after it begins"
        self._path = path
        self._position = position
        self.is_last = is_last
        self.data = data
        self.at = 0
        self.next_offset = next_offset
        self.end_offset = end_offset

    @property
    def has_plain_next(self) -> bool:
        """Return whether the next batch, if any, may be in a run of plain ones.

        See record/kernels/compact_runs.py.
        """
        low_attributes = self.at + _LOW_ATTRIBUTES_POSITION
        return low_attributes < len(self.data) and not self.data[low_attributes] & _NOT_PLAIN

    @property
    def is_over(self) -> bool:
        """Return whether the segment's last batch was read."""
        return self.is_last and self.at == len(self.data)

    def next(self) -> Batch | None:
        """Return the next batch; None if the chunk does not contain all of it."""
        data, at = self.data, self.at
        if at + HEADER_BYTES > len(data):
            if self.is_last and at < len(data):
                raise self._damage(f"{len(data) - at} bytes are too short for a batch")
            return None
        magic = data[at + MAGIC_POSITION]
        if magic in (0, 1):
            raise OldFormat(f"{self._path} contains message sets with magic {magic}")
        size = _LENGTH.unpack_from(data, at + 8)[0] + LOG_OVERHEAD_BYTES
        if magic != MAGIC or size < HEADER_BYTES:
            raise self._damage(f"invalid batch header: magic {magic}, {size} bytes")
        if at + size > len(data):
            if self.is_last:
                raise self._damage(f"the batch size {size} exceeds the remaining {len(data) - at} bytes")
            return None
        batch = Batch.trusted(data[at : at + size])
        if not batch.is_intact:
            raise self._damage(f"the checksum does not match {batch.crc:#010x}")
        if not self.next_offset <= batch.base_offset < batch.next_offset <= self.end_offset:
            raise self._damage(f"unexpected offsets {batch.base_offset} to {batch.last_offset}")
        self.at = at + size
        self.next_offset = batch.next_offset
        return batch

    def skip(self, size: int, next_offset: int) -> None:
        """Skip whole batches that other code has read; `next_offset` follows their last offset."""
        assert 0 <= size <= len(self.data) - self.at, "only batches of this chunk are skipped"
        self.at += size
        self.next_offset = Offset(max(self.next_offset, next_offset))
        assert self.next_offset <= self.end_offset, "a chunk has no offset beyond its segment"

    def size_of_next(self) -> int:
        """Return the size of a batch that this chunk contains only in part; 0 without its whole header."""
        if self.at + HEADER_BYTES > len(self.data):
            return 0
        size: int = _LENGTH.unpack_from(self.data, self.at + 8)[0]
        return size + LOG_OVERHEAD_BYTES

    def _damage(self, why: str) -> Damaged:
        return Damaged(self._path, self._position + self.at, why)


def chunks(file: File, size: int, base_offset: Offset, end_offset: Offset, chunk_bytes: int) -> Iterator[Chunk]:
    """Yield the chunks of a segment; each begins where the caller stopped reading the previous one.

    `size`, `base_offset` and `end_offset` describe the segment.  A chunk has `chunk_bytes`, or more for a larger batch.
    Raise Damaged if the file is shorter than `size`.
    """
    position, read_bytes, next_offset = 0, max(chunk_bytes, HEADER_BYTES), base_offset
    while position < size:
        data = memoryview(file.pread(position, min(read_bytes, size - position)))
        if len(data) < min(read_bytes, size - position):
            raise Damaged(file.path, position + len(data), "end of file")
        is_last = position + len(data) == size
        chunk = Chunk(file.path, position, data, next_offset, end_offset, is_last=is_last)
        yield chunk
        position, next_offset = position + chunk.at, chunk.next_offset
        read_bytes = max(chunk_bytes, HEADER_BYTES, chunk.size_of_next())
        assert chunk.at or read_bytes > len(data), "each chunk takes the walk further, or the next one is larger"
