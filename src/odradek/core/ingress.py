"""What a producer's records must be before they may enter a partition, beyond being a whole and intact batch.

The records stay opaque unless the topic asks for a look: compression.type other than `producer`, compaction (every
record needs a key), or a bound on how old records may be.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import INT64_MAX, TimestampMs
from odradek.core.configs.topic import TopicConfigs
from odradek.core.moment import Moment
from odradek.core.partition import Partition
from odradek.record.batch import CODEC_MASK, HEADER_BYTES, LOG_APPEND_TIME, Batch
from odradek.record.builder import seal_batch
from odradek.record.compression import Codec, decompress
from odradek.record.survey import survey

AS_PRODUCED = "producer"
# As compression.type names them; the levels are those of compression.<codec>.level.
_CODECS: dict[str, tuple[Codec, Callable[[TopicConfigs], int | None]]] = {
    "uncompressed": (Codec.NONE, lambda configs: None),
    "gzip": (Codec.GZIP, lambda configs: configs.compression_gzip_level),
    "snappy": (Codec.SNAPPY, lambda configs: None),
    "lz4": (Codec.LZ4, lambda configs: configs.compression_lz4_level),
    "zstd": (Codec.ZSTD, lambda configs: configs.compression_zstd_level),
}


def admitted(partition: Partition, records: memoryview | bytes | bytearray | None, now: Moment) -> Batch:
    """The one batch of a produce request, as it may be appended.  Raises Refused."""
    configs = partition.configs
    if not records:
        raise Refused(ErrorCode.INVALID_RECORD, "a produce request must hold exactly one batch for each partition")
    batch = Batch.checked(records)
    if not configs.is_log_append_time:
        if batch.attributes & LOG_APPEND_TIME:
            batch.stamp_create_time()  # Not the producer's to say.
        newest = now.wall + configs.message_timestamp_after_max_ms
        if batch.max_timestamp > newest:
            raise _out_of_bounds(partition, batch.max_timestamp, "later", newest)
    if is_particular(configs):
        _look_into(partition, batch, now)
        batch = _compressed_as_configured(batch, configs)
    if len(batch.view) > configs.max_message_bytes:
        text = (
            f"The record batch size in the append to {partition.topic_partition} is {batch.size} bytes "
            f"which exceeds the maximum configured value of {configs.max_message_bytes}."
        )
        raise Refused(ErrorCode.MESSAGE_TOO_LARGE, text)
    return batch


def announced(partition: Partition, front: memoryview, size: int, now: Moment) -> Batch | None:
    """A batch whose records are still on their way, if its header says all that is to be known before they are there.

    None: have all of it first, and ask `admitted`.
    """
    configs = partition.configs
    batch = Batch.announced(front, size)
    if batch is None or is_particular(configs) or configs.is_log_append_time or batch.is_log_append_time:
        return None
    is_fine = size <= configs.max_message_bytes
    return batch if is_fine and batch.max_timestamp <= now.wall + configs.message_timestamp_after_max_ms else None


def is_particular(configs: TopicConfigs) -> bool:
    """True if the topic wants more looked at than a batch's header."""
    return configs.compression_type != AS_PRODUCED or "compact" in configs.cleanup_policy or _bounds_age(configs)


def _bounds_age(configs: TopicConfigs) -> bool:
    return not configs.is_log_append_time and configs.message_timestamp_before_max_ms < INT64_MAX


def _look_into(partition: Partition, batch: Batch, now: Moment) -> None:
    configs = partition.configs
    needs_key, has_oldest = "compact" in configs.cleanup_policy, _bounds_age(configs)
    if not needs_key and not has_oldest:
        return
    oldest = TimestampMs(now.wall - configs.message_timestamp_before_max_ms) if has_oldest else None
    told = survey(batch)
    if needs_key and told.null_keys:
        text = f"Compacted topic cannot accept message without key in topic partition {partition.topic_partition}."
        raise Refused(ErrorCode.INVALID_RECORD, text)
    if oldest is not None and told.oldest < oldest:
        raise _out_of_bounds(partition, told.oldest, "earlier", oldest)


def _out_of_bounds(partition: Partition, timestamp: int, how: str, bound: int) -> Refused:
    text = f"Timestamp {timestamp} of a message for {partition.topic_partition} is {how} than {bound}"
    return Refused(ErrorCode.INVALID_TIMESTAMP, text)


def _compressed_as_configured(batch: Batch, configs: TopicConfigs) -> Batch:
    """The same records under the topic's own codec (compression.type), if they came under another."""
    if configs.compression_type == AS_PRODUCED:
        return batch
    codec, level_of = _CODECS[configs.compression_type]
    if batch.codec is codec:
        return batch
    plain = bytearray(HEADER_BYTES)
    plain += decompress(batch.codec, batch.payload)
    packed = seal_batch(
        plain,
        codec,
        count=batch.records_count,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
        level=level_of(configs),
        attributes=batch.attributes & ~CODEC_MASK,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )
    return Batch.trusted(packed)
