"""A group of the classic protocol as a record of __consumer_offsets, with all members in one value.

v1: rebalance_timeout. v2: current_state_timestamp (KIP-211). v3: group_instance_id (KIP-345). v4: flexible; Apache
Kafka reads it but writes v3. A group without members has neither protocol nor leader.
"""

from odradek.wire.schema.primitives import Bytes, Int32, Int64, Str
from odradek.wire.schema.schema import message, since, struct


@message(api_key=2, kind="coordinator-key", versions=(0, 0), flexible_from=None)
class GroupMetadataKey:
    group: Str


@struct
class MemberMetadata:
    member_id: Str
    group_instance_id: Str | None = since(3, default=None, ignorable=True)
    client_id: Str
    client_host: Str
    rebalance_timeout: Int32 = since(1, default=-1, ignorable=True)
    session_timeout: Int32
    subscription: Bytes
    assignment: Bytes


@message(api_key=2, kind="coordinator-value", versions=(0, 4), flexible_from=4)
class GroupMetadataValue:
    protocol_type: Str
    generation: Int32
    protocol: Str | None
    leader: Str | None
    current_state_timestamp: Int64 = since(2, default=-1, ignorable=True)
    members: list[MemberMetadata]
