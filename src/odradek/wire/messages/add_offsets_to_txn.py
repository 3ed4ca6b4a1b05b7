"""AddOffsetsToTxn: addition of a group's offsets to a transaction.

v1: throttled after the answer (KIP-219). v2: may answer PRODUCER_FENCED (KIP-588). v3: flexible. v4: may answer
TRANSACTION_ABORTABLE (KIP-890).
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Int16, Int32, Int64, Str
from odradek.wire.schema.schema import message


@message(api_key=ApiKey.ADD_OFFSETS_TO_TXN, kind="request", versions=(0, 4), flexible_from=3)
class AddOffsetsToTxnRequest:
    transactional_id: Str
    producer_id: Int64
    producer_epoch: Int16
    group_id: Str


@message(api_key=ApiKey.ADD_OFFSETS_TO_TXN, kind="response", versions=(0, 4), flexible_from=3)
class AddOffsetsToTxnResponse:
    throttle_time_ms: Int32
    error_code: Int16
