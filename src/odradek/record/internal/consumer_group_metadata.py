"""A group of the consumer protocol (KIP-848) as records of __consumer_offsets, one for each part.

The group epoch changes with the members' subscriptions. The target assignment follows the group epoch, and each
member's current assignment follows the target. The first brokers with this protocol wrote the partition metadata; since
Apache Kafka 4.1 the group's own record contains a hash of it instead.

A member without classic_member_metadata uses the consumer protocol. None must be written explicitly: Apache Kafka reads
a missing field as empty metadata, and so does this module. The same applies to assignment_epochs.
"""

from odradek.wire.schema.primitives import Bytes, Int8, Int32, Int64, Str, UuidField
from odradek.wire.schema.schema import field, message, struct


@message(api_key=3, kind="coordinator-key", versions=(0, 0), flexible_from=None)
class ConsumerGroupMetadataKey:
    group_id: Str


@message(api_key=3, kind="coordinator-value", versions=(0, 0), flexible_from=0)
class ConsumerGroupMetadataValue:
    epoch: Int32
    metadata_hash: Int64 = field(default=0, tag=0)


@message(api_key=4, kind="coordinator-key", versions=(0, 0), flexible_from=None)
class ConsumerGroupPartitionMetadataKey:
    group_id: Str


@struct
class PartitionMetadata:
    partition: Int32
    racks: list[Str]


@struct
class TopicMetadata:
    topic_id: UuidField
    topic_name: Str
    num_partitions: Int32
    partition_metadata: list[PartitionMetadata]


@message(api_key=4, kind="coordinator-value", versions=(0, 0), flexible_from=0)
class ConsumerGroupPartitionMetadataValue:
    topics: list[TopicMetadata]


@message(api_key=5, kind="coordinator-key", versions=(0, 0), flexible_from=None)
class ConsumerGroupMemberMetadataKey:
    group_id: Str
    member_id: Str


@struct
class ClassicProtocol:
    name: Str
    metadata: Bytes


@struct
class ClassicMemberMetadata:
    session_timeout_ms: Int32 = field(default=0)
    supported_protocols: list[ClassicProtocol] = field(default_factory=list)


@message(api_key=5, kind="coordinator-value", versions=(0, 0), flexible_from=0)
class ConsumerGroupMemberMetadataValue:
    instance_id: Str | None
    rack_id: Str | None
    client_id: Str
    client_host: Str
    subscribed_topic_names: list[Str]
    subscribed_topic_regex: Str | None
    rebalance_timeout_ms: Int32 = field(default=-1)
    server_assignor: Str | None
    classic_member_metadata: ClassicMemberMetadata | None = field(default_factory=ClassicMemberMetadata, tag=0)


@message(api_key=6, kind="coordinator-key", versions=(0, 0), flexible_from=None)
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: Str


@message(api_key=6, kind="coordinator-value", versions=(0, 0), flexible_from=0)
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(default=0, tag=0)


@message(api_key=7, kind="coordinator-key", versions=(0, 0), flexible_from=None)
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: Str
    member_id: Str


@struct
class TopicPartition:
    topic_id: UuidField
    partitions: list[Int32]


@message(api_key=7, kind="coordinator-value", versions=(0, 0), flexible_from=0)
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: list[TopicPartition]


@message(api_key=8, kind="coordinator-key", versions=(0, 0), flexible_from=None)
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: Str
    member_id: Str


@struct
class TopicPartitions:
    topic_id: UuidField
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = field(default_factory=list, tag=0)


@message(api_key=8, kind="coordinator-value", versions=(0, 0), flexible_from=0)
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]
    partitions_pending_revocation: list[TopicPartitions]


@message(api_key=16, kind="coordinator-key", versions=(0, 0), flexible_from=None)
class ConsumerGroupRegularExpressionKey:
    group_id: Str
    regular_expression: Str


@message(api_key=16, kind="coordinator-value", versions=(0, 0), flexible_from=0)
class ConsumerGroupRegularExpressionValue:
    topics: list[Str]
    version: Int64
    timestamp: Int64
