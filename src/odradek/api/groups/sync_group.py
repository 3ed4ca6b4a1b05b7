"""SyncGroup, versions 0 to 5.

Delivers assignments: the group's leader sends all of them, and each member receives its own.

- v3: static members (KIP-345).
- v4: flexible.
- v5: the member sends the protocol that it expects (KIP-559).
"""

from __future__ import annotations

from odradek.api.request.call import Call
from odradek.api.request.outcome import Slices
from odradek.api.request.sliced_response import CHEAP, Parts
from odradek.base.errors import ErrorCode, Refused
from odradek.core.groups import membership
from odradek.core.groups.classic.messages import SyncGroup, SyncGroupResult
from odradek.core.kernel.access import Operation, ResourceType
from odradek.core.kernel.purgatory import NEVER, ParkedRequest
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_SINCE = 5


def handle(call: Call, body: SyncGroupRequest) -> Slices:
    if call.version >= PROTOCOL_SINCE and (body.protocol_type is None or body.protocol_name is None):
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the protocol type or name is null")
    call.check(Operation.READ, ResourceType.GROUP, body.group_id)
    request = yield from _request(body)
    shard = call.broker.groups.shard_of(body.group_id)
    promise = membership.sync(shard, body.group_id, request, call.now)
    if promise.value is not None:
        return _answer(promise.value)
    return ParkedRequest(promise, NEVER, lambda: _answer(promise.value or SyncGroupResult(ErrorCode.NOT_COORDINATOR)))


def refuse(call: Call, body: SyncGroupRequest, code: ErrorCode) -> SyncGroupResponse:
    return _answer(SyncGroupResult(code))


def _request(body: SyncGroupRequest) -> Parts[SyncGroup]:
    assignments: dict[str, bytes] = {}
    body.assignments.reverse()
    while body.assignments:  # Each one is freed as it is read, because freeing very many takes long.
        assignment = body.assignments.pop()
        assignments[assignment.member_id] = bytes(assignment.assignment)
        if not len(body.assignments) % CHEAP:
            yield
    return SyncGroup(
        member_id=body.member_id,
        instance_id=body.group_instance_id,
        generation=body.generation_id,
        protocol_type=body.protocol_type,
        protocol_name=body.protocol_name,
        assignments=assignments,
    )


def _answer(synced: SyncGroupResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=synced.code,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )
