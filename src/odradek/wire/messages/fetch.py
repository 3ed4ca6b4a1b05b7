"""Fetch: records of partitions from given offsets on, for consumers and followers.

v1: throttle time. v2: message format 1. v3: max_bytes (KIP-74). v4: batch format 2, isolation_level and its other
fields (KIP-98). v5: log_start_offset (KIP-107). v6: may answer KAFKA_STORAGE_ERROR (KIP-112). v7: sessions (KIP-227).
v8: throttled after the answer (KIP-219). v9: current_leader_epoch (KIP-320). v10: zstd (KIP-110). v11: rack_id,
preferred_read_replica (KIP-392). v12: flexible; last_fetched_epoch, diverging_epoch (KIP-595). v13: topic ids instead
of names (KIP-516). v14: tiered storage (KIP-405). v15: replica_state instead of replica_id (KIP-903). v16:
node_endpoints (KIP-951). v17: replica_directory_id (KIP-853). v18: the follower's high_watermark (KIP-1166).
"""

from odradek.base.units import INT32_MAX, INT64_MAX
from odradek.base.uuids import ZERO_UUID
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Int8, Int16, Int32, Int64, SplicedRecords, Str, UuidField
from odradek.wire.schema.schema import field, message, since, struct


@struct
class ReplicaState:
    replica_id: Int32 = field(default=-1)
    replica_epoch: Int64 = field(default=-1)


@struct
class FetchPartition:
    partition: Int32
    current_leader_epoch: Int32 = since(9, default=-1, ignorable=True)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = since(12, default=-1)
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    partition_max_bytes: Int32
    replica_directory_id: UuidField = since(17, default=ZERO_UUID, tag=0, ignorable=True)
    high_watermark: Int64 = since(18, default=INT64_MAX, tag=1, ignorable=True)


@struct
class FetchTopic:
    topic: Str = field(default="", until=12, ignorable=True)
    topic_id: UuidField = since(13, default=ZERO_UUID, ignorable=True)
    partitions: list[FetchPartition]


@struct
class ForgottenTopic:
    topic: Str = field(default="", until=12, ignorable=True)
    topic_id: UuidField = since(13, default=ZERO_UUID, ignorable=True)
    partitions: list[Int32]


@message(api_key=ApiKey.FETCH, kind="request", versions=(0, 18), flexible_from=12)
class FetchRequest:
    cluster_id: Str | None = since(12, default=None, tag=0, ignorable=True)
    replica_id: Int32 = field(default=-1, until=14)
    replica_state: ReplicaState = since(15, default_factory=ReplicaState, tag=1)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = since(3, default=INT32_MAX, ignorable=True)
    isolation_level: Int8 = since(4, default=0, ignorable=True)
    session_id: Int32 = since(7, default=0, ignorable=True)
    session_epoch: Int32 = since(7, default=-1, ignorable=True)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = since(7, default_factory=list)
    rack_id: Str = since(11, default="", ignorable=True)


@struct
class EpochEndOffset:
    epoch: Int32 = field(default=-1)
    end_offset: Int64 = field(default=-1)


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)


@struct
class SnapshotId:
    end_offset: Int64 = field(default=-1)
    epoch: Int32 = field(default=-1)


@struct
class AbortedTransaction:
    producer_id: Int64
    first_offset: Int64


@struct
class PartitionData:
    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    last_stable_offset: Int64 = since(4, default=-1, ignorable=True)
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = since(12, default_factory=EpochEndOffset, tag=0)
    current_leader: LeaderIdAndEpoch = since(12, default_factory=LeaderIdAndEpoch, tag=1)
    snapshot_id: SnapshotId = since(12, default_factory=SnapshotId, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = since(4, default_factory=list, ignorable=True)
    preferred_read_replica: Int32 = since(11, default=-1)
    records: SplicedRecords | None


@struct
class FetchableTopicResponse:
    topic: Str = field(default="", until=12, ignorable=True)
    topic_id: UuidField = since(13, default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionData]


@struct
class NodeEndpoint:
    node_id: Int32
    host: Str
    port: Int32
    rack: Str | None = field(default=None)


@message(api_key=ApiKey.FETCH, kind="response", versions=(0, 18), flexible_from=12)
class FetchResponse:
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = since(7, default=0, ignorable=True)
    session_id: Int32 = since(7, default=0)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = since(16, default_factory=list, tag=0)
