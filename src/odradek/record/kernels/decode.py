"""Decoding of a batch's records to columns, without an object per record.

arrow.py builds the Arrow arrays. A Decoder collects rows of one partition over many batches. A batch is added
completely or not at all: its rows become visible only after its last record is found valid. The buffers have Arrow's
layout: n + 1 int32 offsets, bytes back to back, validity bits from the lowest up. The bytes of a record are drawn in
records.py, the readable twin of this file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

try:
    import cython
except ImportError:
    from odradek.record.kernels import _shim as cython

if not cython.compiled:
    from odradek.record.kernels._copy import copy_bytes, wrap64

Bytes: TypeAlias = bytes | bytearray | memoryview
Allocate: TypeAlias = Callable[[int], object]

COMPILED = bool(cython.compiled)

# Timestamps become microseconds; values beyond the 64-bit range are clamped to its ends.
MILLIS_MAX = 9_223_372_036_854_775
MICROS_MAX = 9_223_372_036_854_775_807

INT64_MAX = (1 << 63) - 1
INT64_MIN = -INT64_MAX - 1

FIRST_CAPACITY = 1024
NO_TIMESTAMP = -1
RELEASED_BYTES_MIN = 1 << 21


class Payload:
    """A position in uncompressed records; a read beyond `end` sets `failed` and returns 0.

    No method raises an exception.
    """

    def __init__(self, data: Bytes) -> None:
        self.data = data if len(data) else bytes(1)  # Cython's views require an element to point at.
        self.position = 0
        self.end = len(data)
        self.failed = False

    def varint(self) -> int:
        """Read a varint of up to 5 bytes; bits beyond the 32nd are dropped."""
        if self.position < self.end and self.data[self.position] < 0x80:  # Nearly all varints are one byte.
            raw = self.data[self.position]
            self.position += 1
        else:
            raw = self.digits(28, 0x0F)
        return (raw >> 1) ^ -(raw & 1)

    def varlong(self) -> int:
        """Read a varlong of up to 10 bytes."""
        raw = self.digits(63, 0x01)
        return (raw >> 1) ^ -(raw & 1)

    def digits(self, shift_max: int, last_mask: int) -> int:
        """Read seven bits per byte, lowest first, masking the byte at `shift_max` with `last_mask`."""
        value = 0
        shift = 0
        while shift <= shift_max and self.position < self.end:
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & (last_mask if shift == shift_max else 0x7F)) << shift
            if byte < 0x80:
                return value
            shift += 7
        self.failed = True
        return 0

    def sized(self) -> int:
        """Read the length of nullable bytes and check that they are complete; return -1 for null."""
        size = self.varint()
        if size > self.end - self.position:
            self.failed = True
            return -1
        return size if size >= 0 else -1

    def skip(self) -> int:
        """Skip key, value and headers; return -1 if they are malformed, otherwise 1."""
        for _ in range(2):
            size = self.sized()
            if size > 0:
                self.position += size
        count = self.varint()
        if self.failed or count < 0 or count > self.end - self.position:
            return -1
        return self.skip_headers(count)

    def skip_headers(self, count: int) -> int:
        for _ in range(count):
            size = self.sized()
            if size < 0:
                return -1
            self.position += size
            size = self.sized()
            if self.failed:
                return -1
            if size > 0:
                self.position += size
        return 1


class Column:
    """Nullable bytes of variable length, or the borders of a list if there are no bytes."""

    def __init__(self, allocate: Allocate) -> None:
        self.allocate = allocate
        self.row_capacity = 0
        self.byte_capacity = 0
        self.reset()

    def reset(self) -> None:
        """Forget the rows and the buffers, which now belong to their receiver.

        The next buffers get the same capacity when they are needed.
        """
        self.rows = 0
        self.nulls = 0
        self.size = 0
        self.row_room = 0
        self.byte_room = 0
        self.offsets_owner: object = None
        self.validity_owner: object = None
        self.data_owner: object = None
        self.offsets = memoryview(bytearray(4)).cast("i")
        self.validity = memoryview(bytearray(1))
        self.data = memoryview(bytearray(1))

    def reserve(self, rows: int, size: int) -> None:
        """Reserve space for this many additional rows and bytes."""
        if self.rows + rows > self.row_room:
            self.row_room = self.row_capacity = _capacity(self.rows + rows, self.row_capacity)
            self.offsets_owner, view = self._grown(self.offsets, 4 * (self.rows + 1), 4 * (self.row_room + 1))
            self.offsets = view.cast("i")
            self.validity_owner, view = self._grown(self.validity, (self.rows + 7) >> 3, (self.row_room >> 3) + 1)
            self.validity = view
        if size > 0 and self.size + size > self.byte_room:
            self.byte_room = self.byte_capacity = _capacity(self.size + size, self.byte_capacity)
            self.data_owner, view = self._grown(self.data, self.size, self.byte_room)
            self.data = view

    def _grown(self, old: memoryview, used: int, size: int) -> tuple[object, memoryview]:
        owner = self.allocate(size)
        view = memoryview(owner).cast("B")  # type: ignore[arg-type]  # Every object from allocate has a buffer.
        assert len(view) >= size, "the code below writes without bounds checks"
        view[:used] = memoryview(old).cast("B")[:used]
        return owner, view

    def append(self, source: Payload, size: int) -> None:
        """Append the next `size` bytes of the source and advance it; -1 appends null."""
        if size >= 0:
            copy_bytes(self.data, self.size, source.data, source.position, size)
            source.position += size
            self.close_row(True, size)
        else:
            self.close_row(False, 0)

    def close_row(self, is_valid: bool, size: int) -> None:
        # The bit has an arbitrary value: memory is not initialized, and rows may have been cut off.
        if is_valid:
            self.validity[self.rows >> 3] |= 1 << (self.rows & 7)
        else:
            self.validity[self.rows >> 3] &= ~(1 << (self.rows & 7))
            self.nulls += 1
        self.size += size
        self.rows += 1
        self.offsets[self.rows] = self.size

    def cut(self, rows: int) -> None:
        """Truncate to this many rows."""
        while self.rows > rows:
            self.rows -= 1
            if not self.validity[self.rows >> 3] >> (self.rows & 7) & 1:
                self.nulls -= 1
        self.size = self.offsets[rows]

    def buffers(self) -> tuple[object, object, object]:
        """Return (validity, offsets, data) as allocated, longer than the used part; None for unused buffers."""
        return self.validity_owner, self.offsets_owner, self.data_owner


class Decoder:
    """Columns of one partition; the allocator returns writable buffers, for example a `bytearray`."""

    def __init__(self, with_key: bool, with_value: bool, with_headers: bool, allocate: Allocate = bytearray) -> None:
        self.with_key = with_key
        self.with_value = with_value
        self.with_headers = with_headers
        self.allocate = allocate
        self.capacity = 0
        self.window(0, MICROS_MAX)
        self.keys = Column(allocate)
        self.values = Column(allocate)
        self.headers = Column(allocate)
        self.header_keys = Column(allocate)
        self.header_values = Column(allocate)
        self.clear()

    def clear(self) -> None:
        """Release the buffers; call this after they were taken."""
        self.rows = 0
        self.room = 0
        self.high_bits = 0
        self.offsets_owner: object = None
        self.timestamps_owner: object = None
        self.offsets = memoryview(bytearray(8)).cast("q")
        self.timestamps = memoryview(bytearray(8)).cast("q")
        self.keys.reset()
        self.values.reset()
        self.headers.reset()
        self.header_keys.reset()
        self.header_values.reset()

    def window(self, start: int, stop: int) -> None:
        """Restrict the rows to records with offsets in start..stop - 1."""
        self.start = start
        self.stop = stop

    def decode(
        self, data: Bytes, count: int, base_offset: int, base_timestamp: int, log_append_time: int | None
    ) -> int:
        """Add the records of one batch and return -1, or the index of the malformed record.

        An index of `count` means that bytes remain after the last record. Reading ends at the window's stop without
        checking the rest. log_append_time replaces the timestamp of every record.
        """
        source = Payload(data)
        if count > source.end // 7:  # No record is shorter, and space is reserved for `count` of them.
            return 0
        self.reserve(count, source.end)
        rows = self.rows
        headers = self.header_keys.rows
        self.base_offset = base_offset
        self.base_timestamp = base_timestamp
        self.is_log_append_time = log_append_time is not None
        self.log_append_time = log_append_time or 0
        bad = self.all_records(source, count)
        if bad >= 0:
            self.cut(rows, headers)
        return bad

    def reserve(self, count: int, size: int) -> None:
        """Reserve space for every record of a batch, and for all its bytes in each column."""
        if self.rows + count > self.room:
            self.room = self.capacity = _capacity(self.rows + count, self.capacity)
            self.offsets_owner, view = self.grown(self.offsets, 8 * self.rows)
            self.offsets = view
            self.timestamps_owner, view = self.grown(self.timestamps, 8 * self.rows)
            self.timestamps = view
        if self.with_key:
            self.keys.reserve(count, size)
        if self.with_value:
            self.values.reserve(count, size)
        if self.with_headers:
            self.headers.reserve(count, 0)

    def grown(self, old: memoryview, used: int) -> tuple[object, memoryview]:
        owner = self.allocate(8 * self.room)
        view = memoryview(owner).cast("B")  # type: ignore[arg-type]  # Every object from allocate has a buffer.
        assert len(view) >= 8 * self.room, "the code below writes without bounds checks"
        view[:used] = memoryview(old).cast("B")[:used]
        return owner, view.cast("q")

    def cut(self, rows: int, headers: int) -> None:
        self.rows = rows
        if self.with_key:
            self.keys.cut(rows)
        if self.with_value:
            self.values.cut(rows)
        if self.with_headers:
            self.headers.cut(rows)
            self.header_keys.cut(headers)
            self.header_values.cut(headers)

    def all_records(self, source: Payload, count: int) -> int:
        end = source.end
        for index in range(count):
            length = source.varint()
            if source.failed or length < 1 or length > end - source.position:
                return index
            source.end = source.position + length
            status = self.record(source)
            if status < 0 or source.failed:
                return index
            if status == 0:
                return -1
            if source.position != source.end:
                return index
            source.end = end
        return -1 if source.position == end else count

    def record(self, source: Payload) -> int:
        """Read one record: return 0 at the first offset >= `stop`, -1 if malformed, otherwise 1."""
        source.position += 1  # Attributes.
        timestamp = wrap64(self.base_timestamp + source.varlong())
        offset = wrap64(self.base_offset + source.varint())
        if source.failed:
            return -1
        if offset >= self.stop:
            return 0
        if offset < self.start:
            return source.skip()
        if self.is_log_append_time:
            timestamp = self.log_append_time
        self.offsets[self.rows] = offset
        self.timestamps[self.rows] = micros(timestamp)
        self.rows += 1
        self.nullable(source, self.keys, self.with_key)
        self.nullable(source, self.values, self.with_value)
        return self.some_headers(source)

    def nullable(self, source: Payload, column: Column, is_selected: bool) -> None:
        size = source.sized()
        if is_selected:
            column.append(source, size)
        elif size > 0:
            source.position += size

    def some_headers(self, source: Payload) -> int:
        count = source.varint()
        if source.failed or count < 0 or count > source.end - source.position:
            return -1
        if not self.with_headers:
            return source.skip_headers(count)
        if count > 0:
            self.room_for_headers(count, source.end - source.position)
        for _ in range(count):
            if self.header(source) < 0:
                return -1
        # As in Spark's own source, a record without headers has null instead of an empty list.
        self.headers.close_row(count > 0, count)
        return 1

    def header(self, source: Payload) -> int:
        size = source.sized()
        if size < 0:
            return -1
        for position in range(source.position, source.position + size):
            self.high_bits |= source.data[position]
        self.header_keys.append(source, size)
        size = source.sized()
        if source.failed:
            return -1
        self.header_values.append(source, size)
        return 1

    def room_for_headers(self, count: int, size: int) -> None:
        self.header_keys.reserve(count, size)
        self.header_values.reserve(count, size)


def micros(timestamp: int) -> int:
    if timestamp > MILLIS_MAX:
        return MICROS_MAX
    if timestamp < -MILLIS_MAX:
        return -MICROS_MAX
    return timestamp * 1000


def _capacity(needed: int, before: int) -> int:
    return max(needed + (needed >> 1), before, FIRST_CAPACITY)


def longest(data: Bytes) -> int:
    """Return the size of the largest uncompressed record, by length prefixes up to the first invalid one."""
    source = Payload(data)
    most = 0
    with cython.nogil:
        while source.position < source.end:
            length = source.varint()
            if source.failed or length < 1:
                break
            most = max(most, length)
            if length > source.end - source.position:
                break
            source.position += length
    return most


class Check:
    """Check of a producer's records against their topic.

    The offsets must be 0 to count - 1; keys and timestamp bounds depend on the topic. A record with a fault is
    well-formed but not acceptable. `faults` counts such records, `untimely` those with a timestamp fault; `newest` is
    the greatest timestamp.
    """

    def __init__(self, needs_keys: bool, oldest: int, latest: int) -> None:
        self.needs_keys = needs_keys
        self.oldest = oldest
        self.latest = latest
        self.newest = INT64_MIN
        self.faults = 0
        self.untimely = 0
        self.room = 0

    def note(self, count: int) -> None:
        """Record the first `count` faults, at least one, during the next run."""
        self.room = count
        self.places = memoryview(bytearray(8 * count)).cast("q")
        self.times = memoryview(bytearray(8 * count)).cast("q")

    def fault(self, number: int) -> tuple[int, int | None]:
        """Return the index of a recorded fault, and its timestamp if that is the fault.

        Without a timestamp, the fault is a missing key.
        """
        place = self.places[number]
        return (place, self.times[number]) if place >= 0 else (-1 - place, None)

    def run(self, data: Bytes, count: int, base_timestamp: int) -> int:
        """Read all records and return -1, or the index of the malformed record.

        An index of `count` means that bytes remain after the last record. Compiled, the method releases the interpreter
        lock only for many records: for few, another thread could hold the lock for longer than the check takes.
        """
        source = Payload(data)
        self.newest = INT64_MIN
        self.faults = 0
        self.untimely = 0
        if source.end < RELEASED_BYTES_MIN:
            return self.all_records(source, count, base_timestamp)
        with cython.nogil:
            bad = self.all_records(source, count, base_timestamp)
        return bad  # noqa: RET504  # Evaluated after the lock is reacquired.

    def all_records(self, source: Payload, count: int, base_timestamp: int) -> int:
        end = source.end
        for index in range(count):
            length = source.varint()
            if source.failed or length < 1 or length > end - source.position:
                return index
            source.end = source.position + length
            source.position += 1  # Attributes.
            timestamp = wrap64(base_timestamp + source.varlong())
            if source.varint() != index:
                return index
            key_at = source.position
            has_key = source.sized() >= 0
            source.position = key_at
            if source.failed or source.skip() < 0 or source.position != source.end:
                return index
            source.end = end
            self.newest = max(self.newest, timestamp)
            if self.needs_keys and not has_key:
                self.add(-1 - index, timestamp)
            elif timestamp != NO_TIMESTAMP and (timestamp < self.oldest or timestamp > self.latest):
                self.untimely += 1
                self.add(index, timestamp)
        return -1 if source.position == end else count

    def add(self, place: int, timestamp: int) -> None:
        if self.faults < self.room:
            self.places[self.faults] = place
            self.times[self.faults] = timestamp
        self.faults += 1


class Survey:
    """A summary of the records of one batch: timestamps, missing keys, and the first record at a time."""

    def __init__(self) -> None:
        self.oldest = 0
        self.newest = 0
        self.null_keys = 0
        self.is_found = False
        self.found_offset = 0
        self.found_timestamp = 0
        self.seek(INT64_MAX, 0)

    def seek(self, timestamp: int, start: int) -> None:
        """Search for the first record from offset `start` on with at least this timestamp."""
        self.target_timestamp = timestamp
        self.start = start

    def run(self, data: Bytes, count: int, base_offset: int, base_timestamp: int) -> int:
        """Read all records and return -1, or the index of the malformed record as in `decode`.

        Compiled, the method releases the interpreter lock, because a batch may take a tenth of a second.
        """
        source = Payload(data)
        self.oldest = INT64_MAX
        self.newest = INT64_MIN
        self.null_keys = 0
        self.is_found = False
        with cython.nogil:
            bad = self.all_records(source, count, base_offset, base_timestamp)
        return bad  # noqa: RET504  # Evaluated after the lock is reacquired.

    def all_records(self, source: Payload, count: int, base_offset: int, base_timestamp: int) -> int:
        end = source.end
        for index in range(count):
            length = source.varint()
            if source.failed or length < 1 or length > end - source.position:
                return index
            source.end = source.position + length
            source.position += 1  # Attributes.
            timestamp = wrap64(base_timestamp + source.varlong())
            offset = wrap64(base_offset + source.varint())
            key_at = source.position
            if source.sized() < 0:
                self.null_keys += 1
            source.position = key_at
            if source.failed or source.skip() < 0 or source.position != source.end:
                return index
            source.end = end
            self.oldest = min(self.oldest, timestamp)
            self.newest = max(self.newest, timestamp)
            if timestamp >= self.target_timestamp and offset >= self.start and not self.is_found:
                self.is_found = True
                self.found_offset = offset
                self.found_timestamp = timestamp
        return -1 if source.position == end else count
