"""LeaveGroup, versions 0 to 5.

Removes members from a group before their sessions expire. Many members are removed a hundred at a time; other requests
may run in between.

- v3: several members per request, each with its own error. An administrator can remove members by instance id alone
  (KIP-345).
- v4: flexible.
- v5: the client gives a reason (KIP-800).
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.api.request.call import Call
from odradek.api.request.outcome import Slices
from odradek.api.request.sliced_response import CHEAP, Parts, pauses, settled
from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import SLICE_ELEMENTS
from odradek.core.coordinators.durable import PendingWrite
from odradek.core.groups import membership
from odradek.core.groups.classic.messages import LeaveGroupResult, Leaver
from odradek.core.kernel.access import Operation, ResourceType
from odradek.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from odradek.wire.schema.schema import maker

MANY_SINCE = 3

_member = maker(MemberResponse)


def handle(call: Call, body: LeaveGroupRequest) -> Slices:
    call.check(Operation.READ, ResourceType.GROUP, body.group_id)
    members = _members(call, body)
    codes: list[ErrorCode] = []
    written: PendingWrite | None = None
    for start in range(0, max(len(members), 1), SLICE_ELEMENTS):
        batch = members[start : start + SLICE_ELEMENTS]
        left = _leave(
            call,
            body.group_id,
            [Leaver(member.member_id, member.group_instance_id, member.reason or "") for member in batch],
        )
        codes += left.codes
        written = left.written or written
        yield from pauses(len(batch))
    if written is None:
        return (yield from _answer(call, members, codes))
    # The members have left even if the write fails: a group that could not be written becomes empty after a restart.
    timeout_ms = call.broker.groups.write_timeout_ms
    return (yield from settled(written, call.now, len(codes), lambda: _answer(call, members, codes), timeout_ms))


def refuse(call: Call, body: LeaveGroupRequest, code: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)


def _members(call: Call, body: LeaveGroupRequest) -> Sequence[MemberIdentity]:
    return [MemberIdentity(member_id=body.member_id)] if call.version < MANY_SINCE else body.members


def _leave(call: Call, group_id: str, leavers: Sequence[Leaver]) -> LeaveGroupResult:
    """Remove the members. Raise Refused for all of them."""
    shard = call.broker.groups.shard_of(group_id)
    try:
        return membership.leave(shard, group_id, leavers, call.now)
    except Refused as refused:
        if refused.code is not ErrorCode.UNKNOWN_MEMBER_ID:
            raise
        return LeaveGroupResult([refused.code] * len(leavers))


def _answer(call: Call, members: Sequence[MemberIdentity], codes: Sequence[ErrorCode]) -> Parts[LeaveGroupResponse]:
    if call.version < MANY_SINCE:
        return LeaveGroupResponse(error_code=codes[0])
    answers = []
    for member, code in zip(members, codes, strict=True):
        answers.append(_member(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code))
        if not len(answers) % CHEAP:
            yield
    return LeaveGroupResponse(error_code=ErrorCode.NONE, members=answers)
