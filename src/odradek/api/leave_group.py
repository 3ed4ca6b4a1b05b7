"""LeaveGroup, versions 0 to 5: members leave without waiting for their sessions to end.

v3: many at once, each with its own error, also by instance id alone, as an administrator removes them (KIP-345).
v4: flexible.  v5: the client says why (KIP-800).
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.api.call import Call
from odradek.base.errors import ErrorCode, Refused
from odradek.core.access import Operation, ResourceType
from odradek.core.groups import membership
from odradek.core.groups.classic.messages import Leaver, Left
from odradek.core.parked import Parked
from odradek.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

MANY_SINCE = 3


def handle(call: Call, body: LeaveGroupRequest) -> LeaveGroupResponse | Parked[LeaveGroupResponse]:
    call.check(Operation.READ, ResourceType.GROUP, body.group_id)
    shard = call.broker.groups.shard_of(body.group_id)
    leavers = _leavers(call, body)
    try:
        left = membership.leave(shard, body.group_id, leavers, call.now)
    except Refused as refused:
        if refused.code is not ErrorCode.UNKNOWN_MEMBER_ID:
            raise
        left = Left([refused.code] * len(leavers))
    if left.written is None:
        return _answer(call, leavers, left.codes)
    # Kept or not, they have left: a group that could not be written empties itself after a restart.
    return left.written.then(
        lambda _: _answer(call, leavers, left.codes), call.now, call.broker.groups.write_timeout_ms
    )


def refuse(call: Call, body: LeaveGroupRequest, code: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)


def _leavers(call: Call, body: LeaveGroupRequest) -> list[Leaver]:
    if call.version < MANY_SINCE:
        return [Leaver(body.member_id, None)]
    return [Leaver(one.member_id, one.group_instance_id, one.reason or "") for one in body.members]


def _answer(call: Call, leavers: Sequence[Leaver], codes: Sequence[ErrorCode]) -> LeaveGroupResponse:
    if call.version < MANY_SINCE:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        error_code=ErrorCode.NONE,
        members=[
            MemberResponse(member_id=one.member_id, group_instance_id=one.instance_id, error_code=code)
            for one, code in zip(leavers, codes, strict=True)
        ],
    )
