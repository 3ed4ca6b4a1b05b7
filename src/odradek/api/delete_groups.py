"""DeleteGroups, versions 0 to 2: groups without members go, with their offsets (KIP-229).

v1: throttled after the answer.  v2: flexible.  A group that is named twice is answered once.
"""

from __future__ import annotations

from odradek.api.call import Call
from odradek.base.errors import ErrorCode, Refused
from odradek.core.access import Operation, ResourceType
from odradek.core.coordinators.settled import Settled
from odradek.core.groups.offset_delete import delete_group
from odradek.core.parked import Parked
from odradek.core.partition import Partition
from odradek.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def handle(call: Call, body: DeleteGroupsRequest) -> DeleteGroupsResponse | Parked[DeleteGroupsResponse]:
    deleted = {group_id: _delete(call, group_id) for group_id in dict.fromkeys(body.groups_names)}
    settled = Settled(outcome for outcome in deleted.values() if isinstance(outcome, Partition))

    def answer() -> DeleteGroupsResponse:
        return _answer(
            {
                group_id: settled.code_of(outcome) if isinstance(outcome, Partition) else outcome
                for group_id, outcome in deleted.items()
            }
        )

    return settled.then(answer, call.now)


def refuse(call: Call, body: DeleteGroupsRequest, code: ErrorCode) -> DeleteGroupsResponse:
    return _answer(dict.fromkeys(body.groups_names, code))


def _delete(call: Call, group_id: str) -> Partition | ErrorCode:
    """The partition in which it was forgotten, or why it was not."""
    try:
        call.check(Operation.DELETE, ResourceType.GROUP, group_id)
        shard = call.broker.groups.shard_of(group_id, may_be_empty=True)
        delete_group(shard, group_id, call.now)
    except Refused as refused:
        return refused.code
    return shard.log.partition


def _answer(codes: dict[str, ErrorCode]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        throttle_time_ms=0,
        results=[DeletableGroupResult(group_id=group_id, error_code=code) for group_id, code in codes.items()],
    )
