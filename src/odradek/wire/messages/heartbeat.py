"""Heartbeat: liveness of a classic group member; the answer indicates a rebalance.

v1: throttle time. v2: throttled after the answer (KIP-219). v3: group_instance_id (KIP-345). v4: flexible.
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Int16, Int32, Str
from odradek.wire.schema.schema import message, since


@message(api_key=ApiKey.HEARTBEAT, kind="request", versions=(0, 4), flexible_from=4)
class HeartbeatRequest:
    group_id: Str
    generation_id: Int32
    member_id: Str
    group_instance_id: Str | None = since(3, default=None)


@message(api_key=ApiKey.HEARTBEAT, kind="response", versions=(0, 4), flexible_from=4)
class HeartbeatResponse:
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16
