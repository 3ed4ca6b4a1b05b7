"""ListGroups, versions 0 to 5.

Lists the groups that this broker coordinates.

- v3: flexible.
- v4: the groups' states, and a filter by state (KIP-518).
- v5: the groups' types, and a filter by type (KIP-848).

Filters ignore case; an unknown state or type matches no group.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.api.request.call import Call
from odradek.api.request.outcome import PAUSE, Slices
from odradek.api.request.sliced_response import CHEAP, Parts
from odradek.base.errors import ErrorCode
from odradek.core.groups.shard.group import Group
from odradek.core.kernel.access import Operation, ResourceType
from odradek.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle(call: Call, body: ListGroupsRequest) -> Slices:
    shards = call.broker.groups.shards
    if shards.is_loading:
        return refuse(call, body, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    sees_all = call.may(Operation.DESCRIBE, ResourceType.CLUSTER)
    states, types = (yield from _lower(body.states_filter)), (yield from _lower(body.types_filter))
    listed = []
    for shard in shards:
        for number, group in enumerate(list(shard.groups.values())):
            if shard.groups.get(group.id) is not group:
                continue  # It was deleted while other requests ran.
            is_requested = _matches(group.state, states) and _matches(group.type, types)
            if is_requested and (sees_all or call.may(Operation.DESCRIBE, ResourceType.GROUP, group.id)):
                listed.append(_listed(group))
            if number % CHEAP == CHEAP - 1:
                yield PAUSE
    return ListGroupsResponse(error_code=ErrorCode.NONE, groups=listed)


def refuse(call: Call, body: ListGroupsRequest, code: ErrorCode) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=code, groups=[])


def _lower(texts: Iterable[str]) -> Parts[set[str]]:
    lower: set[str] = set()
    for number, text in enumerate(texts, 1):
        lower.add(text.lower())
        if not number % CHEAP:
            yield
    return lower


def _matches(text: str, accepted: set[str]) -> bool:
    """Return whether the filter is empty or contains the text."""
    return not accepted or text.lower() in accepted


def _listed(group: Group) -> ListedGroup:
    return ListedGroup(
        group_id=group.id, protocol_type=group.protocol_type, group_state=group.state, group_type=group.type
    )
