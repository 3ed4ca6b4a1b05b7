"""StopReplica: request of the controller to stop replicas and optionally delete them.

v1: broker_epoch, partitions by topic (KIP-380). v2: flexible. v3: a leader epoch and a delete flag for each partition
(KIP-570). v4: is_kraft_controller (KIP-866).
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Bool, Int16, Int32, Int64, Str
from odradek.wire.schema.schema import field, message, since, struct


@struct
class StopReplicaPartitionV0:
    topic_name: Str
    partition_index: Int32


@struct
class StopReplicaTopicV1:
    name: Str
    partition_indexes: list[Int32]


@struct
class StopReplicaPartitionState:
    partition_index: Int32
    leader_epoch: Int32 = field(default=-1)
    delete_partition: Bool


@struct
class StopReplicaTopicState:
    topic_name: Str
    partition_states: list[StopReplicaPartitionState]


@message(api_key=ApiKey.STOP_REPLICA, kind="request", versions=(0, 4), flexible_from=2)
class StopReplicaRequest:
    controller_id: Int32
    is_kraft_controller: Bool = since(4, default=False)
    controller_epoch: Int32
    broker_epoch: Int64 = since(1, default=-1, ignorable=True)
    delete_partitions: Bool = field(default=False, until=2)
    ungrouped_partitions: list[StopReplicaPartitionV0] = field(default_factory=list, until=0)
    topics: list[StopReplicaTopicV1] = since(1, default_factory=list, until=2)
    topic_states: list[StopReplicaTopicState] = since(3, default_factory=list)


@struct
class StopReplicaPartitionError:
    topic_name: Str
    partition_index: Int32
    error_code: Int16


@message(api_key=ApiKey.STOP_REPLICA, kind="response", versions=(0, 4), flexible_from=2)
class StopReplicaResponse:
    error_code: Int16
    partition_errors: list[StopReplicaPartitionError]
