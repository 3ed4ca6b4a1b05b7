"""InitProducerId: assignment of a producer id and epoch.

With a transactional id, earlier producers of that id are fenced. v1: throttled after the answer (KIP-219). v2:
flexible. v3: the producer sends its id and epoch to continue after an error (KIP-360). v4: may answer PRODUCER_FENCED
(KIP-588). v5: may answer TRANSACTION_ABORTABLE (KIP-890). v6: two-phase commit: a prepared transaction may be kept and
is returned (KIP-939).
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Bool, Int16, Int32, Int64, Str
from odradek.wire.schema.schema import field, message, since


@message(api_key=ApiKey.INIT_PRODUCER_ID, kind="request", versions=(0, 6), flexible_from=2)
class InitProducerIdRequest:
    transactional_id: Str | None
    transaction_timeout_ms: Int32
    producer_id: Int64 = since(3, default=-1)
    producer_epoch: Int16 = since(3, default=-1)
    enable2_pc: Bool = since(6, default=False)
    keep_prepared_txn: Bool = since(6, default=False)


@message(api_key=ApiKey.INIT_PRODUCER_ID, kind="response", versions=(0, 6), flexible_from=2)
class InitProducerIdResponse:
    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64 = field(default=-1)
    producer_epoch: Int16
    ongoing_txn_producer_id: Int64 = since(6, default=-1)
    ongoing_txn_producer_epoch: Int16 = since(6, default=-1)
