"""Topic configuration used by a log, with Kafka's names and defaults; resolved by core/configs."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.base.limits import (
    BATCH_BYTES_MAX,
    INDEX_INTERVAL_BYTES_DEFAULT,
    SEGMENT_BYTES_DEFAULT,
    SEGMENT_INDEX_BYTES_DEFAULT,
)
from odradek.base.units import DAY_MS, INT32_MAX, INT64_MAX, MINUTE_MS

UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Configuration of one log; sizes in bytes, times in milliseconds.

    Assign `log.config` to replace the configuration of a running log.
    """

    segment_bytes: int = SEGMENT_BYTES_DEFAULT
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = SEGMENT_INDEX_BYTES_DEFAULT
    index_interval_bytes: int = INDEX_INTERVAL_BYTES_DEFAULT
    preallocate: bool = False
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = UNLIMITED
    # cleanup.policy is a set of both; a compacted log is never shortened by age or size.
    cleanup_delete: bool = True
    cleanup_compact: bool = False
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    min_cleanable_dirty_ratio: float = 0.5
    delete_retention_ms: int = DAY_MS
    file_delete_delay_ms: int = MINUTE_MS
    max_message_bytes: int = BATCH_BYTES_MAX
    max_decompressed_message_bytes: int = INT32_MAX
    log_append_time: bool = False  # message.timestamp.type=LogAppendTime
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX

    def __post_init__(self) -> None:
        assert 0 < self.segment_bytes <= INT32_MAX, "index positions are 32-bit"
        assert self.index_interval_bytes >= 0
        assert self.segment_index_bytes >= 4, "segment.index.bytes"
        assert self.retention_ms >= UNLIMITED <= self.retention_bytes
        assert self.min_compaction_lag_ms >= 0 < self.max_compaction_lag_ms
        assert self.delete_retention_ms >= 0 <= self.file_delete_delay_ms
