"""AllocateProducerIds: request of a broker for a block of producer ids to assign (KIP-730)."""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Int16, Int32, Int64
from odradek.wire.schema.schema import field, message


@message(api_key=ApiKey.ALLOCATE_PRODUCER_IDS, kind="request", versions=(0, 0), flexible_from=0)
class AllocateProducerIdsRequest:
    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)


@message(api_key=ApiKey.ALLOCATE_PRODUCER_IDS, kind="response", versions=(0, 0), flexible_from=0)
class AllocateProducerIdsResponse:
    throttle_time_ms: Int32
    error_code: Int16
    producer_id_start: Int64
    producer_id_len: Int32
