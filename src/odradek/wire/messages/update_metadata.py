"""UpdateMetadata: the brokers and partition leaders, sent by the controller for a broker's clients.

v1: several endpoints of a broker. v2: rack (KIP-36). v3: listener names (KIP-103). v4: offline_replicas (KIP-112). v5:
broker_epoch, partitions by topic (KIP-380). v6: flexible. v7: topic ids (KIP-516). v8: is_kraft_controller, and type,
which distinguishes a full update from a partial one (KIP-866).
"""

from odradek.base.uuids import ZERO_UUID
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Bool, Int8, Int16, Int32, Int64, Str, UuidField
from odradek.wire.schema.schema import field, message, since, struct


@struct
class UpdateMetadataPartitionState:
    topic_name: Str = field(default="", until=4, ignorable=True)
    partition_index: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: list[Int32]
    zk_version: Int32
    replicas: list[Int32]
    offline_replicas: list[Int32] = since(4, default_factory=list, ignorable=True)


@struct
class UpdateMetadataTopicState:
    topic_name: Str
    topic_id: UuidField = since(7, default=ZERO_UUID, ignorable=True)
    partition_states: list[UpdateMetadataPartitionState]


@struct
class UpdateMetadataEndpoint:
    port: Int32
    host: Str
    listener: Str = since(3, default="", ignorable=True)
    security_protocol: Int16


@struct
class UpdateMetadataBroker:
    id: Int32
    v0_host: Str = field(default="", until=0, ignorable=True)
    v0_port: Int32 = field(default=0, until=0, ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = since(1, default_factory=list, ignorable=True)
    rack: Str | None = since(2, default="", ignorable=True)


@message(api_key=ApiKey.UPDATE_METADATA, kind="request", versions=(0, 8), flexible_from=6)
class UpdateMetadataRequest:
    controller_id: Int32
    is_kraft_controller: Bool = since(8, default=False)
    type: Int8 = since(8, default=0, tag=0)
    controller_epoch: Int32
    broker_epoch: Int64 = since(5, default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = field(default_factory=list, until=4)
    topic_states: list[UpdateMetadataTopicState] = since(5, default_factory=list)
    live_brokers: list[UpdateMetadataBroker]


@message(api_key=ApiKey.UPDATE_METADATA, kind="response", versions=(0, 8), flexible_from=6)
class UpdateMetadataResponse:
    error_code: Int16
