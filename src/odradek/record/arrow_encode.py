"""Conversion of Arrow columns to record batches, for a Spark sink or a bulk loader.

Needs pyarrow (extra `spark`).

    encoder = RowEncoder(values, keys=keys, now=now_ms)
    start = 0
    while start < encoder.rows:
        stop = encoder.fit(start, batch_bytes_max)
        send(encoder.encode(start, stop, Codec.LZ4))
        start = stop

All rows belong to one partition, in order: choose partitions with partitions_of, then take() the rows of each.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from odradek.base.limits import BATCH_BYTES_MAX
from odradek.base.units import ProducerEpoch, ProducerId, TimestampMs
from odradek.record.builder import (
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    seal_batch,
)
from odradek.record.compression import Codec
from odradek.record.kernels.encode import Cells, Encoder, no_record
from odradek.record.kernels.murmur import choose_partitions
from odradek.record.record_batch import HEADER_BYTES, TRANSACTIONAL

_NO_OFFSETS = memoryview(bytes(4)).cast("i")


class RowEncoder:
    """The rows of Arrow arrays of equal length, as records.

    keys and values: binary or string arrays (other byte types are converted); None means null in every row.
    headers: list<struct<key: string, value: binary>>, as in Spark's sink; a null list means no headers.
    timestamps: timestamps or int64 milliseconds; rows without a timestamp use `now`.

    Raise ValueError for columns of other types or lengths.
    """

    def __init__(
        self,
        values: pa.Array | None,
        *,
        keys: pa.Array | None = None,
        headers: pa.Array | None = None,
        timestamps: pa.Array | None = None,
        now: int,
    ) -> None:
        given = [len(column) for column in (values, keys, headers, timestamps) if column is not None]
        if len(set(given)) != 1:
            raise ValueError(f"columns must have the same length, not {given}")
        self.rows = given[0]
        self._now = now
        self._milliseconds = None if timestamps is None else _milliseconds(timestamps, now)
        self._encoder = Encoder(
            _cells(keys, self.rows), _cells(values, self.rows), _header_cells(headers), self._milliseconds
        )

    def fit(self, start: int, bytes_max: int = BATCH_BYTES_MAX, stop: int | None = None) -> int:
        """Return the end of the largest uncompressed batch from `start` within bytes_max.

        A single row may exceed bytes_max.
        """
        end, size = self._encoder.fit(start, self.rows if stop is None else stop, bytes_max - HEADER_BYTES)
        if size < 0:
            raise no_record(end)
        return end

    def encode(
        self,
        start: int,
        stop: int,
        codec: Codec = Codec.NONE,
        *,
        level: int | None = None,
        producer_id: ProducerId = NO_PRODUCER,
        producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
    ) -> bytearray:
        """Encode the rows start..stop - 1, at least one, as a batch that is ready to send."""
        if not 0 <= start < stop <= self.rows:
            raise ValueError(f"rows {start} to {stop} are out of range: there are {self.rows} rows")
        batch = self._encoder.encode(HEADER_BYTES, start, stop)
        base_timestamp, max_timestamp = self._timestamps(start, stop)
        return seal_batch(
            batch,
            codec,
            level=level,
            count=stop - start,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            attributes=TRANSACTIONAL if is_transactional else 0,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )

    def _timestamps(self, start: int, stop: int) -> tuple[TimestampMs, TimestampMs]:
        if self._milliseconds is None:
            return TimestampMs(self._now), TimestampMs(self._now)
        return TimestampMs(self._milliseconds[start]), TimestampMs(self._encoder.timestamp_max(start, stop))


def encode_rows(
    keys: pa.Array | None,
    values: pa.Array | None,
    timestamps: pa.Array | None = None,
    headers: pa.Array | None = None,
    *,
    now: int,
    start: int = 0,
    stop: int | None = None,
    codec: Codec = Codec.NONE,
) -> bytearray:
    """Encode the rows start..stop - 1 as one batch, for callers that need a single batch."""
    encoder = RowEncoder(values, keys=keys, headers=headers, timestamps=timestamps, now=now)
    return encoder.encode(start, encoder.rows if stop is None else stop, codec)


def partitions_of(keys: pa.Array, partitions: int) -> pa.Array:
    """Return an int32 partition for each key by Kafka's default partitioner, and null for null keys.

    The default partitioner uses murmur2 of the key.
    """
    array = _as_binary(keys)
    if partitions < 1:
        raise ValueError(f"{partitions} partitions")
    if len(array) == 0:
        return pa.nulls(0, pa.int32())
    chosen = pa.allocate_buffer(4 * len(array))
    bad = choose_partitions(_offsets(array), _data(array), partitions, memoryview(chosen).cast("B").cast("i"))
    if bad >= 0:
        raise ValueError(f"key {bad} is outside its column")
    result = pa.Array.from_buffers(pa.int32(), len(array), [None, chosen])
    return pc.if_else(array.is_valid(), result, pa.scalar(None, pa.int32())) if array.null_count else result


def _as_binary(array: pa.Array) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_binary(array.type) or pa.types.is_string(array.type):
        return array
    try:
        return array.cast(pa.binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"a column must contain bytes, not {array.type}") from error


def _cells(array: pa.Array | None, rows: int) -> Cells:
    array = pa.nulls(rows, pa.binary()) if array is None else _as_binary(array)
    data = _data(array)
    return Cells(_all_offsets(array), data, _validity(array), array.offset, len(data))


def _header_cells(headers: pa.Array | None) -> tuple[Cells, Cells, Cells]:
    """Return (borders of the lists, keys, values); without headers, there are no borders."""
    if headers is None:
        empty = Cells(_NO_OFFSETS, b"", None, 0, 0)
        return empty, empty, empty
    if isinstance(headers, pa.ChunkedArray):
        headers = headers.combine_chunks()
    if not (pa.types.is_list(headers.type) and pa.types.is_struct(headers.type.value_type)):
        raise ValueError(f"headers must be list<struct<key, value>>, not {headers.type}")
    pairs = headers.values
    names = [field.name for field in headers.type.value_type]
    if sorted(names) != ["key", "value"]:
        raise ValueError(f"headers must have key and value, not {names}")
    keys, values = (pairs.flatten()[names.index(name)] for name in ("key", "value"))
    borders = Cells(_all_offsets(headers), b"", _validity(headers), headers.offset, len(pairs))
    return borders, _cells(keys, len(pairs)), _cells(values, len(pairs))


def _all_offsets(array: pa.Array) -> memoryview:
    """Return the offsets from the start of the buffer; the array's own begin at array.offset."""
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return memoryview(bytes(4 * (array.offset + 1))).cast("i")
    return memoryview(buffer).cast("B")[: 4 * (array.offset + len(array) + 1)].cast("i")


def _offsets(array: pa.Array) -> memoryview:
    return _all_offsets(array)[array.offset :]


def _data(array: pa.Array) -> memoryview:
    buffer = array.buffers()[2]
    return memoryview(b"") if buffer is None else memoryview(buffer).cast("B")


def _validity(array: pa.Array) -> memoryview | None:
    buffer = array.buffers()[0]
    return None if buffer is None or array.null_count == 0 else memoryview(buffer).cast("B")


def _milliseconds(timestamps: pa.Array, now: int) -> memoryview:
    if isinstance(timestamps, pa.ChunkedArray):
        timestamps = timestamps.combine_chunks()
    if pa.types.is_timestamp(timestamps.type):
        timestamps = timestamps.cast(pa.timestamp("ms", tz=timestamps.type.tz), safe=False)
    elif not pa.types.is_int64(timestamps.type):
        raise ValueError(f"timestamps must be timestamps or int64 milliseconds, not {timestamps.type}")
    whole = timestamps.cast(pa.int64()).fill_null(now)
    if len(whole) == 0:
        return memoryview(bytes(8)).cast("q")
    view = memoryview(whole.buffers()[1]).cast("B").cast("q")
    return view[whole.offset : whole.offset + len(whole)]
