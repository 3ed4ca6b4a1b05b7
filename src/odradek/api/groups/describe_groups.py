"""DescribeGroups, versions 0 to 6.

Returns the state and the members of classic groups. Only stable groups have metadata and a protocol. A member's
assignment is its last one.

- v3: authorized operations (KIP-430).
- v4: static members (KIP-345).
- v5: flexible.
- v6: a group that does not exist, or uses the consumer protocol, is an error. In earlier versions it is a dead group
  (KIP-1043).
"""

from __future__ import annotations

from odradek.api.request import authorized_operations as authorized
from odradek.api.request import repeated_names as describing
from odradek.api.request.call import Call
from odradek.api.request.outcome import PAUSE, Slices
from odradek.api.request.sliced_response import pauses
from odradek.base.errors import ErrorCode, Refused
from odradek.core.groups.classic import ClassicGroup
from odradek.core.groups.classic.classic_group_states import State
from odradek.core.groups.classic.members import Member
from odradek.core.kernel.access import Operation, ResourceType
from odradek.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from odradek.wire.schema.schema import maker

NOT_FOUND_SINCE = 6

_group_response = maker(DescribedGroup)
_member_response = maker(DescribedGroupMember)


def handle(call: Call, body: DescribeGroupsRequest) -> Slices:
    if len(body.groups) > describing.REPEATS_MAX:
        yield from describing.check_repeats(body.groups)
    groups = []
    for group_id in body.groups:
        found = _group(call, body, group_id)  # Not in slices: its members are those of one generation.
        groups.append(found)
        yield PAUSE
        if found.members:
            yield from pauses(len(found.members))
    return DescribeGroupsResponse(groups=groups)


def refuse(call: Call, body: DescribeGroupsRequest, code: ErrorCode) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[_refused(group_id, Refused(code)) for group_id in body.groups])


def _group(call: Call, body: DescribeGroupsRequest, group_id: str) -> DescribedGroup:
    if not call.may(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return _refused(group_id, Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    operations = authorized.group(call, group_id) if body.include_authorized_operations else authorized.NOT_REQUESTED
    try:
        group = call.broker.groups.shard_of(group_id, may_be_empty=True).groups.get(group_id)
    except Refused as refused:
        return _refused(group_id, refused if call.version >= NOT_FOUND_SINCE else Refused(refused.code))
    if isinstance(group, ClassicGroup):
        found = _describe(group, operations)
        found.rebalances = describing.rebalances_of(group.rebalances, body.include_rebalances)
        return found
    if call.version >= NOT_FOUND_SINCE:
        detail = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a classic group."
        return _refused(group_id, Refused(ErrorCode.GROUP_ID_NOT_FOUND, detail), State.DEAD.value)
    return _make_group(group_id, State.DEAD.value, operations=operations)


def _refused(group_id: str, refused: Refused, state: str = "") -> DescribedGroup:
    return _make_group(group_id, state, code=refused.code, message=refused.detail or None)


def _describe(group: ClassicGroup, operations: int) -> DescribedGroup:
    protocol = group.protocol_name if group.phase is State.STABLE else None
    described = _make_group(group.id, group.state, operations=operations)
    described.protocol_type = group.protocol_type
    described.protocol_data = protocol or ""
    described.members = [_member(member, protocol) for member in group.members]
    return described


def _member(member: Member, protocol: str | None) -> DescribedGroupMember:
    return _member_response(
        member_id=member.id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=b"" if protocol is None else member.metadata(protocol),
        member_assignment=member.assignment,
    )


def _make_group(
    group_id: str,
    state: str,
    *,
    code: ErrorCode = ErrorCode.NONE,
    message: str | None = None,
    operations: int = authorized.NOT_REQUESTED,
) -> DescribedGroup:
    return _group_response(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=[],
        authorized_operations=operations,
    )
