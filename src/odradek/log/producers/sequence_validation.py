"""Validation of a batch's producer epoch and sequence: the rules of Apache Kafka 4.3.0, in its order.

│ one of the last five again, same epoch and sequences  │ not written, answered with its place                      │
│ an epoch below the known one                          │ INVALID_PRODUCER_EPOCH                                    │
│ the first sequence of a transaction is still to come  │ OUT_OF_ORDER_SEQUENCE_NUMBER                              │
│ a new epoch that does not begin with sequence 0       │ OUT_OF_ORDER_SEQUENCE_NUMBER                              │
│ not the sequence after the last                       │ OUT_OF_ORDER_SEQUENCE_NUMBER, also for a sixth-last batch │
│ outside of its producer's open transaction            │ INVALID_TXN_STATE                                         │
│ from a producer unknown here                          │ any sequence: its earlier batches may have been deleted   │

Coordinators write without sequences; then only the epoch is checked.
"""

from __future__ import annotations

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import Offset, ProducerEpoch, ProducerId
from odradek.log.producers.producer_state import (
    NO_PRODUCER_EPOCH,
    SEQUENCE_MASK,
    ProducerStateEntry,
    VerificationStateEntry,
)
from odradek.record.end_transaction_marker import EndMarker
from odradek.record.record_batch import BatchHeader

# From this transaction version on, a marker's epoch is above that of the records it ends (KIP-890).
EPOCH_BUMPED_SINCE = 2


def check(
    known: ProducerStateEntry,
    batch: BatchHeader,
    offset: Offset,
    *,
    awaited: VerificationStateEntry | None,
    checks_sequence: bool,
) -> None:
    """Raise Refused for a batch that must not be written at `offset`."""
    assert batch.producer_id == known.id, "a batch is checked against the state of its own producer"
    check_epoch(known, batch.producer_epoch, offset)
    if checks_sequence:
        if awaited is not None:
            _check_first(known, batch, offset, awaited)
        _check_sequence(known, batch, offset)
    if known.first_offset >= 0 and not batch.is_transactional:
        text = f"non-transactional batch at offset {offset} of producer {known.id}, which has an open transaction"
        raise Refused(ErrorCode.INVALID_TXN_STATE, text)


def check_epoch(known: ProducerStateEntry, epoch: ProducerEpoch, offset: Offset) -> None:
    """Raise Refused(INVALID_PRODUCER_EPOCH) for an epoch below the known one."""
    if epoch < known.epoch:
        text = (
            f"epoch {epoch} of producer {known.id} at offset {offset} is smaller than the last seen epoch {known.epoch}"
        )
        raise Refused(ErrorCode.INVALID_PRODUCER_EPOCH, text)


def _check_first(
    known: ProducerStateEntry, batch: BatchHeader, offset: Offset, awaited: VerificationStateEntry
) -> None:
    if awaited.from_zero and batch.base_sequence and not known.batches:
        raise _out_of_order(known.id, offset, batch.base_sequence, "a transaction begins with sequence 0")
    if batch.base_sequence > awaited.sequence:
        raise _out_of_order(known.id, offset, batch.base_sequence, f"sequence {awaited.sequence} was rejected before")


def _check_sequence(known: ProducerStateEntry, batch: BatchHeader, offset: Offset) -> None:
    sequence, last = batch.base_sequence, known.last_sequence
    if known.epoch == NO_PRODUCER_EPOCH:
        return
    if batch.producer_epoch != known.epoch:
        if sequence:
            detail = f"new epoch {batch.producer_epoch} begins with sequence 0"
            raise _out_of_order(known.id, offset, sequence, detail)
    elif sequence != (last + 1) & SEQUENCE_MASK:
        raise _out_of_order(known.id, offset, sequence, f"{last} (current end sequence number)")


def _out_of_order(producer_id: ProducerId, offset: Offset, sequence: int, detail: str) -> Refused:
    text = (
        f"out of order sequence number for producer {producer_id} at offset {offset}: "
        f"{sequence} (incoming seq. number), {detail}"
    )
    return Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text)


def check_marker(known: ProducerStateEntry, epoch: ProducerEpoch, marker: EndMarker, transaction_version: int) -> None:
    """Raise Refused for a marker of an older producer epoch or coordinator epoch.

    If each end of a transaction bumps the epoch, a marker with the known epoch belongs to a transaction before the
    open one.  Without an open transaction it repeats the last marker after a coordinator's crash, and is written
    again.
    """
    is_repeated = epoch == known.epoch and not known.has_open_transaction
    if epoch < known.epoch or (transaction_version >= EPOCH_BUMPED_SINCE and epoch == known.epoch and not is_repeated):
        text = f"marker epoch {epoch} of producer {known.id} is smaller than the last seen epoch {known.epoch}"
        raise Refused(ErrorCode.INVALID_PRODUCER_EPOCH, text)
    if marker.coordinator_epoch < known.coordinator_epoch:
        text = f"coordinator epoch {marker.coordinator_epoch} is older than the last seen {known.coordinator_epoch}"
        raise Refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED, text)
