"""OffsetForLeaderEpoch: the end offset of a leader epoch in a leader's log (KIP-101).

v1: the answer contains the epoch of the end offset (KIP-279). v2: current_leader_epoch, throttle time (KIP-320). v3:
replica_id. v4: flexible.
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Int16, Int32, Int64, Str
from odradek.wire.schema.schema import field, message, since, struct


@struct
class OffsetForLeaderPartition:
    partition: Int32
    current_leader_epoch: Int32 = since(2, default=-1, ignorable=True)
    leader_epoch: Int32


@struct
class OffsetForLeaderTopic:
    topic: Str
    partitions: list[OffsetForLeaderPartition]


@message(api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH, kind="request", versions=(0, 4), flexible_from=4)
class OffsetForLeaderEpochRequest:
    replica_id: Int32 = since(3, default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic]


@struct
class EpochEndOffset:
    error_code: Int16
    partition: Int32
    leader_epoch: Int32 = since(1, default=-1, ignorable=True)
    end_offset: Int64 = field(default=-1)


@struct
class OffsetForLeaderTopicResult:
    topic: Str
    partitions: list[EpochEndOffset]


@message(api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH, kind="response", versions=(0, 4), flexible_from=4)
class OffsetForLeaderEpochResponse:
    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    topics: list[OffsetForLeaderTopicResult]
