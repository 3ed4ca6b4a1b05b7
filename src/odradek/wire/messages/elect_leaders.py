"""ElectLeaders: leader elections by the controller (KIP-183).

v0: preferred replicas only, with the name ElectPreferredLeaders. v1: election_type and error_code (KIP-460). v2:
flexible.
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Int8, Int16, Int32, Str
from odradek.wire.schema.schema import field, message, since, struct


@struct
class TopicPartitions:
    topic: Str
    partitions: list[Int32]


@message(api_key=ApiKey.ELECT_LEADERS, kind="request", versions=(0, 2), flexible_from=2)
class ElectLeadersRequest:
    election_type: Int8 = since(1, default=0)
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: Int32 = field(default=60_000)


@struct
class PartitionResult:
    partition_id: Int32
    error_code: Int16
    error_message: Str | None


@struct
class ReplicaElectionResult:
    topic: Str
    partition_result: list[PartitionResult]


@message(api_key=ApiKey.ELECT_LEADERS, kind="response", versions=(0, 2), flexible_from=2)
class ElectLeadersResponse:
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = since(1, default=0)
    replica_election_results: list[ReplicaElectionResult]
