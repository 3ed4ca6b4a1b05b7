"""ListOffsets: the offset of a timestamp, or of a position such as the start or the end.

v0: a list of segment starts before a timestamp. v1: one offset with its timestamp (KIP-79). v2: isolation_level,
throttle time (KIP-98). v3: throttled after the answer (KIP-219). v4: leader epochs (KIP-320). v6: flexible. New
positions, as negative timestamps: v7 the largest timestamp, -3 (KIP-734); v8 the local start, -4 (KIP-405); v9 the
tiered end, -5 (KIP-1005); v11 the first offset not tiered yet, -6 (KIP-1023). v10: timeout_ms for tiered reads
(KIP-1075).
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Int8, Int16, Int32, Int64, Str
from odradek.wire.schema.schema import field, message, since, struct


@struct
class ListOffsetsPartition:
    partition_index: Int32
    current_leader_epoch: Int32 = since(4, default=-1, ignorable=True)
    timestamp: Int64
    max_num_offsets: Int32 = field(default=1, until=0)


@struct
class ListOffsetsTopic:
    name: Str
    partitions: list[ListOffsetsPartition]


@message(api_key=ApiKey.LIST_OFFSETS, kind="request", versions=(0, 11), flexible_from=6)
class ListOffsetsRequest:
    replica_id: Int32
    isolation_level: Int8 = since(2, default=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: Int32 = since(10, default=0, ignorable=True)


@struct
class ListOffsetsPartitionResponse:
    partition_index: Int32
    error_code: Int16
    old_style_offsets: list[Int64] = field(default_factory=list, until=0)
    timestamp: Int64 = since(1, default=-1)
    offset: Int64 = since(1, default=-1)
    leader_epoch: Int32 = since(4, default=-1)


@struct
class ListOffsetsTopicResponse:
    name: Str
    partitions: list[ListOffsetsPartitionResponse]


@message(api_key=ApiKey.LIST_OFFSETS, kind="response", versions=(0, 11), flexible_from=6)
class ListOffsetsResponse:
    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse]
