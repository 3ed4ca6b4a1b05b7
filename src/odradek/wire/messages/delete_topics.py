"""DeleteTopics: deletion of topics with all their records.

v1: throttle time. v2: throttled after the answer (KIP-219). v3: may answer TOPIC_DELETION_DISABLED (KIP-322). v4:
flexible. v5: error_message (KIP-599). v6: topics by name or by id instead of a list of names (KIP-516).
"""

from odradek.base.uuids import ZERO_UUID
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Int16, Int32, Str, UuidField
from odradek.wire.schema.schema import field, message, since, struct


@struct
class DeleteTopicState:
    name: Str | None = field(default=None)
    topic_id: UuidField


@message(api_key=ApiKey.DELETE_TOPICS, kind="request", versions=(0, 6), flexible_from=4)
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = since(6, default_factory=list)
    topic_names: list[Str] = field(default_factory=list, until=5, ignorable=True)
    timeout_ms: Int32


@struct
class DeletableTopicResult:
    name: Str | None = field(nullable_since=6)
    topic_id: UuidField = since(6, default=ZERO_UUID, ignorable=True)
    error_code: Int16
    error_message: Str | None = since(5, default=None, ignorable=True)


@message(api_key=ApiKey.DELETE_TOPICS, kind="response", versions=(0, 6), flexible_from=4)
class DeleteTopicsResponse:
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    responses: list[DeletableTopicResult]
