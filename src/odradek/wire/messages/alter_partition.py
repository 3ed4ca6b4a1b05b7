"""AlterPartition: request of a leader to change the in-sync replicas of its partitions (KIP-497).

v1: leader_recovery_state (KIP-704). v2: topic ids instead of names (KIP-841). v3: the broker epoch of each in-sync
replica (KIP-903). In Apache Kafka the structs of topics and partitions have the same names in request and response;
here the names distinguish them.
"""

from odradek.base.uuids import ZERO_UUID
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Int8, Int16, Int32, Int64, Str, UuidField
from odradek.wire.schema.schema import field, message, since, struct


@struct
class BrokerState:
    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)


@struct
class RequestPartitionData:
    partition_index: Int32
    leader_epoch: Int32
    new_isr: list[Int32] = field(default_factory=list, until=2)
    new_isr_with_epochs: list[BrokerState] = since(3, default_factory=list)
    leader_recovery_state: Int8 = since(1, default=0)
    partition_epoch: Int32


@struct
class RequestTopicData:
    topic_name: Str = field(default="", until=1, ignorable=True)
    topic_id: UuidField = since(2, default=ZERO_UUID, ignorable=True)
    partitions: list[RequestPartitionData]


@message(api_key=ApiKey.ALTER_PARTITION, kind="request", versions=(0, 3), flexible_from=0)
class AlterPartitionRequest:
    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    topics: list[RequestTopicData]


@struct
class ResponsePartitionData:
    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32
    isr: list[Int32]
    leader_recovery_state: Int8 = since(1, default=0, ignorable=True)
    partition_epoch: Int32


@struct
class ResponseTopicData:
    topic_name: Str = field(default="", until=1, ignorable=True)
    topic_id: UuidField = since(2, default=ZERO_UUID, ignorable=True)
    partitions: list[ResponsePartitionData]


@message(api_key=ApiKey.ALTER_PARTITION, kind="response", versions=(0, 3), flexible_from=0)
class AlterPartitionResponse:
    throttle_time_ms: Int32
    error_code: Int16
    topics: list[ResponseTopicData]
