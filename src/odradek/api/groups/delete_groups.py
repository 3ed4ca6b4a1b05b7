"""DeleteGroups, versions 0 to 3.

Deletes groups without members, and their offsets (KIP-229). Each group is deleted independently, and other requests may
run between two groups. A group that is named twice is answered once.

- v1: throttling applies after the response.
- v2: flexible.
- v3: an error message for each group that was not deleted.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from odradek.api.request.call import Call
from odradek.api.request.outcome import PAUSE, Slices, Wait
from odradek.api.request.sliced_response import CHEAP, WRITE_PARTS, Parts, pauses, settled
from odradek.base.errors import ErrorCode, Refused
from odradek.core.coordinators.committed_read import CommittedRead
from odradek.core.groups.group_offset_delete import AT_ONCE_MAX, LongDelete, delete_group
from odradek.core.kernel.access import Operation, ResourceType
from odradek.core.kernel.work import Work
from odradek.core.partition.leading import Leading
from odradek.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from odradek.wire.schema.schema import maker

_result = maker(DeletableGroupResult)


def handle(call: Call, body: DeleteGroupsRequest) -> Slices:
    results: list[DeletableGroupResult] = []
    deleted: list[tuple[DeletableGroupResult, Leading]] = []  # With the partition of the write.
    written: dict[Leading, None] = {}
    seen: set[str] = set()
    for group_id in body.groups_names:
        if group_id in seen:
            yield PAUSE
            continue
        seen.add(group_id)
        result = _result(group_id=group_id, error_code=ErrorCode.NONE)
        try:
            leading = yield from _delete(call, group_id)
            deleted.append((result, leading))
            written[leading] = None
            yield from pauses(WRITE_PARTS)
        except Refused as refused:
            result.error_code, result.error_message = refused.code, refused.detail or None
        results.append(result)
        yield PAUSE
    writes = CommittedRead(written)
    call.free_later((deleted, seen))

    def answer() -> Parts[DeleteGroupsResponse]:
        for number, (result, leading) in enumerate(deleted):
            result.error_code = writes.code_of(leading)
            if number % CHEAP == CHEAP - 1:
                yield
        return _answer(results)

    return (yield from settled(writes, call.now, len(results), answer))


def refuse(call: Call, body: DeleteGroupsRequest, code: ErrorCode) -> DeleteGroupsResponse:
    return _answer([_result(group_id=group_id, error_code=code) for group_id in dict.fromkeys(body.groups_names)])


def _delete(call: Call, group_id: str) -> Generator[Wait, Any, Leading]:
    """Delete the group and return the partition that the deletion was written to. Raise Refused."""
    call.check(Operation.DELETE, ResourceType.GROUP, group_id)
    shard = call.broker.groups.shard_of(group_id, may_be_empty=True)
    if shard.offsets.count_of_group(group_id) <= AT_ONCE_MAX:
        delete_group(shard, group_id, call.now)
        return shard.log.leading
    deletion = LongDelete(shard, group_id, call.now)
    yield Work(deletion.encode)
    shard = call.broker.groups.shard_of(group_id, may_be_empty=True)
    deletion.finish(shard, call.now)
    return shard.log.leading


def _answer(results: list[DeletableGroupResult]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(throttle_time_ms=0, results=results)
