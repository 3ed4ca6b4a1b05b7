"""OffsetCommit: commit of a group's offsets.

v0 wrote to ZooKeeper in Apache Kafka. v1: generation and member, a timestamp for each partition. v2: one
retention_time_ms instead of timestamps. v3: throttle time. v4: throttled after the answer (KIP-219). v5: no retention
time (KIP-211). v6: committed_leader_epoch (KIP-320). v7: group_instance_id (KIP-345). v8: flexible. v9: members of the
consumer protocol, with an epoch instead of a generation (KIP-848). v10: topic ids instead of names (KIP-848).
"""

from odradek.base.uuids import ZERO_UUID
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Int16, Int32, Int64, Str, UuidField
from odradek.wire.schema.schema import field, message, since, struct


@struct
class OffsetCommitRequestPartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(6, default=-1, ignorable=True)
    commit_timestamp: Int64 = since(1, default=-1, until=1)
    committed_metadata: Str | None


@struct
class OffsetCommitRequestTopic:
    name: Str = field(default="", until=9, ignorable=True)
    topic_id: UuidField = since(10, default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitRequestPartition]


@message(api_key=ApiKey.OFFSET_COMMIT, kind="request", versions=(0, 10), flexible_from=8)
class OffsetCommitRequest:
    group_id: Str
    generation_id_or_member_epoch: Int32 = since(1, default=-1, ignorable=True)
    member_id: Str = since(1, default="", ignorable=True)
    group_instance_id: Str | None = since(7, default=None)
    retention_time_ms: Int64 = since(2, default=-1, until=4, ignorable=True)
    topics: list[OffsetCommitRequestTopic]


@struct
class OffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16


@struct
class OffsetCommitResponseTopic:
    name: Str = field(default="", until=9, ignorable=True)
    topic_id: UuidField = since(10, default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitResponsePartition]


@message(api_key=ApiKey.OFFSET_COMMIT, kind="response", versions=(0, 10), flexible_from=8)
class OffsetCommitResponse:
    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic]
