"""CreateTopics: creation of topics with a number of partitions or a replica assignment, and configs.

v1: validate_only, error_message. v2: throttle time. v3: throttled after the answer (KIP-219). v4: -1 partitions or
replicas means the broker's default (KIP-464). v5: flexible; the answer contains the created topics (KIP-525). v6: may
answer THROTTLING_QUOTA_EXCEEDED (KIP-599). v7: topic_id (KIP-516).
"""

from odradek.base.uuids import ZERO_UUID
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Bool, Int8, Int16, Int32, Str, UuidField
from odradek.wire.schema.schema import field, message, since, struct


@struct
class CreatableReplicaAssignment:
    partition_index: Int32
    broker_ids: list[Int32]


@struct
class CreatableTopicConfig:
    name: Str
    value: Str | None


@struct
class CreatableTopic:
    name: Str
    num_partitions: Int32
    replication_factor: Int16
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


@message(api_key=ApiKey.CREATE_TOPICS, kind="request", versions=(0, 7), flexible_from=5)
class CreateTopicsRequest:
    topics: list[CreatableTopic]
    timeout_ms: Int32 = field(default=60_000)
    validate_only: Bool = since(1, default=False)


@struct
class CreatableTopicConfigs:
    name: Str
    value: Str | None
    read_only: Bool
    config_source: Int8 = field(default=-1)
    is_sensitive: Bool


@struct
class CreatableTopicResult:
    name: Str
    topic_id: UuidField = since(7, default=ZERO_UUID, ignorable=True)
    error_code: Int16
    error_message: Str | None = since(1, default="", ignorable=True)
    topic_config_error_code: Int16 = since(5, default=0, tag=0, ignorable=True)
    num_partitions: Int32 = since(5, default=-1, ignorable=True)
    replication_factor: Int16 = since(5, default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = since(5, default_factory=list, ignorable=True)


@message(api_key=ApiKey.CREATE_TOPICS, kind="response", versions=(0, 7), flexible_from=5)
class CreateTopicsResponse:
    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    topics: list[CreatableTopicResult]
