"""Admission of Produce batches by the transaction coordinator (KIP-890), with codes by version."""

from __future__ import annotations

from odradek.base.errors import ErrorCode, Refused
from odradek.core.coordinators.durable import PendingWrite
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.kernel.moment import Moment
from odradek.core.partition.leading import Leading
from odradek.core.transactions.transaction_coordinator import TransactionCoordinator
from odradek.core.transactions.verification import Verification
from odradek.record.record_batch import Batch

PRODUCE_KNOWS_ABORTABLE_SINCE = 11
PRODUCE_ADDS_SINCE = 12

# Older clients do not retry the coordinator's own errors, but retry the code that replaces them here.
_RETRIED = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
        # The coordinator does not know another partition of the request, perhaps because of stale metadata.
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)


def admit_batch(  # noqa: PLR0917
    coordinator: TransactionCoordinator,
    leading: Leading,
    batch: Batch,
    transactional_id: str,
    version: int,
    now: Moment,
) -> PendingWrite | None:
    """Admit a batch to the partition; since Produce v12 the write itself adds the partition.

    Returns the coordinator's write that must be safe before the batch is acknowledged, or None. Raises Refused.
    """
    producer, adds = ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch), version >= PRODUCE_ADDS_SINCE
    try:
        return coordinator.admit(leading, producer, transactional_id, now, adds=adds)
    except Refused as refused:
        raise to_produce_error(refused, version) from refused


def admit_verified(verification: Verification, leading: Leading, version: int) -> None:
    """Admit a batch by the earlier answer of the coordinator, or raise Refused."""
    try:
        verification.check(leading)
    except Refused as refused:
        raise to_produce_error(refused, version) from refused


def to_produce_error(refused: Refused, version: int) -> Refused:
    code = refused.code
    if code is ErrorCode.PRODUCER_FENCED:
        return Refused(ErrorCode.INVALID_PRODUCER_EPOCH, refused.detail)
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < PRODUCE_KNOWS_ABORTABLE_SINCE:
        return Refused(ErrorCode.INVALID_TXN_STATE, refused.detail)
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version >= PRODUCE_ADDS_SINCE:
        return refused
    if code in _RETRIED:
        text = f"failed to verify that the partition is part of the transaction: {refused}"
        return Refused(ErrorCode.NOT_ENOUGH_REPLICAS, text)
    return refused
