"""Heartbeat, versions 0 to 4.

Renews a member's session and reports whether its group is rebalancing. While the broker is still loading the group, any
member gets a response without an error.

- v3: static members (KIP-345).
- v4: flexible.
"""

from __future__ import annotations

from odradek.api.request.call import Call
from odradek.base.errors import ErrorCode
from odradek.core.groups import membership
from odradek.core.groups.classic.messages import Heartbeat
from odradek.core.kernel.access import Operation, ResourceType
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(call: Call, body: HeartbeatRequest) -> HeartbeatResponse:
    call.check(Operation.READ, ResourceType.GROUP, body.group_id)
    shard = call.broker.groups.shard_of(body.group_id)
    request = Heartbeat(body.member_id, body.group_instance_id, body.generation_id)
    membership.heartbeat(shard, body.group_id, request, call.now)
    return HeartbeatResponse(error_code=ErrorCode.NONE)


def refuse(call: Call, body: HeartbeatRequest, code: ErrorCode) -> HeartbeatResponse:
    is_loading = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else code)
