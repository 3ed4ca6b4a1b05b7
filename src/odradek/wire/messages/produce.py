"""Produce: batches for partitions; the answer contains their offsets.

v1: throttle time. v2: message format 1, log_append_time_ms (KIP-32). v3: batch format 2, transactional_id (KIP-98). v4:
may answer KAFKA_STORAGE_ERROR (KIP-112). v5: log_start_offset. v6: throttled after the answer (KIP-219). v7: zstd
(KIP-110). v8: record_errors, error_message (KIP-467). v9: flexible. v10: current_leader, node_endpoints (KIP-951). v11,
v12: a write adds its partition to the transaction (KIP-890). v13: topic ids instead of names (KIP-516).
"""

from odradek.base.uuids import ZERO_UUID
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Int16, Int32, Int64, Records, Str, UuidField
from odradek.wire.schema.schema import field, message, since, struct


@struct
class PartitionProduceData:
    index: Int32
    records: Records | None


@struct
class TopicProduceData:
    name: Str = field(default="", until=12, ignorable=True)
    topic_id: UuidField = since(13, default=ZERO_UUID, ignorable=True)
    partition_data: list[PartitionProduceData]


@message(api_key=ApiKey.PRODUCE, kind="request", versions=(0, 13), flexible_from=9)
class ProduceRequest:
    transactional_id: Str | None = since(3, default=None)
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData]


@struct
class BatchIndexAndErrorMessage:
    batch_index: Int32
    batch_index_error_message: Str | None = field(default=None)


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)


@struct
class PartitionProduceResponse:
    index: Int32
    error_code: Int16
    base_offset: Int64
    log_append_time_ms: Int64 = since(2, default=-1, ignorable=True)
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = since(8, default_factory=list, ignorable=True)
    error_message: Str | None = since(8, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = since(10, default_factory=LeaderIdAndEpoch, tag=0)


@struct
class TopicProduceResponse:
    name: Str = field(default="", until=12, ignorable=True)
    topic_id: UuidField = since(13, default=ZERO_UUID, ignorable=True)
    partition_responses: list[PartitionProduceResponse]


@struct
class NodeEndpoint:
    node_id: Int32
    host: Str
    port: Int32
    rack: Str | None = field(default=None)


@message(api_key=ApiKey.PRODUCE, kind="response", versions=(0, 13), flexible_from=9)
class ProduceResponse:
    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = since(10, default_factory=list, tag=0)
