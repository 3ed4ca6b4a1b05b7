"""OffsetDelete: deletion of a group's offsets for some partitions (KIP-496), never flexible."""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Int16, Int32, Str
from odradek.wire.schema.schema import message, struct


@struct
class OffsetDeleteRequestPartition:
    partition_index: Int32


@struct
class OffsetDeleteRequestTopic:
    name: Str
    partitions: list[OffsetDeleteRequestPartition]


@message(api_key=ApiKey.OFFSET_DELETE, kind="request", versions=(0, 0), flexible_from=None)
class OffsetDeleteRequest:
    group_id: Str
    topics: list[OffsetDeleteRequestTopic]


@struct
class OffsetDeleteResponsePartition:
    partition_index: Int32
    error_code: Int16


@struct
class OffsetDeleteResponseTopic:
    name: Str
    partitions: list[OffsetDeleteResponsePartition]


@message(api_key=ApiKey.OFFSET_DELETE, kind="response", versions=(0, 0), flexible_from=None)
class OffsetDeleteResponse:
    error_code: Int16
    throttle_time_ms: Int32
    topics: list[OffsetDeleteResponseTopic]
