"""EndTxn: commit or abort of a transaction.

v1: throttled after the answer (KIP-219). v2: may answer PRODUCER_FENCED (KIP-588). v3: flexible. v4: may answer
TRANSACTION_ABORTABLE (KIP-890). v5: every transaction ends with a new epoch, which the answer contains (KIP-890).
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Bool, Int16, Int32, Int64, Str
from odradek.wire.schema.schema import message, since


@message(api_key=ApiKey.END_TXN, kind="request", versions=(0, 5), flexible_from=3)
class EndTxnRequest:
    transactional_id: Str
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


@message(api_key=ApiKey.END_TXN, kind="response", versions=(0, 5), flexible_from=3)
class EndTxnResponse:
    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64 = since(5, default=-1, ignorable=True)
    producer_epoch: Int16 = since(5, default=-1, ignorable=True)
