"""SyncGroup: the leader sends its assignment, and every member receives its part.

v1: throttle time. v2: throttled after the answer (KIP-219). v3: group_instance_id (KIP-345). v4: flexible. v5:
protocol_type and protocol_name, checked by the broker (KIP-559).
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Bytes, Int16, Int32, Str
from odradek.wire.schema.schema import message, since, struct


@struct
class SyncGroupRequestAssignment:
    member_id: Str
    assignment: Bytes


@message(api_key=ApiKey.SYNC_GROUP, kind="request", versions=(0, 5), flexible_from=4)
class SyncGroupRequest:
    group_id: Str
    generation_id: Int32
    member_id: Str
    group_instance_id: Str | None = since(3, default=None)
    protocol_type: Str | None = since(5, default=None, ignorable=True)
    protocol_name: Str | None = since(5, default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment]


@message(api_key=ApiKey.SYNC_GROUP, kind="response", versions=(0, 5), flexible_from=4)
class SyncGroupResponse:
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16
    protocol_type: Str | None = since(5, default=None, ignorable=True)
    protocol_name: Str | None = since(5, default=None, ignorable=True)
    assignment: Bytes
