"""DescribeProducers: the producers known to a partition's leader (KIP-664)."""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Int16, Int32, Int64, Str
from odradek.wire.schema.schema import field, message, struct


@struct
class TopicRequest:
    name: Str
    partition_indexes: list[Int32]


@message(api_key=ApiKey.DESCRIBE_PRODUCERS, kind="request", versions=(0, 0), flexible_from=0)
class DescribeProducersRequest:
    topics: list[TopicRequest]


@struct
class ProducerState:
    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = field(default=-1)
    last_timestamp: Int64 = field(default=-1)
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = field(default=-1)


@struct
class PartitionResponse:
    partition_index: Int32
    error_code: Int16
    error_message: Str | None = field(default=None)
    active_producers: list[ProducerState]


@struct
class TopicResponse:
    name: Str
    partitions: list[PartitionResponse]


@message(api_key=ApiKey.DESCRIBE_PRODUCERS, kind="response", versions=(0, 0), flexible_from=0)
class DescribeProducersResponse:
    throttle_time_ms: Int32
    topics: list[TopicResponse]
