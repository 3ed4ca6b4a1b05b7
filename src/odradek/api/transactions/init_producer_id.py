"""InitProducerId, versions 0 to 6.

Assigns an id and an epoch to a producer. With a transactional id, the previous producer with this id is fenced, and its
open transaction is aborted.

- v3: the producer sends its previous id and epoch, to continue after an error (KIP-360).
- v4: a fenced producer gets PRODUCER_FENCED (KIP-588).
- v6: two-phase commit (KIP-939). With enable2Pc, transactions do not time out. With keepPreparedTxn, an open
  transaction is kept, and the response names it.

Difference from Apache Kafka: the response waits while an open transaction is aborted. Kafka returns
CONCURRENT_TRANSACTIONS, and the producer has to retry.
"""

from __future__ import annotations

from odradek.api.request.call import Call
from odradek.base.errors import ErrorCode, Refused, fenced_as
from odradek.base.units import SECOND_MS, ProducerEpoch, ProducerId
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.kernel.access import Operation, ResourceType
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.transactions.beginning import InitProducerId, InitProducerIdResult
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

FENCED_SINCE = 4
WAIT_MS_MAX = 15 * SECOND_MS
NO_PRODUCER = -1


def handle(call: Call, body: InitProducerIdRequest) -> InitProducerIdResponse | ParkedRequest[InitProducerIdResponse]:
    _check_allowed(call, body)
    if body.transactional_id == "" or (body.producer_id == NO_PRODUCER) != (body.producer_epoch == NO_PRODUCER):
        raise Refused(ErrorCode.INVALID_REQUEST)
    deadline = call.now.steady + WAIT_MS_MAX
    transactions = call.broker.transactions
    if body.transactional_id is None:
        return transactions.new_producer().then(
            lambda result: _answer(call, result or InitProducerIdResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)),
            deadline,
        )
    _check(call, body)
    promise = transactions.init_producer_id(_request(body, body.transactional_id), call.now)
    return promise.then(
        lambda result: _answer(call, result or InitProducerIdResult(ErrorCode.CONCURRENT_TRANSACTIONS)), deadline
    )


def refuse(call: Call, body: InitProducerIdRequest, code: ErrorCode) -> InitProducerIdResponse:
    return _answer(call, InitProducerIdResult(code))


def _check_allowed(call: Call, body: InitProducerIdRequest) -> None:
    """Raise Refused unless the client may get a producer id.

    The right to write to any topic includes this right (KIP-679).
    """
    if body.transactional_id is not None:
        call.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
        if body.enable2_pc:
            call.check(Operation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
    elif not call.rights.allows_any(Operation.WRITE, ResourceType.TOPIC):
        call.check(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)


def _check(call: Call, body: InitProducerIdRequest) -> None:
    transactions = call.broker.transactions
    if (body.enable2_pc or body.keep_prepared_txn) and not transactions.allows_two_phases:
        text = "transaction.two.phase.commit.enable is false"
        raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text)
    if not body.enable2_pc and not 0 < body.transaction_timeout_ms <= transactions.timeout_ms_max:
        raise Refused(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"timeout {body.transaction_timeout_ms} ms is out of range: 1 to {transactions.timeout_ms_max} ms",
        )


def _request(body: InitProducerIdRequest, transactional_id: str) -> InitProducerId:
    producer = ProducerIdAndEpoch(ProducerId(body.producer_id), ProducerEpoch(body.producer_epoch))
    return InitProducerId(
        transactional_id,
        body.transaction_timeout_ms,
        None if producer.id == NO_PRODUCER else producer,
        has_two_phases=body.enable2_pc,
        keeps_prepared=body.keep_prepared_txn,
    )


def _answer(call: Call, result: InitProducerIdResult) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0,
        error_code=fenced_as(result.error, call.version, FENCED_SINCE),
        producer_id=result.producer.id,
        producer_epoch=result.producer.epoch,
        ongoing_txn_producer_id=result.ongoing.id,
        ongoing_txn_producer_epoch=result.ongoing.epoch,
    )
