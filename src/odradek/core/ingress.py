"""Checks a producer's records before they enter a partition: the batch, and what the topic asks of its records.

The records stay opaque unless the topic asks for a look: compression.type other than `producer`, compaction (every
record needs a key), or a bound on how old records may be.

    checked ──> look ──> fitting        `admitted` does all three
    header      records  size

`look` knows the bytes and the topic's configuration only, and may be done in a thread; needs_thread says for which
batches it should be.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import UNPACKED_BYTES_MAX
from odradek.base.units import INT64_MAX, KIB, TimestampMs, TopicPartition
from odradek.core.configs.topic import TopicConfigs
from odradek.core.moment import Moment
from odradek.core.partition import Partition
from odradek.record.batch import CODEC_MASK, HEADER_BYTES, LOG_APPEND_TIME, Batch
from odradek.record.builder import seal_batch
from odradek.record.compression import Codec, compress, decompress
from odradek.record.survey import survey

AS_PRODUCED = "producer"
LOOKED_INTO_AT_ONCE_BYTES_MAX = 16 * KIB  # Without a codec; some dozens of microseconds.
_CODEC_POSITION = 22  # The lower byte of the attributes.
# As compression.type names them; the levels are those of compression.<codec>.level.
_CODECS: dict[str, tuple[Codec, Callable[[TopicConfigs], int | None]]] = {
    "uncompressed": (Codec.NONE, lambda configs: None),
    "gzip": (Codec.GZIP, lambda configs: configs.compression_gzip_level),
    "snappy": (Codec.SNAPPY, lambda configs: None),
    "lz4": (Codec.LZ4, lambda configs: configs.compression_lz4_level),
    "zstd": (Codec.ZSTD, lambda configs: configs.compression_zstd_level),
}


def admitted(
    partition: Partition, records: memoryview | bytes | bytearray | None, now: Moment, *, at_once: bool = False
) -> Batch:
    """Returns the one batch of a produce request, as it may be appended.

    Raises Refused; with the code NONE if `at_once` is set and the batch should be looked into by a thread.
    """
    batch = checked(partition, records, now)
    if is_particular(partition.configs):
        if at_once and needs_thread(partition, batch.view):
            raise Refused(ErrorCode.NONE)
        batch = look(partition.topic_partition, partition.configs, batch, now)
    return fitting(partition, batch)


def needs_thread(partition: Partition, records: memoryview | bytes | bytearray) -> bool:
    """True if `look` may take long: it unpacks a batch, whatever it becomes, or reads or packs a large one."""
    configs = partition.configs
    if not is_particular(configs) or len(records) < HEADER_BYTES:
        return False
    packed_with = records[_CODEC_POSITION] & CODEC_MASK
    if not _reads_records(configs) and _CODECS[configs.compression_type][0] == packed_with:
        return False
    return packed_with != Codec.NONE or len(records) > LOOKED_INTO_AT_ONCE_BYTES_MAX


def checked(partition: Partition, records: memoryview | bytes | bytearray | None, now: Moment) -> Batch:
    """Returns the batch if it is whole and intact, with a header that is allowed here.  Raises Refused."""
    configs = partition.configs
    if not records:
        raise Refused(ErrorCode.INVALID_RECORD, "a produce request must hold exactly one batch for each partition")
    batch = Batch.checked(records)
    if not configs.is_log_append_time:
        if batch.attributes & LOG_APPEND_TIME:
            batch.stamp_create_time()  # The producer must not say that this is log append time.
        newest = now.wall + configs.message_timestamp_after_max_ms
        if batch.max_timestamp > newest:
            raise _out_of_bounds(partition.topic_partition, batch.max_timestamp, "later", newest)
    return batch


def look(name: TopicPartition, configs: TopicConfigs, batch: Batch, now: Moment) -> Batch:
    """Checks the records as the topic wants it, and returns the batch under the topic's codec.  Raises Refused."""
    if _reads_records(configs):
        _look_into(name, configs, batch, now)
    return _compressed_as_configured(name, batch, configs)


def fitting(partition: Partition, batch: Batch) -> Batch:
    """Returns the batch if it is not too large for the topic.  Raises Refused(MESSAGE_TOO_LARGE)."""
    if len(batch.view) > partition.configs.max_message_bytes:
        raise _too_large(partition.topic_partition, partition.configs, batch.size)
    return batch


def announced(partition: Partition, front: memoryview, size: int, now: Moment) -> Batch | None:
    """Returns the batch of a streaming append, of which only the front was received, if its header alone admits it.

    Returns None if the whole batch must be received before it can be checked; call `admitted` then.
    """
    configs = partition.configs
    batch = Batch.announced(front, size)
    if batch is None or is_particular(configs) or configs.is_log_append_time or batch.is_log_append_time:
        return None
    is_fine = size <= configs.max_message_bytes
    return batch if is_fine and batch.max_timestamp <= now.wall + configs.message_timestamp_after_max_ms else None


def is_particular(configs: TopicConfigs) -> bool:
    """True if the topic asks for more checks than those of a batch's header."""
    return configs.compression_type != AS_PRODUCED or "compact" in configs.cleanup_policy or _bounds_age(configs)


def _bounds_age(configs: TopicConfigs) -> bool:
    return not configs.is_log_append_time and configs.message_timestamp_before_max_ms < INT64_MAX


def _reads_records(configs: TopicConfigs) -> bool:
    return "compact" in configs.cleanup_policy or _bounds_age(configs)


def _look_into(name: TopicPartition, configs: TopicConfigs, batch: Batch, now: Moment) -> None:
    told = survey(batch, decompressed_bytes_max=UNPACKED_BYTES_MAX)
    if "compact" in configs.cleanup_policy and told.null_keys:
        text = f"Compacted topic cannot accept message without key in topic partition {name}."
        raise Refused(ErrorCode.INVALID_RECORD, text)
    oldest = TimestampMs(now.wall - configs.message_timestamp_before_max_ms)
    if _bounds_age(configs) and told.oldest < oldest:
        raise _out_of_bounds(name, told.oldest, "earlier", oldest)


def _out_of_bounds(name: TopicPartition, timestamp: int, how: str, bound: int) -> Refused:
    text = f"Timestamp {timestamp} of a message for {name} is {how} than {bound}"
    return Refused(ErrorCode.INVALID_TIMESTAMP, text)


def _too_large(name: TopicPartition, configs: TopicConfigs, size: int) -> Refused:
    text = (
        f"The record batch size in the append to {name} is {size} bytes "
        f"which exceeds the maximum configured value of {configs.max_message_bytes}."
    )
    return Refused(ErrorCode.MESSAGE_TOO_LARGE, text)


def _compressed_as_configured(name: TopicPartition, batch: Batch, configs: TopicConfigs) -> Batch:
    """Returns the batch under the topic's own codec (compression.type), packed anew if it came under another."""
    if configs.compression_type == AS_PRODUCED:
        return batch
    codec, level_of = _CODECS[configs.compression_type]
    if batch.codec is codec:
        return batch
    unpacked = decompress(batch.codec, batch.payload, UNPACKED_BYTES_MAX)
    size = HEADER_BYTES + len(unpacked)
    if codec is Codec.NONE and size > configs.max_message_bytes:
        raise _too_large(name, configs, size)
    packed = bytearray(HEADER_BYTES)
    packed += unpacked if codec is Codec.NONE else compress(codec, unpacked, level_of(configs))
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
