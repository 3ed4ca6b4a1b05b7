"""EndTxn, versions 0 to 5.

Commits or aborts a transaction.

- v2: a fenced producer gets PRODUCER_FENCED (KIP-588).
- v5: each transaction has an epoch of its own, and the response contains the epoch of the next one (KIP-890).

Difference from Apache Kafka: the response is sent when every partition has its marker, not as soon as the decision is
safe. The next transaction therefore need not wait.
"""

from __future__ import annotations

from odradek.api.request.call import Call
from odradek.base.errors import ErrorCode, fenced_as
from odradek.base.units import SECOND_MS, ProducerEpoch, ProducerId
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.kernel.access import Operation, ResourceType
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.transactions.ending import EndTxn, EndTxnResult
from odradek.core.transactions.transaction_rules import EPOCH_PER_TRANSACTION
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

FENCED_SINCE = 2
EPOCHS_SINCE = 5
WITHOUT_EPOCHS = 0
WAIT_MS_MAX = 10 * SECOND_MS


def handle(call: Call, body: EndTxnRequest) -> EndTxnResponse | ParkedRequest[EndTxnResponse]:
    call.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
    version = EPOCH_PER_TRANSACTION if call.version >= EPOCHS_SINCE else WITHOUT_EPOCHS
    producer = ProducerIdAndEpoch(ProducerId(body.producer_id), ProducerEpoch(body.producer_epoch))
    end = EndTxn(body.transactional_id, producer, version, body.committed)
    deadline = call.now.steady + WAIT_MS_MAX
    promise = call.broker.transactions.end_transaction(end, call.now)
    # A client that retries after the deadline learns how the transaction ended.
    return promise.then(
        lambda result: _answer(call, result or EndTxnResult(ErrorCode.CONCURRENT_TRANSACTIONS)), deadline
    )


def refuse(call: Call, body: EndTxnRequest, code: ErrorCode) -> EndTxnResponse:
    return _answer(call, EndTxnResult(code))


def _answer(call: Call, result: EndTxnResult) -> EndTxnResponse:
    return EndTxnResponse(
        throttle_time_ms=0,
        error_code=fenced_as(result.error, call.version, FENCED_SINCE),
        producer_id=result.producer.id,
        producer_epoch=result.producer.epoch,
    )
