"""Compaction of one batch of format 2 to its retained records, with the same offsets and sequence.

A batch that loses records is rebuilt. The retained records keep their bytes, so only header and checksum change, and
the batch is packed with its own codec. A batch with a tombstone gets a delete horizon, the time after which the
tombstone may be removed. The horizon replaces the base timestamp, so the timestamp deltas of the records are rewritten
(KIP-534). A batch without records is only a header: it preserves its producer's last sequence, or the log's last
offset.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.base.limits import BATCH_DECOMPRESSED_BYTES_MAX
from odradek.base.units import NO_TIMESTAMP, Offset, TimestampMs
from odradek.record.compression import Codec, compress
from odradek.record.crc import Buffer, crc32c
from odradek.record.kernels.compact import ALL, SEED_BYTES, SLOT_BYTES, Filter, OffsetMap
from odradek.record.record_batch import (
    CHECKSUMMED_FROM,
    CODEC_MASK,
    CRC_POSITION,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    Batch,
)
from odradek.record.unpack import unpack

_NO_KEYS = OffsetMap(SLOT_BYTES, bytes(SEED_BYTES))


class RetentionRules(NamedTuple):
    """The current time, the horizon for new tombstones, and the maximum unpacked record size in bytes."""

    now: TimestampMs
    horizon: TimestampMs
    record_bytes_max: int


class FilteredBatch(NamedTuple):
    """The retained part of a batch: its own view, a new batch, or None if no record is retained."""

    data: Buffer | None
    dropped_records: int


def put_keys(offsets: OffsetMap, batch: Batch, start: Offset, room: int, record_bytes_max: int) -> Offset:
    """Put the keys of a batch's records from `start` on into the map.

    Return the end of the covered offsets, which is below the batch's end if the map is full. Raise BadRecords, Refused.
    """
    if not batch.records_count:
        return batch.next_offset
    records = unpack(batch, record_bytes_max, BATCH_DECOMPRESSED_BYTES_MAX)
    stopped = offsets.put_records(records, batch.records_count, batch.base_offset, start, room)
    return batch.next_offset if stopped == ALL else Offset(stopped)


class BatchFilter:
    """Filter that selects the records to retain by the offset map; methods raise BadRecords, Refused."""

    def __init__(self, offsets: OffsetMap) -> None:
        self._filter = Filter(offsets)

    def keep_latest(self, batch: Batch, end: Offset, rules: RetentionRules) -> FilteredBatch:
        """Keep records from `end` on, and the last record below `end` of each key.

        Tombstones among them are removed after the batch's delete horizon.
        """
        horizon, found, head = batch.delete_horizon, self._filter, _head(batch)
        records = unpack(batch, rules.record_bytes_max, BATCH_DECOMPRESSED_BYTES_MAX)
        keeps = horizon is None or rules.now < horizon
        count, base, time = batch.records_count, batch.base_offset, batch.base_timestamp
        data = found.run(records, count, base, time, end, keeps, None, head)
        if not found.kept:
            return FilteredBatch(None, found.dropped)
        if found.has_tombstones and horizon is None:
            data = found.run(records, count, base, time, end, True, rules.horizon, head)
            return FilteredBatch(_made(batch, data, records, found, rules.horizon, DELETE_HORIZON), found.dropped)
        if data is None:
            return FilteredBatch(batch.view, 0)
        return FilteredBatch(_made(batch, data, records, found, time, 0), found.dropped)


def stamp(batch: Batch, rules: RetentionRules) -> Buffer:
    """Return a batch with all records retained and a delete horizon; raise the errors of BatchFilter."""
    records, found = unpack(batch, rules.record_bytes_max, BATCH_DECOMPRESSED_BYTES_MAX), Filter(_NO_KEYS)
    count, base, time = batch.records_count, batch.base_offset, batch.base_timestamp
    data = found.run(records, count, base, time, base, True, rules.horizon, _head(batch))
    return _made(batch, data, records, found, rules.horizon, DELETE_HORIZON)


def without_records(batch: Batch) -> Buffer:
    """Return the header of a batch as a batch without records."""
    attributes = batch.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    return _sealed(bytearray(HEADER_BYTES), batch, attributes, NO_TIMESTAMP, batch.max_timestamp, 0)


def _head(batch: Batch) -> int:
    """Return the free space that the kernel must leave: a header, unless the records are packed first."""
    return HEADER_BYTES if batch.codec is Codec.NONE else 0


def _made(  # noqa: PLR0917
    batch: Batch, data: bytearray | None, records: Buffer, found: Filter, base_timestamp: int, flags: int
) -> bytearray:
    """Build the batch of the retained records: `data` after a head, or all `records`.

    `flags` are added to the attributes.
    """
    if data is None:
        data = bytearray(_head(batch)) + records
    if batch.codec is not Codec.NONE:
        data = bytearray(HEADER_BYTES) + compress(batch.codec, data)
    latest = batch.max_timestamp if batch.is_log_append_time else TimestampMs(found.max_timestamp)
    return _sealed(data, batch, batch.attributes | flags, base_timestamp, latest, found.kept)


def _sealed(  # noqa: PLR0917
    data: bytearray, batch: Batch, attributes: int, base_timestamp: int, max_timestamp: int, count: int
) -> bytearray:
    """Write the header with the offsets, leader epoch, producer and sequence of `batch`."""
    HEADER.pack_into(
        data,
        0,
        batch.base_offset,
        len(data) - LOG_OVERHEAD_BYTES,
        batch.leader_epoch,
        MAGIC,
        0,
        attributes,
        batch.last_offset_delta,
        base_timestamp,
        max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        count,
    )
    checksum = crc32c(memoryview(data)[CHECKSUMMED_FROM:])
    data[CRC_POSITION:CHECKSUMMED_FROM] = checksum.to_bytes(CHECKSUMMED_FROM - CRC_POSITION)
    return data
