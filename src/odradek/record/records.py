"""Decoding of a batch to one Python object per record.

This reader is for command lines, tests and small topics, not for bulk.

│ length           │ varint, bytes that follow      │
│ attributes       │ i8, unused                     │
│ timestamp_delta  │ varlong, from base_timestamp   │
│ offset_delta     │ varint, from base_offset       │
│ key length, key  │ varint, negative for null      │
│ value length ... │ varint, negative for null      │
│ headers count    │ varint                         │
│ each: key length, UTF-8 key, value length (negative for null), value │

Varints are zigzag; bits beyond the 32nd (varlong: 64th) are dropped, as in Kafka. The compiled twin of this reader is
kernels.decode; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import BATCH_DECOMPRESSED_BYTES_MAX
from odradek.base.units import Offset, TimestampMs
from odradek.record.compression import decompress
from odradek.record.kernels._copy import wrap64
from odradek.record.record_batch import Batch

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

VARINT_BYTES_MAX = 5
VARLONG_BYTES_MAX = 10
# No record is shorter: seven one-byte fields, including the length.
RECORD_BYTES_MIN = 7


class Record(NamedTuple):
    """One record with its absolute offset and its timestamp in milliseconds."""

    offset: Offset
    timestamp: TimestampMs
    key: bytes | None
    value: bytes | None
    headers: Headers


def decode(batch: Batch, decompressed_bytes_max: int = BATCH_DECOMPRESSED_BYTES_MAX) -> list[Record]:
    """Decode all records of a batch.

    Raise Refused(CORRUPT_MESSAGE) unless there are exactly records_count records.
    """
    return list(iter_records(batch, decompressed_bytes_max))


def iter_records(batch: Batch, decompressed_bytes_max: int = BATCH_DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """Yield the records of a batch one by one, and raise Refused on reaching a bad record."""
    if batch.records_count == 0:  # Compaction leaves an empty batch to preserve a producer's last sequence.
        return
    reader = _Reader(decompress(batch.codec, batch.payload, decompressed_bytes_max))
    log_append_time = batch.max_timestamp if batch.is_log_append_time else None
    for _ in range(batch.records_count):
        yield _record(reader, batch, log_append_time)
    if reader.position != len(reader.data):
        raise _corrupt(f"{len(reader.data) - reader.position} bytes after the last of {batch.records_count} records")


def _record(reader: _Reader, batch: Batch, log_append_time: TimestampMs | None) -> Record:
    length = reader.varint()
    end = reader.position + length
    if length < 0 or end > len(reader.data):
        raise _corrupt(f"a record of {length} bytes exceeds the remaining {len(reader.data) - reader.position} bytes")
    reader.read_bytes(1)  # Attributes.
    timestamp_delta = reader.varlong()
    offset = Offset(wrap64(batch.base_offset + reader.varint()))
    key = reader.nullable_bytes()
    value = reader.nullable_bytes()
    headers = _headers(reader)
    if reader.position != end:
        raise _corrupt(f"a record has {length + reader.position - end} bytes instead of the declared {length}")
    timestamp = TimestampMs(wrap64(batch.base_timestamp + timestamp_delta))
    return Record(offset, timestamp if log_append_time is None else log_append_time, key, value, headers)


def _headers(reader: _Reader) -> Headers:
    count = reader.varint()
    if count == 0:
        return ()
    if not 0 < count <= len(reader.data) - reader.position:
        raise _corrupt(f"{count} headers exceed the remaining {len(reader.data) - reader.position} bytes")
    return tuple((_header_key(reader), reader.nullable_bytes()) for _ in range(count))


def _header_key(reader: _Reader) -> str:
    key = reader.nullable_bytes()
    if key is None:
        raise _corrupt("a header without a key")
    return key.decode(errors="replace")


class _Reader:
    """A position in the uncompressed records; every read is checked against the end."""

    __slots__ = ("data", "position")

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.position = 0

    def read_bytes(self, size: int) -> bytes:
        start = self.position
        end = start + size
        if end > len(self.data):
            raise _corrupt(f"{size} bytes exceed the remaining {len(self.data) - start} bytes")
        self.position = end
        return bytes(self.data[start:end])

    def nullable_bytes(self) -> bytes | None:
        size = self.varint()
        return None if size < 0 else self.read_bytes(size)

    def varint(self) -> int:
        data, position = self.data, self.position
        if position < len(data) and (byte := data[position]) < 0x80:  # Nearly all varints are one byte.
            self.position = position + 1
            return (byte >> 1) ^ -(byte & 1)
        raw = self._unsigned(VARINT_BYTES_MAX) & 0xFFFF_FFFF
        return (raw >> 1) ^ -(raw & 1)

    def varlong(self) -> int:
        raw = self._unsigned(VARLONG_BYTES_MAX) & 0xFFFF_FFFF_FFFF_FFFF
        return (raw >> 1) ^ -(raw & 1)

    def _unsigned(self, bytes_max: int) -> int:
        value = 0
        position = self.position
        for index, byte in enumerate(self.data[position : position + bytes_max]):
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                self.position = position + index + 1
                return value
        raise _corrupt("a varint is truncated or too long")


def _corrupt(detail: str) -> Refused:
    return Refused(ErrorCode.CORRUPT_MESSAGE, detail)
