"""Log compaction over runs of plain batches: whole, of format 2, uncompressed and not transactional.

In Python a single batch costs 3 to 4 µs, and a log of single records may have ten million batches. A run ends before a
batch that is not plain, needs a delete horizon, or stays without records. log/compaction/cleaner.py handles that batch
individually and continues with the next run. log/compaction/cleaned_batches.py and record/batch_filter.py are the
readable twin of this file.

Compiled, a run releases the interpreter lock until it ends.
"""

from __future__ import annotations

from typing import TypeAlias

try:
    import cython
except ImportError:
    from odradek.record.kernels import _shim as cython

if not cython.compiled:
    from odradek.record.kernels._checksum import checksum, prepare_checksums
    from odradek.record.kernels._copy import copy_bytes, wrap64
    from odradek.record.kernels.compact import Filter, OffsetMap, Reader

Bytes: TypeAlias = bytes | bytearray | memoryview

COMPILED = bool(cython.compiled)

INT32_MAX = (1 << 31) - 1
UINT32_SPAN = 1 << 32
LOG_OVERHEAD_BYTES = 12
HEADER_BYTES = 61
CHECKSUMMED_FROM = 21
MAGIC = 2
NOT_PLAIN = 0x37  # In the attributes: a codec, transactional, control.
LOG_APPEND_TIME = 0x08
DELETE_HORIZON = 0x40
RECORD_BYTES_MIN = 7
_ALL = -1

prepare_checksums()


class Header:
    """Reader of the batch headers in a chunk, with the positions of record/record_batch.py.

    Offsets, which no checksum covers, increase from `lowest` to below `highest`.
    """

    def __init__(self, data: Bytes, highest: int) -> None:
        self.data = data if len(data) else bytes(1)  # Cython's views require an element to point at.
        self.end = len(data)
        self.lowest = 0
        self.highest = highest
        self.size = 0
        self.base_offset = 0
        self.next_offset = 0
        self.attributes = 0
        self.records_count = 0

    def read(self, at: int) -> bool:
        """Return whether a plain batch with records and a correct checksum is at this position."""
        if at < 0 or at + HEADER_BYTES > self.end or self.data[at + 16] != MAGIC:
            return False
        self.size = self.int32(at + 8) + LOG_OVERHEAD_BYTES
        if self.size < HEADER_BYTES or self.size > self.end - at:
            return False
        self.attributes = self.data[at + 22]
        if self.attributes & NOT_PLAIN:
            return False
        self.base_offset = self.int64(at)
        delta = self.int32(at + 23)
        self.next_offset = wrap64(self.base_offset + delta + 1)
        self.records_count = self.int32(at + 57)
        if self.base_offset < self.lowest or delta < 0 or delta >= self.highest - self.base_offset:
            return False
        if self.records_count <= 0:
            return False
        return self.number(at + 17, 4) == checksum(self.data, at + CHECKSUMMED_FROM, self.size - CHECKSUMMED_FROM)

    def number(self, at: int, size: int) -> int:
        """Return a big-endian number of at most eight bytes.

        In compiled code, the highest bit of eight bytes is the sign.
        """
        value = 0
        for index in range(at, at + size):
            value = value << 8 | self.data[index]
        return value

    def int32(self, at: int) -> int:
        value = self.number(at, 4)
        return value - UINT32_SPAN if value > INT32_MAX else value

    def int64(self, at: int) -> int:
        return wrap64(self.number(at, 8))


class KeyRuns:
    """Collection of the keys of batch runs in a map.

    It covers records from `first` on, in batches that start below `upper`.
    """

    def __init__(self, offsets: OffsetMap, first: int, upper: int) -> None:
        self.offsets = offsets
        self.first = first
        self.upper = upper
        self.next_offset = 0
        self.begin_chunk(b"", 0)

    def begin_chunk(self, chunk: Bytes, highest: int) -> None:
        """Start the next chunk, whose offsets are below `highest`."""
        self.header = Header(chunk, highest)
        self.reader = Reader(chunk, 0, 0, 0)

    def run(self, start: int, next_offset: int, room: int) -> int:
        """Put the keys of a run from `start` on into the map and return the size of the run in bytes.

        The preceding batches ended at next_offset; the attribute then contains the end of this run. At most `room` new
        keys are put. Some keys of the batch that ends the run may already be in the map; this is harmless, because they
        are put again.
        """
        self.header.lowest = max(next_offset, 0)
        limit = min(self.offsets.used + max(room, 0), self.offsets.slots)
        with cython.nogil:
            end = self.put_all(self.header, self.reader, start, limit)
        self.next_offset = self.header.lowest
        return end - start

    def put_all(self, header: Header, reader: Reader, start: int, limit: int) -> int:
        at = start
        while header.read(at) and header.base_offset < self.upper:
            if header.next_offset > self.first:
                reader.begin_records(at + HEADER_BYTES, at + header.size, header.records_count, header.base_offset, 0)
                if self.offsets.put_all(reader, self.first, limit) != _ALL:
                    break
            header.lowest = header.next_offset
            at += header.size
        return at


class FilterRuns:
    """Selection of the retained parts of batch runs.

    Batches beyond `end`, the end of the map, stay unchanged. `special` contains the last offsets of batches that may
    have to stay without records, in ascending order, as 64-bit numbers. The attributes describe the last run:
    `next_offset` is the end of its batches, `base_offset` and `last_offset` are those of the retained batches, and
    `dropped` counts records.
    """

    def __init__(self, offsets: OffsetMap, end: int, special: memoryview) -> None:
        self.filter = Filter(offsets)
        self.end = end
        self.special_count = len(special)
        self.special = special if len(special) else memoryview(bytes(8)).cast("q")
        self.begin_chunk(b"", 0)

    def begin_chunk(self, chunk: Bytes, highest: int) -> None:
        """Start the next chunk, whose offsets are below `highest`.

        The retained bytes are copied together so that there are few pieces to write.
        """
        self.header = Header(chunk, highest)
        self.reader = Reader(chunk, 0, 0, 0)
        self.target = bytearray(len(chunk) + 1)
        self.filter.target = memoryview(self.target)
        self.filter.stays = memoryview(bytearray(len(chunk) // RECORD_BYTES_MIN + 1))
        self.filter.at = 0
        self.reset(0)

    def reset(self, next_offset: int) -> None:
        self.header.lowest = max(next_offset, 0)
        self.next_offset = self.header.lowest
        self.kept_from = self.filter.at
        self.base_offset = -1
        self.last_offset = -1
        self.dropped = 0

    def run(  # noqa: PLR0917
        self, start: int, next_offset: int, now: int, keeps_last: bool, bytes_max: int, offset_max: int
    ) -> int:
        """Filter a run of batches from `start` on and return its size in bytes.

        The preceding batches ended at next_offset. With keeps_last, a part of the batch at the end of the chunk must
        stay. The run ends before the retained bytes exceed bytes_max or their offsets exceed offset_max.
        """
        self.reset(next_offset)
        room = min(bytes_max, len(self.target) - self.filter.at)
        with cython.nogil:
            end = self.take_all(self.header, start, now, keeps_last, room, offset_max)
        self.next_offset = self.header.lowest
        return end - start

    def kept(self) -> memoryview:
        """Return the retained batches of the last run, back to back."""
        return memoryview(self.target)[self.kept_from : self.filter.at]

    def take_all(  # noqa: PLR0917
        self, header: Header, start: int, now: int, keeps_last: bool, room: int, offset_max: int
    ) -> int:
        at = start
        while header.read(at):
            # The final size of a removed or smaller batch is not known yet. A batch that ends the run too early is
            # handled individually.
            if self.filter.at - self.kept_from + header.size > room or header.next_offset - 1 > offset_max:
                break
            if header.base_offset >= self.end:
                self.keep(at)
            elif not self.filter_batch(header, self.filter, at, now, keeps_last):
                break
            header.lowest = header.next_offset
            at += header.size
        return at

    def filter_batch(self, header: Header, found: Filter, at: int, now: int, keeps_last: bool) -> bool:
        """Filter a batch that the map covers at least in part; return False if it ends the run."""
        if header.records_count > (header.size - HEADER_BYTES) // RECORD_BYTES_MIN:
            return False
        base_timestamp = header.int64(at + 27)
        has_horizon = header.attributes & DELETE_HORIZON
        end = at + header.size
        self.reader.begin_records(at + HEADER_BYTES, end, header.records_count, header.base_offset, base_timestamp)
        found.reset()
        if found.decide_all(self.reader, self.end, not has_horizon or now < base_timestamp) < 0:
            return False
        if found.kept == 0:
            if (keeps_last and end == header.end) or header.next_offset == self.end or self.is_special():
                return False
        elif found.has_tombstones and not has_horizon:
            return False
        elif found.dropped == 0:
            self.keep(at)
        else:
            self.remake(header, found, at)
        self.dropped += found.dropped
        return True

    def is_special(self) -> bool:
        """Return whether the batch is one of the special ones."""
        low = 0
        high = self.special_count
        while low < high:
            middle = (low + high) >> 1
            if self.special[middle] < self.header.next_offset - 1:
                low = middle + 1
            else:
                high = middle
        return low < self.special_count and self.special[low] == self.header.next_offset - 1

    def keep(self, at: int) -> None:
        """Keep a batch unchanged."""
        self.cover()
        copy_bytes(self.filter.target, self.filter.at, self.header.data, at, self.header.size)
        self.filter.at += self.header.size

    def cover(self) -> None:
        if self.base_offset < 0:
            self.base_offset = self.header.base_offset
        self.last_offset = self.header.next_offset - 1

    def remake(self, header: Header, found: Filter, at: int) -> None:
        """Keep some records of a batch: header and checksum change, records keep their bytes."""
        self.cover()
        start = found.at
        copy_bytes(found.target, start, header.data, at, HEADER_BYTES)
        found.at = start + HEADER_BYTES
        found.write_all(self.reader, False)
        size = found.at - start
        self.write(start + 8, 4, size - LOG_OVERHEAD_BYTES)
        if not header.attributes & LOG_APPEND_TIME:
            self.write(start + 35, 8, found.max_timestamp)
        self.write(start + 57, 4, found.kept)
        self.write(start + 17, 4, checksum(found.target, start + CHECKSUMMED_FROM, size - CHECKSUMMED_FROM))

    def write(self, at: int, size: int, value: int) -> None:
        """Write a big-endian number."""
        for index in range(size):
            self.filter.target[at + index] = (value >> (8 * (size - 1 - index))) & 0xFF
