"""DeleteRecords: advance of the log start offset of partitions (KIP-107).

v1: throttled after the answer (KIP-219). v2: flexible.
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Int16, Int32, Int64, Str
from odradek.wire.schema.schema import message, struct


@struct
class DeleteRecordsPartition:
    partition_index: Int32
    offset: Int64


@struct
class DeleteRecordsTopic:
    name: Str
    partitions: list[DeleteRecordsPartition]


@message(api_key=ApiKey.DELETE_RECORDS, kind="request", versions=(0, 2), flexible_from=2)
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32


@struct
class DeleteRecordsPartitionResult:
    partition_index: Int32
    low_watermark: Int64
    error_code: Int16


@struct
class DeleteRecordsTopicResult:
    name: Str
    partitions: list[DeleteRecordsPartitionResult]


@message(api_key=ApiKey.DELETE_RECORDS, kind="response", versions=(0, 2), flexible_from=2)
class DeleteRecordsResponse:
    throttle_time_ms: Int32
    topics: list[DeleteRecordsTopicResult]
