"""Construction of record batches from single records, for clients, control records and tests.

Bulk data is encoded by arrow_encode.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from odradek.base.units import (
    INT32_MAX,
    INT64_MAX,
    NO_EPOCH,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from odradek.record.compression import Codec, compress
from odradek.record.crc import Buffer, crc32c
from odradek.record.kernels._copy import wrap64
from odradek.record.record_batch import (
    CHECKSUMMED_FROM,
    CONTROL,
    CRC_POSITION,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL,
)

HeadersIn: TypeAlias = Sequence[tuple[str, Buffer | None]]
RecordIn: TypeAlias = tuple[Buffer | None, Buffer | None, HeadersIn, int]

FIRST_OFFSET = Offset(0)
NO_PRODUCER = ProducerId(-1)
NO_PRODUCER_EPOCH = ProducerEpoch(-1)
NO_SEQUENCE = -1


def encode_batch(
    records: Iterable[RecordIn],
    codec: Codec = Codec.NONE,
    *,
    level: int | None = None,
    base_offset: Offset = FIRST_OFFSET,
    leader_epoch: LeaderEpoch = NO_EPOCH,
    producer_id: ProducerId = NO_PRODUCER,
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    log_append_time: TimestampMs | None = None,
) -> bytearray:
    """Encode records (key, value, headers, timestamp in ms) at consecutive offsets as one batch.

    Raise ValueError if there is no record.
    """
    batch = bytearray(HEADER_BYTES)
    count, base_timestamp, max_timestamp = 0, 0, -INT64_MAX - 1
    for key, value, headers, timestamp in records:
        if count == 0:
            base_timestamp = timestamp
        max_timestamp = max(max_timestamp, timestamp)
        encode_record(batch, count, wrap64(timestamp - base_timestamp), key, value, headers=headers)
        count += 1
    if count == 0:
        raise ValueError("a batch must contain at least one record")
    attributes = (TRANSACTIONAL if is_transactional else 0) | (CONTROL if is_control else 0)
    if log_append_time is not None:
        attributes |= LOG_APPEND_TIME
        max_timestamp = log_append_time
    return seal_batch(
        batch,
        codec,
        level=level,
        count=count,
        base_timestamp=TimestampMs(base_timestamp),
        max_timestamp=TimestampMs(max_timestamp),
        attributes=attributes,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def seal_batch(
    batch: bytearray,
    codec: Codec = Codec.NONE,
    *,
    count: int,
    base_timestamp: TimestampMs,
    max_timestamp: TimestampMs,
    level: int | None = None,
    attributes: int = 0,
    base_offset: Offset = FIRST_OFFSET,
    leader_epoch: LeaderEpoch = NO_EPOCH,
    producer_id: ProducerId = NO_PRODUCER,
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytearray:
    """Seal encoded records of consecutive offsets, after HEADER_BYTES free bytes, as a batch.

    Without a codec this happens in place. The codec is added to `attributes`.
    """
    if codec is not Codec.NONE:
        packed = compress(codec, memoryview(batch)[HEADER_BYTES:], level)
        batch = bytearray(HEADER_BYTES)
        batch += packed
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LOG_OVERHEAD_BYTES,
        leader_epoch,
        MAGIC,
        0,
        attributes | codec,
        count - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    checksum = crc32c(memoryview(batch)[CHECKSUMMED_FROM:])
    batch[CRC_POSITION:CHECKSUMMED_FROM] = checksum.to_bytes(CHECKSUMMED_FROM - CRC_POSITION)
    return batch


def encode_record(
    out: bytearray,
    offset_delta: int,
    timestamp_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    *,
    headers: HeadersIn = (),
) -> None:
    """Append one record in the format drawn in records.py."""
    body = bytearray(1)  # Attributes.
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    _write_nullable(body, key)
    _write_nullable(body, value)
    write_varint(body, len(headers))
    for name, content in headers:
        _write_nullable(body, name.encode())
        _write_nullable(body, content)
    if len(body) > INT32_MAX:
        raise ValueError(f"a record of {len(body)} bytes exceeds the maximum size of a batch")
    write_varint(out, len(body))
    out += body


def write_varint(out: bytearray, value: int) -> None:
    """Append a zigzag varint; the encoding is the same for a varlong."""
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def _write_nullable(out: bytearray, data: Buffer | None) -> None:
    if data is None:
        out.append(1)  # The varint of -1.
        return
    write_varint(out, len(data))
    out += data
