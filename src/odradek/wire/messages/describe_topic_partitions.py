"""DescribeTopicPartitions: Metadata's topics page by page, with eligible leader replicas (KIP-966).

Flexible. An incomplete answer contains the cursor at which the next request continues.
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import AUTHORIZED_OPERATIONS_OMITTED, Bool, Int16, Int32, Str, UuidField
from odradek.wire.schema.schema import field, message, struct


@struct
class TopicRequest:
    name: Str


@struct
class Cursor:
    topic_name: Str
    partition_index: Int32


@message(api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, kind="request", versions=(0, 0), flexible_from=0)
class DescribeTopicPartitionsRequest:
    topics: list[TopicRequest]
    response_partition_limit: Int32 = field(default=2_000)
    cursor: Cursor | None = field(default=None)


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field(default=-1)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    eligible_leader_replicas: list[Int32] | None = field(default=None)
    last_known_elr: list[Int32] | None = field(default=None)
    offline_replicas: list[Int32]


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: Int16
    name: Str | None
    topic_id: UuidField
    is_internal: Bool = field(default=False)
    partitions: list[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: Int32 = field(default=AUTHORIZED_OPERATIONS_OMITTED)


@message(api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, kind="response", versions=(0, 0), flexible_from=0)
class DescribeTopicPartitionsResponse:
    throttle_time_ms: Int32 = field(default=0)
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None = field(default=None)
