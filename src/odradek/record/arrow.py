"""Conversion of fetched batches to Arrow RecordBatches in the schema of Spark's Kafka source.

Needs pyarrow (extra `spark`).

    fetched bytes ──> client: batches visible to the reader ──> ArrowDecoder.feed ──> RecordBatches ──> Spark, Parquet

Buffers come from Arrow's memory pool, which reuses the pages of freed RecordBatches. Allocating fresh zeroed buffers
took longer than decoding. Two details follow Spark's source: a record without headers has null headers, and timestamps
are microseconds. Timestamps too large for microseconds are clamped to the end of the range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import BATCH_DECOMPRESSED_BYTES_MAX
from odradek.base.units import INT32_MAX, INT64_MAX, MIB
from odradek.record.compression import decompress
from odradek.record.kernels.decode import Column, Decoder
from odradek.record.record_batch import Batch

CREATE_TIME_TYPE = 0
LOG_APPEND_TIME_TYPE = 1

HEADER_STRUCT = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
FIELDS = (
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("timestampType", pa.int32()),
    # Spark expects the element name "element" and rejects Arrow's default "item".
    pa.field("headers", pa.list_(pa.field("element", HEADER_STRUCT))),
)


@dataclass(frozen=True, slots=True)
class DecodeSelection:
    """Columns and rows to decode: offsets from start to stop - 1.

    An excluded column is absent from the schema.
    """

    key: bool = True
    value: bool = True
    headers: bool = False
    start: int = 0
    stop: int = INT64_MAX

    def schema(self) -> pa.Schema:
        left_out = {"key": not self.key, "value": not self.value, "headers": not self.headers}
        return pa.schema([field for field in FIELDS if not left_out.get(field.name, False)])


@dataclass(frozen=True, slots=True)
class RecordBatchLimits:
    """Thresholds for emitting a RecordBatch: rows or data bytes, whichever is reached first."""

    rows: int = 16_384
    data_bytes: int = 32 * MIB
    decompressed_bytes_max: int = BATCH_DECOMPRESSED_BYTES_MAX
    check_crc: bool = True  # Kafka's consumer setting check.crcs.


WHOLE = DecodeSelection()
USUAL = RecordBatchLimits()


class ArrowDecoder:
    """Decoder from the batches of one partition, fed in order, to RecordBatches.

        decoder = ArrowDecoder("topic", 0, DecodeSelection(start=first, stop=end))
        for batch in fetched.batches():
            yield from decoder.feed(batch)
        yield from decoder.flush()

    The decoder skips control batches and batches outside the wanted offsets. Callers must not pass batches of aborted
    transactions (client.fetched filters them out). After a Refused, `flush` still returns the rows before the bad
    batch.
    """

    def __init__(
        self, topic: str, partition: int, selection: DecodeSelection = WHOLE, portion: RecordBatchLimits = USUAL
    ) -> None:
        self.name = f"{topic}-{partition}"
        self.selection = selection
        self.portion = portion
        self.schema = selection.schema()
        self._columns = Decoder(selection.key, selection.value, selection.headers, pa.allocate_buffer)
        self._columns.window(selection.start, selection.stop)
        self._topic = _Constant(pa.scalar(topic, pa.string()))
        self._partition = _Constant(pa.scalar(partition, pa.int32()))
        self._timestamp_types = {kind: _Constant(pa.scalar(kind, pa.int32())) for kind in (0, 1)}
        self._timestamp_type = CREATE_TIME_TYPE

    @property
    def rows(self) -> int:
        """Return the number of rows buffered for the next RecordBatch."""
        return self._columns.rows

    def feed(self, batch: Batch) -> list[pa.RecordBatch]:
        """Decode a batch and return the RecordBatches that it completes, usually none.

        Raise Refused(CORRUPT_MESSAGE) for a wrong checksum, broken compression or malformed records.
        """
        if self._is_skipped(batch):
            return []
        if self.portion.check_crc and not batch.is_intact:
            raise self._corrupt(batch, "checksum mismatch")
        payload = decompress(batch.codec, batch.payload, self.portion.decompressed_bytes_max)
        ready = self._make_room(batch.is_log_append_time, len(payload))
        bad = self._columns.decode(
            payload,
            batch.records_count,
            batch.base_offset,
            batch.base_timestamp,
            batch.max_timestamp if batch.is_log_append_time else None,
        )
        if bad >= 0:
            raise self._corrupt(batch, f"record {bad} of {batch.records_count} is malformed")
        if self._is_full():
            ready += self.flush()
        return ready

    def flush(self) -> list[pa.RecordBatch]:
        """Return the buffered rows as RecordBatches: none, one, or several after a single large batch."""
        rows = self._columns.rows
        if rows == 0:
            return []
        whole = self._record_batch(rows)
        self._columns.clear()
        if rows < 2 * self.portion.rows:
            return [whole]
        return [whole.slice(start, self.portion.rows) for start in range(0, rows, self.portion.rows)]

    def _is_skipped(self, batch: Batch) -> bool:
        return (
            batch.is_control
            or batch.records_count == 0
            or batch.last_offset < self.selection.start
            or batch.base_offset >= self.selection.stop
        )

    def _is_full(self) -> bool:
        columns = self._columns
        return columns.rows >= self.portion.rows or columns.keys.size + columns.values.size >= self.portion.data_bytes

    def _make_room(self, is_log_append_time: bool, size: int) -> list[pa.RecordBatch]:
        """Flush if the next batch does not fit.

        A RecordBatch has one timestamp type and 32-bit offsets.
        """
        kind = LOG_APPEND_TIME_TYPE if is_log_append_time else CREATE_TIME_TYPE
        columns = self._columns
        largest = max(columns.keys.size, columns.values.size, columns.header_keys.size, columns.header_values.size)
        ready = self.flush() if kind != self._timestamp_type or largest + size > INT32_MAX else []
        self._timestamp_type = kind
        return ready

    def _record_batch(self, rows: int) -> pa.RecordBatch:
        columns = self._columns
        arrays = [
            self._topic.times(rows),
            self._partition.times(rows),
            pa.Array.from_buffers(pa.int64(), rows, [None, columns.offsets_owner]),
            pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), rows, [None, columns.timestamps_owner]),
            self._timestamp_types[self._timestamp_type].times(rows),
        ]
        if self.selection.value:
            arrays.insert(0, _binary(columns.values))
        if self.selection.key:
            arrays.insert(0, _binary(columns.keys))
        if self.selection.headers:
            arrays.append(_headers(columns, self.schema.field("headers").type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _corrupt(self, batch: Batch, why: str) -> Refused:
        detail = f"{self.name}: batch at offset {batch.base_offset}: {why}"
        return Refused(ErrorCode.CORRUPT_MESSAGE, detail)


def decode_batches(
    batches: Iterable[Batch],
    topic: str,
    partition: int,
    selection: DecodeSelection = WHOLE,
    portion: RecordBatchLimits = USUAL,
) -> Iterator[pa.RecordBatch]:
    """Decode all batches of one partition to RecordBatches.

    Raise Refused for a bad batch, after yielding the rows before it.
    """
    decoder = ArrowDecoder(topic, partition, selection, portion)
    try:
        for batch in batches:
            yield from decoder.feed(batch)
    except Refused:
        yield from decoder.flush()
        raise
    yield from decoder.flush()


class _Constant:
    """A column of one repeated value, allocated once for the largest RecordBatch so far."""

    def __init__(self, value: pa.Scalar) -> None:
        self._value = value
        self._array = pa.repeat(value, 0)

    def times(self, rows: int) -> pa.Array:
        if len(self._array) < rows:
            self._array = pa.repeat(self._value, rows)
        return self._array.slice(0, rows)


def _binary(column: Column, kind: pa.DataType | None = None) -> pa.Array:
    validity, offsets, data = column.buffers()
    buffers = [validity if column.nulls else None, offsets, data if data is not None else pa.py_buffer(b"")]
    return pa.Array.from_buffers(kind or pa.binary(), column.rows, buffers, column.nulls)


def _headers(columns: Decoder, kind: pa.DataType) -> pa.Array:
    if columns.header_keys.rows == 0:
        return pa.nulls(columns.rows, kind)
    keys = _header_keys(columns)
    pairs = pa.StructArray.from_arrays([keys, _binary(columns.header_values)], fields=list(HEADER_STRUCT))
    validity, offsets, _ = columns.headers.buffers()
    nulls = columns.headers.nulls
    buffers = [validity if nulls else None, offsets]
    return pa.Array.from_buffers(kind, columns.rows, buffers, nulls, children=[pairs])


def _header_keys(columns: Decoder) -> pa.Array:
    """Return the header keys as text; replace invalid UTF-8 as Java does."""
    if columns.high_bits < 0x80:
        return _binary(columns.header_keys, pa.string())
    raw = _binary(columns.header_keys)
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode(errors="replace") for key in raw.to_pylist()], pa.string())
