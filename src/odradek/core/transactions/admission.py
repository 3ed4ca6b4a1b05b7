"""How Produce asks the transaction coordinator for its batches (KIP-890): what it is told depends on its version."""

from __future__ import annotations

from odradek.base.errors import ErrorCode, Refused
from odradek.core.coordinators.durable import Written
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.kernel.moment import Moment
from odradek.core.partition.leading import Leading
from odradek.core.transactions.transaction_coordinator import TransactionCoordinator
from odradek.core.transactions.verification import Verification
from odradek.record.record_batch import Batch

PRODUCE_KNOWS_ABORTABLE_SINCE = 11
PRODUCE_ADDS_SINCE = 12

# Older clients do not try again for the coordinator's own errors; for the one that stands for them here they do.
_TRIED_AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
        # Another partition of the request is not known to the coordinator, which may not have heard of it yet.
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
) -> Written | None:
    """Asks whether a batch may enter the partition; since version 12 of Produce the partition joins by being written.

    Returns the coordinator's write that has to be safe before the batch is acknowledged, None if there is none.
    Raises Refused.
    """
    producer, adds = ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch), version >= PRODUCE_ADDS_SINCE
    try:
        return coordinator.admit(leading, producer, transactional_id, now, adds=adds)
    except Refused as refused:
        raise as_produce_is_told(refused, version) from refused


def admit_verified(verification: Verification, leading: Leading, version: int) -> None:
    """Admits a batch by the answer of the coordinator, which was asked first.  Raises Refused."""
    try:
        verification.check(leading)
    except Refused as refused:
        raise as_produce_is_told(refused, version) from refused


def as_produce_is_told(refused: Refused, version: int) -> Refused:
    code = refused.code
    if code is ErrorCode.PRODUCER_FENCED:
        return Refused(ErrorCode.INVALID_PRODUCER_EPOCH, refused.detail)
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < PRODUCE_KNOWS_ABORTABLE_SINCE:
        return Refused(ErrorCode.INVALID_TXN_STATE, refused.detail)
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version >= PRODUCE_ADDS_SINCE:
        return refused
    if code in _TRIED_AGAIN:
        text = f"the partition can't be seen to be part of the transaction: {refused}"
        return Refused(ErrorCode.NOT_ENOUGH_REPLICAS, text)
    return refused
