"""ListGroups, versions 0 to 5: the groups that this broker keeps.

v3: flexible.  v4: their states, and only those in some states (KIP-518).  v5: their types, and only those of some types
(KIP-848).  States and types are compared without their case; what nobody knows, no group has.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.api.call import Call
from odradek.base.errors import ErrorCode
from odradek.core.access import Operation, ResourceType
from odradek.core.groups.group import Group
from odradek.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle(call: Call, body: ListGroupsRequest) -> ListGroupsResponse:
    shards = call.broker.groups.shards
    if shards.is_loading:
        return refuse(call, body, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    sees_all = call.may(Operation.DESCRIBE, ResourceType.CLUSTER)
    states, types = _lower(body.states_filter), _lower(body.types_filter)
    return ListGroupsResponse(
        error_code=ErrorCode.NONE,
        groups=[
            _listed(group)
            for shard in shards
            for group in shard.groups.values()
            if _is_in(group.state, states) and _is_in(group.type, types)
            if sees_all or call.may(Operation.DESCRIBE, ResourceType.GROUP, group.id)
        ],
    )


def refuse(call: Call, body: ListGroupsRequest, code: ErrorCode) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=code, groups=[])


def _lower(texts: Iterable[str]) -> set[str]:
    return {text.lower() for text in texts}


def _is_in(text: str, wanted: set[str]) -> bool:
    """None wanted: any will do."""
    return not wanted or text.lower() in wanted


def _listed(group: Group) -> ListedGroup:
    return ListedGroup(
        group_id=group.id, protocol_type=group.protocol_type, group_state=group.state, group_type=group.type
    )
