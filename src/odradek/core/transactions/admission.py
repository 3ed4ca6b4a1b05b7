"""The error of a batch that is not admitted to a transaction (KIP-890), by the version of Produce."""

from __future__ import annotations

from odradek.base.errors import ErrorCode, Refused

PRODUCE_KNOWS_ABORTABLE_SINCE = 11
PRODUCE_ADDS_SINCE = 12

# Older clients do not try again for the coordinator's own errors; for the one that stands for them here they do.
_TRIED_AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


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
