"""DescribeGroups: state and members of classic groups, with subscriptions and assignments.

v1: throttle time. v2: throttled after the answer (KIP-219). v3: authorized operations (KIP-430). v4: group_instance_id
(KIP-345). v5: flexible. v6: error_message; the answer for an unknown group is GROUP_ID_NOT_FOUND instead of a dead
group (KIP-1043).

An extension of Odradek, sent on request: the last rebalances with their reasons.
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import AUTHORIZED_OPERATIONS_OMITTED, Bool, Bytes, Int16, Int32, Int64, Str
from odradek.wire.schema.schema import OWN_TAGS_FROM, field, message, since, struct


@message(api_key=ApiKey.DESCRIBE_GROUPS, kind="request", versions=(0, 6), flexible_from=5)
class DescribeGroupsRequest:
    groups: list[Str]
    include_authorized_operations: Bool = since(3, default=False)
    include_rebalances: Bool = since(5, default=False, tag=OWN_TAGS_FROM, ignorable=True)


@struct
class DescribedRebalance:
    """A rebalance; `generation` is the generation or epoch that it ended."""

    at_ms: Int64
    generation: Int32
    reason: Str = field(default="")


@struct
class DescribedGroupMember:
    member_id: Str
    group_instance_id: Str | None = since(4, default=None, ignorable=True)
    client_id: Str
    client_host: Str
    member_metadata: Bytes
    member_assignment: Bytes


@struct
class DescribedGroup:
    error_code: Int16
    error_message: Str | None = since(6, default=None)
    group_id: Str
    group_state: Str
    protocol_type: Str
    protocol_data: Str
    members: list[DescribedGroupMember]
    authorized_operations: Int32 = since(3, default=AUTHORIZED_OPERATIONS_OMITTED)
    rebalances: list[DescribedRebalance] = since(5, default_factory=list, tag=OWN_TAGS_FROM, ignorable=True)


@message(api_key=ApiKey.DESCRIBE_GROUPS, kind="response", versions=(0, 6), flexible_from=5)
class DescribeGroupsResponse:
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    groups: list[DescribedGroup]
