"""Checks of a producer's batch before it enters a partition: its header and the topic's rules.

The records stay opaque unless the topic requires otherwise: odradek.record.validation=records, compression.type other
than `producer`, compaction (every record needs a key), or a bound on the age of records.

    checked ──> validate_records ──> fitting        `admit` does all three at once, or leaves the batch to a thread
    header      records              size

`validate_records` depends on the bytes and the topic's configuration only, so it may run in a thread.  A batch that is
small before and after decompression is checked at once: a thread costs more.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import BATCH_BYTES_MAX, UNPACKED_BYTES_MAX
from odradek.base.units import INT64_MAX, KIB, TopicPartition
from odradek.core.configs.topic_configs import TopicConfigs
from odradek.core.kernel.moment import Moment
from odradek.core.partition.local_replica import LocalReplica
from odradek.record.builder import seal_batch
from odradek.record.compression import Codec, Expands, compress
from odradek.record.kernels.decode import COMPILED, Check
from odradek.record.record_batch import CODEC_MASK, HEADER_BYTES, LOG_APPEND_TIME, Batch
from odradek.record.unpack import unpack
from odradek.record.validation import check_records

AS_PRODUCED = "producer"
# Limit for batches without a codec.  Reading one takes 0.1 ms, or 1 ms if all records have the minimum size.
READ_AT_ONCE_BYTES_MAX = BATCH_BYTES_MAX if COMPILED else 4 * KIB
# Compressed and decompressed sizes.
PACKED_AT_ONCE_BYTES_MAX = 32 * KIB if COMPILED else 1 * KIB
UNPACKED_AT_ONCE_BYTES_MAX = 128 * KIB if COMPILED else 4 * KIB
RECOMPRESSED_AT_ONCE_BYTES_MAX = 16 * KIB
_QUICK = (Codec.LZ4, Codec.ZSTD)  # The others are decompressed in Python, in as many pieces as the producer chose.
_CODEC_POSITION = 22  # The lower byte of the attributes.
# Names as in compression.type; levels come from compression.<codec>.level.
_CODECS: dict[str, tuple[Codec, Callable[[TopicConfigs], int | None]]] = {
    "uncompressed": (Codec.NONE, lambda configs: None),
    "gzip": (Codec.GZIP, lambda configs: configs.compression_gzip_level),
    "snappy": (Codec.SNAPPY, lambda configs: None),
    "lz4": (Codec.LZ4, lambda configs: None),
    "zstd": (Codec.ZSTD, lambda configs: configs.compression_zstd_level),
}


def admit(partition: LocalReplica, records: memoryview | bytes | bytearray | None, now: Moment) -> Batch | None:
    """Return the one batch of a produce request, ready to append; None if a thread must inspect its records first.

    Raise Refused if the batch is not allowed.
    """
    configs = partition.configs
    if not needs_record_checks(configs):
        return fitting(partition, checked(partition, records, now))
    if records and _needs_thread(configs, records):
        return None
    batch = checked(partition, records, now)
    try:
        batch = validate_records(partition.topic_partition, configs, batch, now, UNPACKED_AT_ONCE_BYTES_MAX)
    except Expands:
        return None
    return fitting(partition, batch)


def _needs_thread(configs: TopicConfigs, records: memoryview | bytes | bytearray) -> bool:
    """Return whether a large batch has to be read or compressed, or any batch decompressed in Python."""
    size = len(records)
    if size < HEADER_BYTES:
        return False
    codec = records[_CODEC_POSITION] & CODEC_MASK
    if configs.compression_type != AS_PRODUCED and _CODECS[configs.compression_type][0] != codec:
        return codec != Codec.NONE or size > RECOMPRESSED_AT_ONCE_BYTES_MAX
    if not reads_records(configs):
        return False
    if codec == Codec.NONE:
        return size > READ_AT_ONCE_BYTES_MAX
    return size > PACKED_AT_ONCE_BYTES_MAX or codec not in _QUICK


def checked(partition: LocalReplica, records: memoryview | bytes | bytearray | None, now: Moment) -> Batch:
    """Return the batch if it is complete, intact and has an allowed header; raise Refused otherwise."""
    configs = partition.configs
    if not records:
        raise Refused(
            ErrorCode.INVALID_RECORD, "a produce request must contain exactly one record batch for each partition"
        )
    batch = Batch.checked(records)
    if not configs.is_log_append_time:
        if batch.attributes & LOG_APPEND_TIME:
            batch.stamp_create_time()  # The producer must not declare this to be log append time.
        latest = now.wall + configs.message_timestamp_after_max_ms
        if batch.max_timestamp > latest and not reads_records(configs):  # Otherwise each record is checked.
            text = (
                f"Timestamp {batch.max_timestamp} of a message for {partition.topic_partition} "
                f"is later than the latest allowed {latest}"
            )
            raise Refused(ErrorCode.INVALID_TIMESTAMP, text)
    return batch


def validate_records(
    name: TopicPartition, configs: TopicConfigs, batch: Batch, now: Moment, unpacked_bytes_max: int = UNPACKED_BYTES_MAX
) -> Batch:
    """Check the records by the topic's rules and return the batch under the topic's codec.

    Raise Refused, with INVALID_RECORD also for a failed decompression: by its checksum the batch was sent like that.
    Raise Expands, which is a Refused, if the records have more than `unpacked_bytes_max`.
    """
    is_recompressed = (
        configs.compression_type != AS_PRODUCED and _CODECS[configs.compression_type][0] is not batch.codec
    )
    is_read = reads_records(configs)
    if not is_recompressed and not is_read:
        return batch
    try:
        payload = unpack(batch, configs.max_decompressed_message_bytes, unpacked_bytes_max)
    except Expands:
        raise
    except Refused as refused:
        raise Refused(ErrorCode.INVALID_RECORD, refused.detail) from None
    if is_read:
        newest = check_records(name, batch, payload, _check(configs, now))
        if not configs.is_log_append_time:
            batch.stamp_max_timestamp(newest)
    return _recompress(name, batch, payload, configs) if is_recompressed else batch


def fitting(partition: LocalReplica, batch: Batch) -> Batch:
    """Return the batch if it fits the topic's size limit; raise Refused(MESSAGE_TOO_LARGE) otherwise."""
    if len(batch.view) > partition.configs.max_message_bytes:
        raise _too_large(partition.topic_partition, partition.configs, batch.size)
    return batch


def announced(partition: LocalReplica, front: memoryview, size: int, now: Moment) -> Batch | None:
    """Return the batch of a streaming append if its header alone is enough to admit it.

    Only `front` has been received.  Returns None if the whole batch must be received first; call `admit` then.
    """
    configs = partition.configs
    batch = Batch.announced(front, size)
    if batch is None or needs_record_checks(configs) or configs.is_log_append_time or batch.is_log_append_time:
        return None
    is_fine = size <= configs.max_message_bytes
    return batch if is_fine and batch.max_timestamp <= now.wall + configs.message_timestamp_after_max_ms else None


def needs_record_checks(configs: TopicConfigs) -> bool:
    """Return whether the topic requires checks beyond the batch header."""
    return configs.compression_type != AS_PRODUCED or reads_records(configs)


def _bounds_age(configs: TopicConfigs) -> bool:
    return not configs.is_log_append_time and configs.message_timestamp_before_max_ms < INT64_MAX


def reads_records(configs: TopicConfigs) -> bool:
    """Return whether the topic has rules for single records."""
    return configs.validates_records or "compact" in configs.cleanup_policy or _bounds_age(configs)


def _check(configs: TopicConfigs, now: Moment) -> Check:
    needs_keys = "compact" in configs.cleanup_policy
    if configs.is_log_append_time:
        return Check(needs_keys, -INT64_MAX - 1, INT64_MAX)
    oldest = max(now.wall - configs.message_timestamp_before_max_ms, -INT64_MAX - 1)
    return Check(needs_keys, oldest, min(now.wall + configs.message_timestamp_after_max_ms, INT64_MAX))


def _too_large(name: TopicPartition, configs: TopicConfigs, size: int) -> Refused:
    text = (
        f"The record batch size in the append to {name} is {size} bytes "
        f"which exceeds the maximum configured value of {configs.max_message_bytes}."
    )
    return Refused(ErrorCode.MESSAGE_TOO_LARGE, text)


def _recompress(name: TopicPartition, batch: Batch, payload: memoryview, configs: TopicConfigs) -> Batch:
    """Return the batch compressed with the topic's own codec (compression.type)."""
    codec, level_of = _CODECS[configs.compression_type]
    size = HEADER_BYTES + len(payload)
    if codec is Codec.NONE and size > configs.max_message_bytes:
        raise _too_large(name, configs, size)
    packed = bytearray(HEADER_BYTES)
    packed += payload if codec is Codec.NONE else compress(codec, payload, level_of(configs))
    sealed = seal_batch(
        packed,
        count=batch.records_count,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
        attributes=batch.attributes & ~CODEC_MASK | codec,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )
    return Batch.trusted(sealed)
