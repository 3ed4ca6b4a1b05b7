"""DeleteGroups: deletion of empty groups with their offsets (KIP-229).

v1: throttled after the answer (KIP-219). v2: flexible. v3: error_message.
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Int16, Int32, Str
from odradek.wire.schema.schema import message, since, struct


@message(api_key=ApiKey.DELETE_GROUPS, kind="request", versions=(0, 3), flexible_from=2)
class DeleteGroupsRequest:
    groups_names: list[Str]


@struct
class DeletableGroupResult:
    group_id: Str
    error_code: Int16
    error_message: Str | None = since(3, default=None, ignorable=True)


@message(api_key=ApiKey.DELETE_GROUPS, kind="response", versions=(0, 3), flexible_from=2)
class DeleteGroupsResponse:
    throttle_time_ms: Int32
    results: list[DeletableGroupResult]
