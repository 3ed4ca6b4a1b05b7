"""Partitions of a transactional write: the transaction's coordinator verifies or adds them.

A request waits for the coordinator's answer if verification is required. As in Apache Kafka, later requests of its
connection wait behind it.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import Any

from odradek.api.produce.produce_admission import transactional_partitions
from odradek.api.request.call import Call
from odradek.api.request.outcome import PAUSE, Wait
from odradek.api.request.sliced_response import nothing
from odradek.base.errors import Refused
from odradek.base.units import ProducerEpoch, ProducerId
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.partition import ingress
from odradek.core.partition.leading import Leading
from odradek.core.transactions.additions import TransactionQuery
from odradek.core.transactions.produce_verification import PRODUCE_ADDS_SINCE
from odradek.core.transactions.transaction_rules import EPOCH_PER_TRANSACTION
from odradek.core.transactions.verification import Verification
from odradek.record.record_batch import BatchHeader
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest


def must_verify_first(call: Call, body: ProduceRequest, transactional: list[BatchHeader]) -> bool:
    """Return whether the coordinator must answer before the request's transactional batches are staged."""
    transactions, transactional_id = call.broker.transactions, body.transactional_id
    if not transactional_id:
        return False
    query = _query(call, body, transactional)
    if query is None or not transactions.verifies(adds=query.adds):
        return False
    return any(
        not transactions.is_sure(leading, transactional_id, query.producer)
        and transactions.must_verify_first(leading, transactional_id)
        for leading, _ in transactional_partitions(call, body)
    )


def verify_all(
    call: Call, body: ProduceRequest, transactional: list[BatchHeader]
) -> Generator[Wait, Any, Verification | None]:
    """Verify all partitions of a Produce request at once and wait for the answer.

    Return None if there is nothing to verify.
    """
    query = _query(call, body, transactional)
    if query is None or not must_verify_first(call, body, transactional):
        return None
    verification = Verification(query)
    for leading, part in transactional_partitions(call, body):
        with suppress(Refused):  # The error occurs again, and is answered, when the batch is staged.
            _add_partition(call, leading, part, verification)
        yield PAUSE
    yield from verify(call, verification, retries=query.adds)
    return verification


def _add_partition(call: Call, leading: Leading, part: PartitionProduceData, verification: Verification) -> None:
    """Add a partition to the verification if its batch could be written there now. Raise Refused."""
    query = verification.query
    batch = ingress.checked(leading.partition, part.records, call.now)
    is_sure = call.broker.transactions.is_sure
    if not batch.has_producer_id or is_sure(leading, query.transactional_id, query.producer):
        return
    leading.check_producer_epoch(batch)
    if not leading.has_open_transaction(batch.producer_id, batch.producer_epoch):
        leading.await_first(batch, call.now.wall, from_zero=query.adds)
    verification.add(leading)


def verify(call: Call, verification: Verification, *, retries: bool) -> Generator[Wait, Any, None]:
    """Send the query to the coordinator and wait until it is answered or can no longer be answered."""
    if not verification.partitions:
        return
    additions = call.broker.transactions.additions
    promise = additions.add_or_verify(verification.query, list(verification.partitions), call.now, retries=retries)
    if promise.value is None:
        yield ParkedRequest(promise, call.now.steady + additions.timeout_ms, nothing)
    verification.answered(promise.value)
    call.broker.transactions.joins.confirmed(verification.query.transactional_id, verification.confirmed)


def _query(call: Call, body: ProduceRequest, transactional: list[BatchHeader]) -> TransactionQuery | None:
    header = next((batch for batch in transactional if batch.has_producer_id), None)
    if header is None or body.transactional_id is None:
        return None
    producer = ProducerIdAndEpoch(ProducerId(header.producer_id), ProducerEpoch(header.producer_epoch))
    return TransactionQuery(body.transactional_id, producer, adds=call.version >= PRODUCE_ADDS_SINCE)


def join_all(call: Call, body: ProduceRequest, transactional: list[BatchHeader]) -> None:
    """Let the coordinator write one record for all partitions that the request adds to its transaction.

    This version of the request must add partitions. An error here is ignored: it occurs again, and is answered, when
    each batch joins (produce_staging.join_transaction).
    """
    query = _query(call, body, transactional) if len(transactional) > 1 else None
    if query is None or not query.adds:
        return
    transactions, producer = call.broker.transactions, query.producer
    joining = [
        leading.name
        for leading, _ in transactional_partitions(call, body)
        if not transactions.has_joined(leading, producer)
    ]
    if len(joining) > 1:
        with suppress(Refused):
            transactions.add_partitions(query.transactional_id, producer, joining, EPOCH_PER_TRANSACTION, call.now)
