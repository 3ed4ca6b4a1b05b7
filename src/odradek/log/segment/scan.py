"""Walks over the batches of a .log file by their headers, many headers per read.

A walk never reads the records of a batch; for its format see record/record_batch.py.  Logs of brokers before 0.11
contain formats 0 and 1, which are walked, too: length and magic are at the same positions in all formats.

Format 0 and 1:
│  0 │ i64 │ offset (of the last message inside, when compressed) │
│  8 │ i32 │ bytes after this field                              │
│ 12 │ u32 │ CRC-32 of all below                                 │
│ 16 │ i8  │ magic                                               │
│ 17 │ i8  │ attributes                                          │
│ 18 │ i64 │ timestamp (format 1)                                │
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from odradek.base.units import INT64_MAX, KIB, MIB, NO_EPOCH, NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs
from odradek.log.files.disk import File
from odradek.log.files.page_cache import ReadableFile
from odradek.record.crc import crc32c
from odradek.record.kernels.runs import Runs
from odradek.record.record_batch import (
    CHECKSUMMED_FROM,
    CRC_POSITION,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
)

# Measured: reading 8 KiB from the page cache takes 1.1 µs, 8 bytes 0.7; most walks end within an index interval.
WALK_CHUNK_BYTES = 8 * KIB
CHECK_CHUNK_BYTES = 1 * MIB
_OLD_HEADER_BYTES = 26
_HEADER = Struct(">qiibIhiqq")  # Of format 2, up to max_timestamp.
_CHECKSUM = Struct(">I")
_TIMESTAMP = Struct(">q")

assert _OLD_HEADER_BYTES < _HEADER.size < HEADER_BYTES < WALK_CHUNK_BYTES


class FileBatch(NamedTuple):
    """Position, size and header fields of one batch in a file."""

    position: int
    size: int
    base_offset: Offset
    last_offset: Offset
    max_timestamp: TimestampMs
    leader_epoch: LeaderEpoch
    magic: int

    @property
    def end_position(self) -> int:
        return self.position + self.size


class Damaged(Exception):
    """Raised for a position without a whole batch: a torn write at the log's end, else a broken disk."""

    def __init__(self, path: str, position: int, why: str) -> None:
        super().__init__(f"{path} at {position}: {why}")
        self.path = path
        self.position = position
        self.why = why


def walk(file: ReadableFile, position: int, end: int, *, chunk_bytes: int = WALK_CHUNK_BYTES) -> Iterator[FileBatch]:
    """Yield the batches from `position`, where one must begin, to `end`.  Raise Damaged or DiskFailed."""
    chunk, chunk_position = b"", position
    while position < end:
        at = position - chunk_position
        if at + HEADER_BYTES > len(chunk) and chunk_position + len(chunk) < end:
            chunk, chunk_position, at = file.pread(position, min(chunk_bytes, end - position)), position, 0
        place = _parse(file.path, chunk, at, position, end)
        yield place
        position += place.size


def batch_at(file: ReadableFile, position: int, end: int) -> FileBatch:
    """Return the batch that begins at `position`, from its header alone.  Raise exceptions as walk does."""
    return _parse(file.path, file.pread(position, min(HEADER_BYTES, end - position)), 0, position, end)


def walk_checked(file: File, position: int, end: int) -> Iterator[FileBatch]:
    """Yield batches as walk does, and verify every checksum.  Raise exceptions as walk does."""
    chunk, chunk_position = memoryview(b""), position
    while position < end:
        at = position - chunk_position
        if at + HEADER_BYTES > len(chunk) and chunk_position + len(chunk) < end:
            chunk = memoryview(file.pread(position, min(CHECK_CHUNK_BYTES, end - position)))
            chunk_position, at = position, 0
        place = _parse(file.path, chunk, at, position, end)
        if at + place.size > len(chunk):
            chunk = memoryview(file.pread(position, max(CHECK_CHUNK_BYTES, place.size)))
            chunk_position, at = position, 0
        _check(file.path, place, chunk, at)
        yield place
        position += place.size


def walk_runs(file: File, position: int, end: int, runs: Runs) -> Iterator[FileBatch]:
    """Walk as walk_checked does from a segment's start, but yield a run of batches as one batch.

    A run's leader epoch is the highest of its batches; runs.max_timestamp_offset belongs to the greatest timestamp
    so far.  The producer of a batch outside any run is counted when the caller requests the next batch, that is,
    after the caller accepted this one.
    """
    chunk, chunk_position = b"", position
    while position < end:
        size = runs.run(chunk, position - chunk_position)
        if not size:
            chunk, chunk_position = file.pread(position, min(CHECK_CHUNK_BYTES, end - position)), position
            size = runs.run(chunk, 0)
        if size:
            last = Offset(runs.next_offset - 1)
            timestamp = TimestampMs(runs.run_max_timestamp)
            assert 0 < size <= end - position, "a run ends within the walk"
            yield FileBatch(
                position, size, Offset(runs.first_offset), last, timestamp, LeaderEpoch(runs.first_epoch), MAGIC
            )
            position += size
            continue
        for place in walk_checked(file, position, end):  # A batch outside any run is old, large, or damaged.
            runs.add_batch(place.size, place.last_offset, place.max_timestamp, place.leader_epoch)
            yield place
            position += place.size
            if place.magic == MAGIC:
                _count_producer(file, place, runs)
                break


def _count_producer(file: File, place: FileBatch, runs: Runs) -> None:
    """Count the producer of a batch larger than one read, which is in no run and so no control batch."""
    header = BatchHeader(file.pread(place.position, HEADER_BYTES))
    if header.has_producer_id and not header.is_control:
        runs.tally(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.base_offset,
            header.last_offset_delta,
            header.max_timestamp,
            header.is_transactional,
        )


def _parse(path: str, chunk: bytes | memoryview, at: int, position: int, end: int) -> FileBatch:
    if len(chunk) - at < _HEADER.size:
        return _parse_old(path, chunk, at, position, end)
    base_offset, length, epoch, magic, _, _, last_delta, _, max_timestamp = _HEADER.unpack_from(chunk, at)
    if magic != MAGIC:
        return _parse_old(path, chunk, at, position, end)
    size = length + LOG_OVERHEAD_BYTES
    if not HEADER_BYTES <= size <= end - position:
        raise Damaged(path, position, f"the batch size {size} does not fit the remaining {end - position} bytes")
    if base_offset < 0 or last_delta < 0 or base_offset + last_delta >= INT64_MAX:
        raise Damaged(path, position, f"invalid base offset {base_offset} or last offset delta {last_delta}")
    return FileBatch(position, size, base_offset, base_offset + last_delta, max_timestamp, epoch, magic)


def _parse_old(path: str, chunk: bytes | memoryview, at: int, position: int, end: int) -> FileBatch:
    if len(chunk) - at < _OLD_HEADER_BYTES:
        raise Damaged(path, position, f"{len(chunk) - at} bytes are too short for a batch")
    offset, length, _, magic, _, _, _, _, _ = _HEADER.unpack(
        bytes(chunk[at : at + _HEADER.size]).ljust(_HEADER.size, b"\0")
    )
    size = length + LOG_OVERHEAD_BYTES
    if magic not in (0, 1) or not _OLD_HEADER_BYTES <= size <= end - position or not 0 <= offset < INT64_MAX:
        raise Damaged(path, position, f"invalid batch header: magic {magic}, {size} bytes, offset {offset}")
    timestamp = _TIMESTAMP.unpack_from(chunk, at + 18)[0] if magic else NO_TIMESTAMP
    return FileBatch(position, size, offset, offset, timestamp, NO_EPOCH, magic)


def _check(path: str, place: FileBatch, chunk: memoryview, at: int) -> None:
    following = at + place.size
    if following > len(chunk):
        raise Damaged(
            path, place.position, f"the batch size {place.size} exceeds the remaining {len(chunk) - at} bytes"
        )
    if place.magic == MAGIC:
        checksum = crc32c(chunk[at + CHECKSUMMED_FROM : following])
        (expected,) = _CHECKSUM.unpack_from(chunk, at + CRC_POSITION)
    else:
        checksum = zlib.crc32(chunk[at + MAGIC_POSITION : following])
        (expected,) = _CHECKSUM.unpack_from(chunk, at + LOG_OVERHEAD_BYTES)
    if checksum != expected:
        raise Damaged(path, place.position, f"checksum {checksum:#010x} does not match the stored {expected:#010x}")
