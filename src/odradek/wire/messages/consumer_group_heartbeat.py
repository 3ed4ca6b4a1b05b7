"""ConsumerGroupHeartbeat: the consumer protocol in one API (KIP-848).

Members join, subscribe, report, receive assignments and leave with it. Null in a request means no change, and so does a
null assignment in an answer. v1: subscribed_topic_regex, and the member generates its own id (KIP-1082).
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Int16, Int32, Str, UuidField
from odradek.wire.schema.schema import field, message, since, struct


@struct
class TopicPartitions:
    topic_id: UuidField
    partitions: list[Int32]


@message(api_key=ApiKey.CONSUMER_GROUP_HEARTBEAT, kind="request", versions=(0, 1), flexible_from=0)
class ConsumerGroupHeartbeatRequest:
    group_id: Str
    member_id: Str
    member_epoch: Int32
    instance_id: Str | None = field(default=None)
    rack_id: Str | None = field(default=None)
    rebalance_timeout_ms: Int32 = field(default=-1)
    subscribed_topic_names: list[Str] | None = field(default=None)
    subscribed_topic_regex: Str | None = since(1, default=None)
    server_assignor: Str | None = field(default=None)
    topic_partitions: list[TopicPartitions] | None = field(default=None)


@struct
class Assignment:
    topic_partitions: list[TopicPartitions]


@message(api_key=ApiKey.CONSUMER_GROUP_HEARTBEAT, kind="response", versions=(0, 1), flexible_from=0)
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: Str | None = field(default=None)
    member_id: Str | None = field(default=None)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = field(default=None)
