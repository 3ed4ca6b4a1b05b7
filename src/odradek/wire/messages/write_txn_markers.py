"""WriteTxnMarkers: the outcome of a transaction, sent by its coordinator to partition leaders.

v1: flexible. v2: transaction_version, which determines the leader's check of the epoch (KIP-1228).
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Bool, Int8, Int16, Int32, Int64, Str
from odradek.wire.schema.schema import message, since, struct


@struct
class WritableTxnMarkerTopic:
    name: Str
    partition_indexes: list[Int32]


@struct
class WritableTxnMarker:
    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Bool
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Int8 = since(2, default=0, ignorable=True)


@message(api_key=ApiKey.WRITE_TXN_MARKERS, kind="request", versions=(0, 2), flexible_from=1)
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker]


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: Int32
    error_code: Int16


@struct
class WritableTxnMarkerTopicResult:
    name: Str
    partitions: list[WritableTxnMarkerPartitionResult]


@struct
class WritableTxnMarkerResult:
    producer_id: Int64
    topics: list[WritableTxnMarkerTopicResult]


@message(api_key=ApiKey.WRITE_TXN_MARKERS, kind="response", versions=(0, 2), flexible_from=1)
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult]
