"""What compaction makes of one batch of format 2: the records that stay, in a batch with the same offsets and sequence.

A batch in which something went is made anew: records keep their bytes, so that only header and checksum change, and it
is packed with its own codec.  One that keeps a tombstone gets a delete horizon, the time from which the tombstone may
go; it stands in place of the base timestamp, so that the records' times are written anew (KIP-534).  A batch without
records is a header alone: it keeps its producer's last sequence, or the log's last offset.
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


class Rules(NamedTuple):
    """`now`, the horizon that a batch gets now, and what a record may unpack to, in bytes."""

    now: TimestampMs
    horizon: TimestampMs
    record_bytes_max: int


class Kept(NamedTuple):
    """What stays of a batch: its own view, a new batch, or None if no record does."""

    data: Buffer | None
    dropped_records: int


def put_keys(offsets: OffsetMap, batch: Batch, start: Offset, room: int, record_bytes_max: int) -> Offset:
    """Puts the keys of a batch's records from `start` on into the map; returns the offset up to which they are in it.

    That is below the batch's end if the map has no more room.  Raises BadRecords, Refused.
    """
    if not batch.records_count:
        return batch.next_offset
    records = unpack(batch, record_bytes_max, BATCH_DECOMPRESSED_BYTES_MAX)
    stopped = offsets.put_records(records, batch.records_count, batch.base_offset, start, room)
    return batch.next_offset if stopped == ALL else Offset(stopped)


class BatchFilter:
    """Decides which records of batches stay, by the map.  Methods raise BadRecords, Refused."""

    def __init__(self, offsets: OffsetMap) -> None:
        self._filter = Filter(offsets)

    def keep_latest(self, batch: Batch, end: Offset, rules: Rules) -> Kept:
        """Keeps the records from `end` on, and those with a key that no later one below `end` has.

        Tombstones among them go once the batch's horizon has passed.
        """
        horizon, found, head = batch.delete_horizon, self._filter, _head(batch)
        records = unpack(batch, rules.record_bytes_max, BATCH_DECOMPRESSED_BYTES_MAX)
        keeps = horizon is None or rules.now < horizon
        count, base, time = batch.records_count, batch.base_offset, batch.base_timestamp
        data = found.run(records, count, base, time, end, keeps, None, head)
        if not found.kept:
            return Kept(None, found.dropped)
        if found.has_tombstones and horizon is None:
            data = found.run(records, count, base, time, end, True, rules.horizon, head)
            return Kept(_made(batch, data, records, found, rules.horizon, DELETE_HORIZON), found.dropped)
        if data is None:
            return Kept(batch.view, 0)
        return Kept(_made(batch, data, records, found, time, 0), found.dropped)


def stamp(batch: Batch, rules: Rules) -> Buffer:
    """Returns a batch, all of whose records stay, with its delete horizon.  Raises as BatchFilter."""
    records, found = unpack(batch, rules.record_bytes_max, BATCH_DECOMPRESSED_BYTES_MAX), Filter(_NO_KEYS)
    count, base, time = batch.records_count, batch.base_offset, batch.base_timestamp
    data = found.run(records, count, base, time, base, True, rules.horizon, _head(batch))
    return _made(batch, data, records, found, rules.horizon, DELETE_HORIZON)


def without_records(batch: Batch) -> Buffer:
    """Returns the header of a batch whose records all went, as a batch."""
    attributes = batch.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    return _sealed(bytearray(HEADER_BYTES), batch, attributes, NO_TIMESTAMP, batch.max_timestamp, 0)


def _head(batch: Batch) -> int:
    """Returns how much room the kernel is to leave: a header's, unless the records are packed first."""
    return HEADER_BYTES if batch.codec is Codec.NONE else 0


def _made(  # noqa: PLR0917
    batch: Batch, data: bytearray | None, records: Buffer, found: Filter, base_timestamp: int, flags: int
) -> bytearray:
    """Makes the batch of the records that stay: `data` with a head, or all `records`; with more attributes, `flags`."""
    if data is None:
        data = bytearray(_head(batch)) + records
    if batch.codec is not Codec.NONE:
        data = bytearray(HEADER_BYTES) + compress(batch.codec, data)
    latest = batch.max_timestamp if batch.is_log_append_time else TimestampMs(found.max_timestamp)
    return _sealed(data, batch, batch.attributes | flags, base_timestamp, latest, found.kept)


def _sealed(  # noqa: PLR0917
    data: bytearray, batch: Batch, attributes: int, base_timestamp: int, max_timestamp: int, count: int
) -> bytearray:
    """Writes the header; offsets, leader epoch, producer and sequence are those of the batch."""
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
