"""LeaderAndIsr: the partitions that a broker leads, and the leaders of those it follows.

The controller sends it. v1: is_new, for a replica to be created (KIP-112). v2: broker_epoch; partitions by topic
(KIP-380). v3: replicas that a reassignment adds and removes (KIP-455). v4: flexible. v5: topic ids, in the answer
instead of names; type, which distinguishes a full list of the broker's replicas from a partial one (KIP-516). v6:
leader_recovery_state (KIP-704). v7: is_kraft_controller (KIP-866).
"""

from odradek.base.uuids import ZERO_UUID
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Bool, Int8, Int16, Int32, Int64, Str, UuidField
from odradek.wire.schema.schema import field, message, since, struct


@struct
class LeaderAndIsrPartitionState:
    topic_name: Str = field(default="", until=1, ignorable=True)
    partition_index: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: list[Int32]
    partition_epoch: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32] = since(3, default_factory=list, ignorable=True)
    removing_replicas: list[Int32] = since(3, default_factory=list, ignorable=True)
    is_new: Bool = since(1, default=False, ignorable=True)
    leader_recovery_state: Int8 = since(6, default=0)


@struct
class LeaderAndIsrTopicState:
    topic_name: Str
    topic_id: UuidField = since(5, default=ZERO_UUID, ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState]


@struct
class LeaderAndIsrLiveLeader:
    broker_id: Int32
    host_name: Str
    port: Int32


@message(api_key=ApiKey.LEADER_AND_ISR, kind="request", versions=(0, 7), flexible_from=4)
class LeaderAndIsrRequest:
    controller_id: Int32
    is_kraft_controller: Bool = since(7, default=False)
    controller_epoch: Int32
    broker_epoch: Int64 = since(2, default=-1, ignorable=True)
    type: Int8 = since(5, default=0)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = field(default_factory=list, until=1)
    topic_states: list[LeaderAndIsrTopicState] = since(2, default_factory=list)
    live_leaders: list[LeaderAndIsrLiveLeader]


@struct
class LeaderAndIsrPartitionError:
    topic_name: Str = field(default="", until=4, ignorable=True)
    partition_index: Int32
    error_code: Int16


@struct
class LeaderAndIsrTopicError:
    topic_id: UuidField
    partition_errors: list[LeaderAndIsrPartitionError]


@message(api_key=ApiKey.LEADER_AND_ISR, kind="response", versions=(0, 7), flexible_from=4)
class LeaderAndIsrResponse:
    error_code: Int16
    partition_errors: list[LeaderAndIsrPartitionError] = field(default_factory=list, until=4)
    topics: list[LeaderAndIsrTopicError] = since(5, default_factory=list)
