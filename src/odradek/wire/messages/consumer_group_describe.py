"""ConsumerGroupDescribe: state and members of groups of the consumer protocol (KIP-848).

v1: member_type, 0 for a member that still uses the classic protocol, 1 for a member with the consumer protocol
(KIP-1099).

An extension of Odradek, sent on request: the last rebalances, as in DescribeGroups.
"""

from odradek.wire.messages.describe_groups import DescribedRebalance
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import AUTHORIZED_OPERATIONS_OMITTED, Bool, Int8, Int16, Int32, Str, UuidField
from odradek.wire.schema.schema import OWN_TAGS_FROM, field, message, since, struct


@message(api_key=ApiKey.CONSUMER_GROUP_DESCRIBE, kind="request", versions=(0, 1), flexible_from=0)
class ConsumerGroupDescribeRequest:
    group_ids: list[Str]
    include_authorized_operations: Bool
    include_rebalances: Bool = field(default=False, tag=OWN_TAGS_FROM)


@struct
class TopicPartitions:
    topic_id: UuidField
    topic_name: Str
    partitions: list[Int32]


@struct
class Assignment:
    topic_partitions: list[TopicPartitions]


@struct
class Member:
    member_id: Str
    instance_id: Str | None = field(default=None)
    rack_id: Str | None = field(default=None)
    member_epoch: Int32
    client_id: Str
    client_host: Str
    subscribed_topic_names: list[Str]
    subscribed_topic_regex: Str | None = field(default=None)
    assignment: Assignment
    target_assignment: Assignment
    member_type: Int8 = since(1, default=-1, ignorable=True)


@struct
class DescribedGroup:
    error_code: Int16
    error_message: Str | None = field(default=None)
    group_id: Str
    group_state: Str
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: Str
    members: list[Member]
    authorized_operations: Int32 = field(default=AUTHORIZED_OPERATIONS_OMITTED)
    rebalances: list[DescribedRebalance] = field(default_factory=list, tag=OWN_TAGS_FROM)


@message(api_key=ApiKey.CONSUMER_GROUP_DESCRIBE, kind="response", versions=(0, 1), flexible_from=0)
class ConsumerGroupDescribeResponse:
    throttle_time_ms: Int32
    groups: list[DescribedGroup]
