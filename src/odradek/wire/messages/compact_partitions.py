"""CompactPartitions: immediate compaction of logs, with the space reclaimed.

This API belongs to Odradek and does not exist in Kafka.
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Int16, Int32, Int64, Str
from odradek.wire.schema.schema import field, message, struct


@struct
class CompactPartitionsTopic:
    name: Str
    partitions: list[Int32]


@message(api_key=ApiKey.COMPACT_PARTITIONS, kind="request", versions=(0, 0), flexible_from=0)
class CompactPartitionsRequest:
    topics: list[CompactPartitionsTopic]
    timeout_ms: Int32


@struct
class CompactPartitionsPartitionResult:
    partition_index: Int32
    error_code: Int16 = field(default=0)
    error_message: Str | None = field(default=None)
    bytes_before: Int64 = field(default=-1)
    bytes_after: Int64 = field(default=-1)
    removed_records: Int64 = field(default=-1)
    compacted_to: Int64 = field(default=-1)
    held_back_by: Str | None = field(default=None)
    duration_ms: Int64 = field(default=-1)


@struct
class CompactPartitionsTopicResult:
    name: Str
    partitions: list[CompactPartitionsPartitionResult]


@message(api_key=ApiKey.COMPACT_PARTITIONS, kind="response", versions=(0, 0), flexible_from=0)
class CompactPartitionsResponse:
    throttle_time_ms: Int32
    topics: list[CompactPartitionsTopicResult]
