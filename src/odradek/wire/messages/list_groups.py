"""ListGroups: the groups that this broker coordinates.

v1: throttle time. v2: throttled after the answer (KIP-219). v3: flexible. v4: filter by state (KIP-518). v5: filter by
type (KIP-848).
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Int16, Int32, Str
from odradek.wire.schema.schema import message, since, struct


@message(api_key=ApiKey.LIST_GROUPS, kind="request", versions=(0, 5), flexible_from=3)
class ListGroupsRequest:
    states_filter: list[Str] = since(4, default_factory=list)
    types_filter: list[Str] = since(5, default_factory=list)


@struct
class ListedGroup:
    group_id: Str
    protocol_type: Str
    group_state: Str = since(4, default="", ignorable=True)
    group_type: Str = since(5, default="", ignorable=True)


@message(api_key=ApiKey.LIST_GROUPS, kind="response", versions=(0, 5), flexible_from=3)
class ListGroupsResponse:
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16
    groups: list[ListedGroup]
