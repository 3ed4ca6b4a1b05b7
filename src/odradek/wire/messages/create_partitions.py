"""CreatePartitions: additional partitions for existing topics (KIP-195).

v1: throttled after the answer (KIP-219). v2: flexible. v3: may answer THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Bool, Int16, Int32, Str
from odradek.wire.schema.schema import field, message, struct


@struct
class CreatePartitionsAssignment:
    broker_ids: list[Int32]


@struct
class CreatePartitionsTopic:
    name: Str
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None


@message(api_key=ApiKey.CREATE_PARTITIONS, kind="request", versions=(0, 3), flexible_from=2)
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Bool


@struct
class CreatePartitionsTopicResult:
    name: Str
    error_code: Int16
    error_message: Str | None = field(default=None)


@message(api_key=ApiKey.CREATE_PARTITIONS, kind="response", versions=(0, 3), flexible_from=2)
class CreatePartitionsResponse:
    throttle_time_ms: Int32 = field(default=0)
    results: list[CreatePartitionsTopicResult]
