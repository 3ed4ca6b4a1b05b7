"""LeaveGroup: members leave a group without waiting for their session to expire.

v1: throttle time. v2: throttled after the answer (KIP-219). v3: many members, also by group_instance_id, each with its
own error (KIP-345). v4: flexible. v5: reason (KIP-800).
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Int16, Int32, Str
from odradek.wire.schema.schema import field, message, since, struct


@struct
class MemberIdentity:
    member_id: Str
    group_instance_id: Str | None = field(default=None)
    reason: Str | None = since(5, default=None, ignorable=True)


@message(api_key=ApiKey.LEAVE_GROUP, kind="request", versions=(0, 5), flexible_from=4)
class LeaveGroupRequest:
    group_id: Str
    member_id: Str = field(default="", until=2)
    members: list[MemberIdentity] = since(3, default_factory=list)


@struct
class MemberResponse:
    member_id: Str
    group_instance_id: Str | None
    error_code: Int16


@message(api_key=ApiKey.LEAVE_GROUP, kind="response", versions=(0, 5), flexible_from=4)
class LeaveGroupResponse:
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16
    members: list[MemberResponse] = since(3, default_factory=list)
