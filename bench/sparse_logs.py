"""Logs of any size that take little of the disk: batches of zeros, of which the file has the beginnings alone.

Each batch is whole, its checksum is right, and the indexes are as a broker writes them; between the beginnings the file
has holes, which read as zeros.  So 50 GB take 3.3 GB, and a broker takes them for what they seem.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from odradek.base.units import GIB, LeaderEpoch, Offset, TimestampMs, TopicName, TopicPartition
from odradek.log.files.log_file_names import (
    HIGH_WATERMARKS,
    LOG,
    OFFSET_INDEX,
    RECOVERY_POINTS,
    TIME_INDEX,
    segment_stem,
)
from odradek.log.files.unsynced import UnsyncedDisk
from odradek.log.segment.checkpoints import read_offsets, write_offsets
from odradek.log.segment.index import OFFSET_ENTRY, TIME_ENTRY
from odradek.record.builder import encode_batch
from odradek.record.record_batch import Batch

VALUE_BYTES = 65_536 - 80
SEGMENT_BYTES = GIB
BATCHES_PER_TIME, TIME_STEP_MS = 64, 100  # So many batches have one timestamp, the next ones a later one.


class Filled(NamedTuple):
    """What a log has: offsets 0 to `end`, a batch of one record each."""

    end: int
    first_ms: int

    def time_of(self, offset: int) -> int:
        return self.first_ms + offset // BATCHES_PER_TIME * TIME_STEP_MS


def fill(data: Path, topic: str, size: int) -> Filled:
    """Gives partition 0 of a topic another log, while its broker is stopped; it stopped cleanly."""
    end = max(size // len(_batch(0)), 1)
    times = end // BATCHES_PER_TIME + 1
    filled = Filled(end, time.time_ns() // 1_000_000 - times * TIME_STEP_MS)
    folder = data / f"{topic}-0"
    for path in folder.iterdir():
        if path.suffix in (LOG, OFFSET_INDEX, TIME_INDEX):
            path.unlink()
    per_segment = SEGMENT_BYTES // len(_batch(0))
    for base in range(0, end, per_segment):
        _write(folder, filled, base, min(base + per_segment, end))
    disk = UnsyncedDisk()
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        offsets = read_offsets(disk, f"{data}/{name}")
        offsets[TopicPartition(TopicName(topic), 0)] = Offset(end)
        write_offsets(disk, f"{data}/{name}", offsets)
    return filled


def _write(folder: Path, filled: Filled, base: int, end: int) -> None:
    stem = folder / segment_stem(Offset(base))
    offsets, times = bytearray(), bytearray()
    latest, latest_offset, entered, position = -1, base, -1, 0
    with Path(f"{stem}{LOG}").open("wb") as file:
        for offset in range(base, end):
            timestamp = filled.time_of(offset)
            if timestamp > latest:
                latest, latest_offset, data = timestamp, offset, _batch(timestamp)
                head = data.rstrip(b"\0")
            os.pwrite(file.fileno(), offset.to_bytes(8) + head[8:], position)
            if offset > base:
                offsets += OFFSET_ENTRY.pack(offset - base, position)
            if latest > entered and (offset > base or offset == end - 1):
                times += TIME_ENTRY.pack(latest, latest_offset - base)
                entered = latest
            position += len(data)
        file.truncate(position)
    Path(f"{stem}{OFFSET_INDEX}").write_bytes(offsets)
    Path(f"{stem}{TIME_INDEX}").write_bytes(times)


def _batch(timestamp: int) -> bytes:
    data = bytearray(encode_batch([(None, bytes(VALUE_BYTES), (), TimestampMs(timestamp))]))
    Batch.checked(memoryview(data)).stamp(Offset(0), LeaderEpoch(0))
    return bytes(data)
