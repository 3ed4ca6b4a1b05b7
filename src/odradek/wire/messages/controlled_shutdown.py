"""ControlledShutdown: request of a stopping broker to move its leaderships to other brokers.

The controller answers with the partitions that the broker still leads. v0: a request header without client id. v1: with
a client id, like all other APIs. v2: broker_epoch (KIP-380). v3: flexible.
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Int16, Int32, Int64, Str
from odradek.wire.schema.schema import message, since, struct


@message(api_key=ApiKey.CONTROLLED_SHUTDOWN, kind="request", versions=(0, 3), flexible_from=3)
class ControlledShutdownRequest:
    broker_id: Int32
    broker_epoch: Int64 = since(2, default=-1, ignorable=True)


@struct
class RemainingPartition:
    topic_name: Str
    partition_index: Int32


@message(api_key=ApiKey.CONTROLLED_SHUTDOWN, kind="response", versions=(0, 3), flexible_from=3)
class ControlledShutdownResponse:
    error_code: Int16
    remaining_partitions: list[RemainingPartition]
