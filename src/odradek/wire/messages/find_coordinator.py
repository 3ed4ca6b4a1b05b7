"""FindCoordinator: the broker that coordinates a group or a transactional id.

v1: key_type (0 group, 1 transactional id) and error_message (KIP-98), throttle time. v2: throttled after the answer
(KIP-219). v3: flexible. v4: many keys in one request instead of a single key and answer (KIP-699). v5: may answer
TRANSACTION_ABORTABLE (KIP-890). v6: key_type 2, a partition of a share group (KIP-932).
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Int8, Int16, Int32, Str
from odradek.wire.schema.schema import field, message, since, struct


@message(api_key=ApiKey.FIND_COORDINATOR, kind="request", versions=(0, 6), flexible_from=3)
class FindCoordinatorRequest:
    key: Str = field(default="", until=3)
    key_type: Int8 = since(1, default=0)
    coordinator_keys: list[Str] = since(4, default_factory=list)


@struct
class Coordinator:
    key: Str
    node_id: Int32
    host: Str
    port: Int32
    error_code: Int16
    error_message: Str | None


@message(api_key=ApiKey.FIND_COORDINATOR, kind="response", versions=(0, 6), flexible_from=3)
class FindCoordinatorResponse:
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = field(default=0, until=3)
    error_message: Str | None = since(1, default="", until=3, ignorable=True)
    node_id: Int32 = field(default=0, until=3)
    host: Str = field(default="", until=3)
    port: Int32 = field(default=0, until=3)
    coordinators: list[Coordinator] = since(4, default_factory=list)
