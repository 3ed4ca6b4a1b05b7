"""JoinGroup: a member joins or rejoins a group and waits for the others.

The answer to the leader contains all members. v1: rebalance_timeout_ms (KIP-62); before, the session timeout has both
functions. v2: throttle time. v3: throttled after the answer (KIP-219). v4: a member without an id gets one with
MEMBER_ID_REQUIRED and repeats the request (KIP-394). v5: group_instance_id (KIP-345). v6: flexible. v7: the answer
contains protocol_type, and protocol_name may be null (KIP-559). v8: reason (KIP-800). v9: skip_assignment, for a
returning leader that must not assign (KIP-814).
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Bool, Bytes, Int16, Int32, Str
from odradek.wire.schema.schema import field, message, since, struct


@struct
class JoinGroupRequestProtocol:
    name: Str
    metadata: Bytes


@message(api_key=ApiKey.JOIN_GROUP, kind="request", versions=(0, 9), flexible_from=6)
class JoinGroupRequest:
    group_id: Str
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = since(1, default=-1, ignorable=True)
    member_id: Str
    group_instance_id: Str | None = since(5, default=None)
    protocol_type: Str
    protocols: list[JoinGroupRequestProtocol]
    reason: Str | None = since(8, default=None, ignorable=True)


@struct
class JoinGroupResponseMember:
    member_id: Str
    group_instance_id: Str | None = since(5, default=None, ignorable=True)
    metadata: Bytes


@message(api_key=ApiKey.JOIN_GROUP, kind="response", versions=(0, 9), flexible_from=6)
class JoinGroupResponse:
    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    error_code: Int16
    generation_id: Int32 = field(default=-1)
    protocol_type: Str | None = since(7, default=None, ignorable=True)
    protocol_name: Str | None = field(nullable_since=7)
    leader: Str
    skip_assignment: Bool = since(9, default=False)
    member_id: Str
    members: list[JoinGroupResponseMember]
