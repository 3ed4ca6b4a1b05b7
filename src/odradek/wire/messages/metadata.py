"""Metadata: the brokers, and the partitions of topics with leader and replicas.

To request all topics, v0 sends an empty list and later versions null. v1: controller_id, rack, is_internal. v2:
cluster_id (KIP-78). v3: throttle time. v4: allow_auto_topic_creation. v5: offline_replicas (KIP-112). v6: throttled
after the answer (KIP-219). v7: leader_epoch (KIP-320). v8: authorized operations (KIP-430). v9: flexible. v10: topic
ids in the answer (KIP-516). v11: the cluster's authorized operations moved to DescribeCluster (KIP-700). v12: topics
can be requested by id. v13: an error_code for the whole answer (KIP-1102).
"""

from odradek.base.uuids import ZERO_UUID
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import AUTHORIZED_OPERATIONS_OMITTED, Bool, Int16, Int32, Str, UuidField
from odradek.wire.schema.schema import field, message, since, struct


@struct
class MetadataRequestTopic:
    topic_id: UuidField = since(10, default=ZERO_UUID, ignorable=True)
    name: Str | None = field(nullable_since=10)


@message(api_key=ApiKey.METADATA, kind="request", versions=(0, 13), flexible_from=9)
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = field(nullable_since=1)
    allow_auto_topic_creation: Bool = since(4, default=True)
    include_cluster_authorized_operations: Bool = since(8, default=False, until=10)
    include_topic_authorized_operations: Bool = since(8, default=False)


@struct
class MetadataResponseBroker:
    node_id: Int32
    host: Str
    port: Int32
    rack: Str | None = since(1, default=None, ignorable=True)


@struct
class MetadataResponsePartition:
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = since(7, default=-1, ignorable=True)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32] = since(5, default_factory=list, ignorable=True)


@struct
class MetadataResponseTopic:
    error_code: Int16
    name: Str | None = field(nullable_since=12)
    topic_id: UuidField = since(10, default=ZERO_UUID, ignorable=True)
    is_internal: Bool = since(1, default=False, ignorable=True)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Int32 = since(8, default=AUTHORIZED_OPERATIONS_OMITTED)


@message(api_key=ApiKey.METADATA, kind="response", versions=(0, 13), flexible_from=9)
class MetadataResponse:
    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    brokers: list[MetadataResponseBroker]
    cluster_id: Str | None = since(2, default=None, ignorable=True)
    controller_id: Int32 = since(1, default=-1, ignorable=True)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = since(8, default=AUTHORIZED_OPERATIONS_OMITTED, until=10)
    error_code: Int16 = since(13, default=0, ignorable=True)
