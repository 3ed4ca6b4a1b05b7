"""Encoding of Arrow's columns to the records of a batch, without an object per record.

A record starts with its length, so a row is measured before it is written. arrow_encode.py supplies the columns. The
bytes of a record are drawn in records.py.
"""

from __future__ import annotations

from typing import TypeAlias

try:
    import cython
except ImportError:
    from odradek.record.kernels import _shim as cython

if not cython.compiled:
    from odradek.record.kernels._copy import copy_bytes, wrap64

Bytes: TypeAlias = bytes | bytearray | memoryview

COMPILED = bool(cython.compiled)

RECORD_BYTES_MAX = 2_147_483_647
UNBOUNDED = 9_223_372_036_854_775_807

NULL = -1
BAD = -2


class Cells:
    """One Arrow column: nullable bytes, or the borders of lists.

    For lists, `data` is empty and `limit` counts elements. `offsets` are int32, `validity` contains bits with the
    lowest first or is None, and `shift` is the array's offset into both.
    """

    def __init__(self, offsets: memoryview, data: Bytes, validity: Bytes | None, shift: int, limit: int) -> None:
        self.offsets = offsets
        self.data = data if len(data) else bytes(1)  # Cython's views require an element to point at.
        self.has_nulls = validity is not None
        self.validity = bytes(1) if validity is None else validity
        self.shift = shift
        self.limit = limit
        self.rows = min(len(self.offsets) - 1, 8 * len(self.validity) if self.has_nulls else RECORD_BYTES_MAX) - shift

    def size(self, row: int) -> int:
        """Return the number of bytes or elements, NULL, or BAD if the borders are invalid."""
        if row < 0 or row >= self.rows:
            return BAD
        at = row + self.shift
        if self.has_nulls and not self.validity[at >> 3] >> (at & 7) & 1:
            return NULL
        start = self.offsets[at]
        stop = self.offsets[at + 1]
        return stop - start if 0 <= start <= stop <= self.limit else BAD

    def start(self, row: int) -> int:
        return self.offsets[row + self.shift]


class Encoder:
    """Encoder of the rows of one RecordBatch.

    `headers` are the borders of each row's list, the keys and the values. Borders without rows mean that no row has
    headers.
    """

    def __init__(
        self, keys: Cells, values: Cells, headers: tuple[Cells, Cells, Cells], timestamps: memoryview | None
    ) -> None:
        self.keys = keys
        self.values = values
        self.headers, self.header_keys, self.header_values = headers
        self.has_headers = self.headers.rows > 0
        self.has_timestamps = timestamps is not None
        self.timestamps = memoryview(bytes(8)).cast("q") if timestamps is None else timestamps
        self.rows = min(keys.rows, values.rows)
        if self.has_headers:
            self.rows = min(self.rows, self.headers.rows)
        if self.has_timestamps:
            self.rows = min(self.rows, len(self.timestamps))
        self.target = memoryview(bytearray(1))
        self.at = 0

    def fit(self, start: int, stop: int, bytes_max: int) -> tuple[int, int]:
        """Return (end, bytes) of the largest run of rows from `start` on within bytes_max.

        `bytes` exceeds bytes_max only for a single row. Return (row, -1) if that row can't be encoded because of a
        header without a key, or more than 2 GiB.
        """
        total = 0
        if start < 0 or stop > self.rows:
            return start, -1
        for row in range(start, stop):
            size = self.body_bytes(row, row - start, self.timestamp_delta(row, start))
            if size < 0 or size > RECORD_BYTES_MAX:
                return row, -1
            size += varint_bytes(size)
            if total + size > bytes_max and row > start:
                return row, total
            total += size
        return stop, total

    def timestamp_delta(self, row: int, start: int) -> int:
        return wrap64(self.timestamps[row] - self.timestamps[start]) if self.has_timestamps else 0

    def body_bytes(self, row: int, offset_delta: int, timestamp_delta: int) -> int:
        """Return the record's length, without the length field itself, or BAD if the row is not encodable."""
        key = self.keys.size(row)
        value = self.values.size(row)
        count = self.headers.size(row) if self.has_headers else 0
        if key == BAD or value == BAD or count == BAD:  # noqa: PLR1714  # A tuple would be an object.
            return BAD
        size = 1 + varint_bytes(timestamp_delta) + varint_bytes(offset_delta)
        size += field_bytes(key) + field_bytes(value) + varint_bytes(max(count, 0))
        if count > 0:
            headers = self.headers_bytes(row, count)
            if headers == BAD:
                return BAD
            size += headers
        return size

    def headers_bytes(self, row: int, count: int) -> int:
        size = 0
        first = self.headers.start(row)
        for header in range(first, first + count):
            name = self.header_keys.size(header)
            value = self.header_values.size(header)
            if name < 0 or value == BAD:
                return BAD
            size += field_bytes(name) + field_bytes(value)
        return size

    def timestamp_max(self, start: int, stop: int) -> int:
        """Return the greatest timestamp of rows that `fit` accepted."""
        latest = self.timestamps[start]
        for row in range(start + 1, min(stop, self.rows)):
            latest = max(latest, self.timestamps[row])
        return latest

    def encode(self, head: int, start: int, stop: int) -> bytearray:
        """Encode the rows after `head` free bytes, with offset and timestamp deltas relative to the first row.

        Raise ValueError if a row can't be encoded.
        """
        end, size = self.fit(start, stop, UNBOUNDED)
        if size < 0:
            raise no_record(end)
        batch = bytearray(head + size)
        self.target = memoryview(batch)
        self.at = head
        for row in range(start, stop):
            self.record(row, row - start, self.timestamp_delta(row, start))
        self.target = memoryview(bytearray(1))  # A batch with a view could not be resized.
        return batch

    def record(self, row: int, offset_delta: int, timestamp_delta: int) -> None:
        count = self.headers.size(row) if self.has_headers else 0
        self.varint(self.body_bytes(row, offset_delta, timestamp_delta))
        self.target[self.at] = 0
        self.at += 1
        self.varint(timestamp_delta)
        self.varint(offset_delta)
        self.field(self.keys, row, self.keys.size(row))
        self.field(self.values, row, self.values.size(row))
        self.varint(max(count, 0))
        if count > 0:
            self.put_headers(row, count)

    def put_headers(self, row: int, count: int) -> None:
        first = self.headers.start(row)
        for header in range(first, first + count):
            self.field(self.header_keys, header, self.header_keys.size(header))
            self.field(self.header_values, header, self.header_values.size(header))

    def field(self, cells: Cells, row: int, size: int) -> None:
        self.varint(size)
        if size > 0:
            copy_bytes(self.target, self.at, cells.data, cells.start(row), size)
            self.at += size

    def varint(self, value: int) -> None:
        rest = (value << 1) ^ (value >> 63)
        while rest > 0x7F:
            self.target[self.at] = (rest & 0x7F) | 0x80
            self.at += 1
            rest >>= 7
        self.target[self.at] = rest
        self.at += 1


def no_record(row: int) -> ValueError:
    return ValueError(f"Row {row} cannot be encoded: a header has no key, or the record is larger than 2 GiB.")


def varint_bytes(value: int) -> int:
    rest = (value << 1) ^ (value >> 63)
    size = 1
    while rest > 0x7F:
        rest >>= 7
        size += 1
    return size


def field_bytes(size: int) -> int:
    return varint_bytes(size) + max(size, 0)
