"""The rules of transactions: each function returns the new transaction or refuses, and writes nothing.

Sources: KIP-98, KIP-360 (recovery from errors), KIP-447, KIP-890 (an epoch for each transaction, called version 2
here), KIP-939 (prepared transactions).
"""

from __future__ import annotations

from collections.abc import Collection

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import INT16_MAX, ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.transactions.transaction_states import (
    COMPLETE_AFTER,
    LAST_EPOCH,
    NO_EPOCH,
    NO_ID,
    NO_TIME,
    Transaction,
    TransactionState,
)

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
EPOCH_PER_TRANSACTION = 2


class RepeatedEndTxn(Exception):
    """Raised when EndTxn repeats a decision already carried out, which is answered as before."""


# ------------------------------------------------------------------ InitProducerId


def init_producer_id(
    current: Transaction, expected: ProducerIdAndEpoch | None, timeout_ms: int, new_id: ProducerId, now: TimestampMs
) -> Transaction:
    """Apply InitProducerId without an open transaction: a new epoch, or the current one on a retry.

    `expected` is the identity that the producer claims (KIP-360). `new_id` is used if epochs are exhausted. Raises
    Refused(PRODUCER_FENCED).
    """
    assert current.state is not ONGOING and not current.is_decided
    check_expected(current, expected)
    fresh = current._replace(
        state=EMPTY, timeout_ms=timeout_ms, partitions=frozenset(), started=NO_TIME, updated=now, next_id=NO_ID
    )
    if current.is_exhausted and (
        expected is None or expected.epoch == current.epoch or _was_fenced_at_last(current, expected)
    ):
        last = NO_EPOCH if expected is None else expected.epoch
        return fresh._replace(
            producer_id=new_id, previous_id=current.producer_id, epoch=ProducerEpoch(0), last_epoch=last
        )
    if expected is None:
        return fresh._replace(epoch=_next(current.epoch), last_epoch=NO_EPOCH)
    if current.epoch in (NO_EPOCH, expected.epoch):
        return fresh._replace(epoch=_next(current.epoch), last_epoch=current.epoch)
    if expected.epoch == current.last_epoch:
        return fresh
    raise _fenced(current, expected)


def _was_fenced_at_last(current: Transaction, expected: ProducerIdAndEpoch) -> bool:
    """Return whether an abort not requested by the producer used the last epoch, which no client gets."""
    return current.epoch > LAST_EPOCH and expected.epoch == current.last_epoch


def check_expected(current: Transaction, expected: ProducerIdAndEpoch | None) -> None:
    """Raise Refused(PRODUCER_FENCED) if another producer has the id now."""
    if expected is None or current.epoch == NO_EPOCH or expected.id == current.client.id:
        return
    if expected.id == current.previous_id and expected.epoch >= LAST_EPOCH:
        return  # A retry by a producer that received a new id the first time.
    raise _fenced(current, expected)


def keep_prepared(
    current: Transaction, expected: ProducerIdAndEpoch | None, new_id: ProducerId, now: TimestampMs
) -> Transaction:
    """Apply an InitProducerId that keeps a prepared transaction and fences the old producer (KIP-939)."""
    assert current.state is ONGOING
    check_expected(current, expected)
    client = current.client
    if current.is_exhausted:
        return current._replace(next_id=new_id, next_epoch=ProducerEpoch(0), updated=now)
    return current._replace(next_id=client.id, next_epoch=_next(client.epoch), updated=now)


# ------------------------------------------------------------------ writes


def check_producer(current: Transaction, producer: ProducerIdAndEpoch) -> None:
    """Raise Refused if the producer may not write.

    Codes: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
    """
    client = current.client
    if producer.id != client.id:
        raise Refused(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"producer id {producer.id} does not match {client.id} of {current.id}",
        )
    if producer.epoch != client.epoch or current.is_past_last_epoch:
        raise _fenced(current, producer)
    if current.is_decided:
        raise Refused(
            ErrorCode.CONCURRENT_TRANSACTIONS, f"the previous transaction of {current.id} is still completing"
        )


def add_partitions(
    current: Transaction,
    producer: ProducerIdAndEpoch,
    partitions: Collection[TopicPartition],
    version: int,
    now: TimestampMs,
) -> Transaction:
    """Add partitions, the first of which begins the transaction; return `current` itself if all are known.

    Raises Refused as check_producer does.
    """
    check_producer(current, producer)
    if current.is_kept:
        raise Refused(ErrorCode.INVALID_TXN_STATE, f"{current.id} has a prepared transaction: commit or abort it first")
    if current.state is ONGOING and current.partitions.issuperset(partitions):
        return current
    started = current.started if current.state is ONGOING else now
    return current._replace(
        state=ONGOING, partitions=current.partitions.union(partitions), started=started, updated=now, version=version
    )


# ------------------------------------------------------------------ EndTxn


def end_transaction(
    current: Transaction,
    producer: ProducerIdAndEpoch,
    version: int,
    new_id: ProducerId,
    now: TimestampMs,
    *,
    commit: bool,
) -> Transaction:
    """Apply a client's EndTxn; raise RepeatedEndTxn if that decision is already carried out, or Refused."""
    check = _check_end_with_epochs if version >= EPOCH_PER_TRANSACTION else _check_end
    check(current, producer, commit)
    return decided(current, version, new_id, now, commit=commit)


def decided(current: Transaction, version: int, new_id: ProducerId, now: TimestampMs, *, commit: bool) -> Transaction:
    """Return the decided transaction; `new_id` is the producer's next id if epochs are exhausted."""
    state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
    assert current.state is ONGOING or not commit, "only an open transaction is committed"
    assert not current.is_decided, "a decision is final"
    version = _version_of_end(current, version)
    assert new_id != NO_ID or not (current.is_exhausted and (current.is_kept or version >= EPOCH_PER_TRANSACTION))
    decision = current._replace(
        state=state, version=version, updated=now, started=current.started if current.state is ONGOING else now
    )
    if current.is_kept and current.is_exhausted:
        return decision._replace(epoch=_next(current.epoch), next_id=new_id, next_epoch=ProducerEpoch(0))
    if current.is_kept:
        return decision._replace(epoch=_next(current.epoch), next_epoch=_next(current.next_epoch))
    if version < EPOCH_PER_TRANSACTION:
        return decision
    return decision._replace(
        epoch=_next(current.epoch), last_epoch=current.epoch, next_id=new_id if current.is_exhausted else NO_ID
    )


def fenced(current: Transaction, now: TimestampMs) -> Transaction:
    """Abort a transaction without a request of its producer; the higher epoch fences the producer.

    If each transaction has its own epoch, the producer may continue as if it had aborted the transaction.
    """
    assert current.state is ONGOING
    version = _version_of_end(current, current.version)
    has_epochs = version >= EPOCH_PER_TRANSACTION
    return current._replace(
        state=TransactionState.PREPARE_ABORT,
        version=version,
        epoch=_next(current.epoch),
        last_epoch=current.epoch if has_epochs else NO_EPOCH,
        next_id=current.next_id if current.is_kept else NO_ID,
        next_epoch=_next(current.next_epoch) if current.is_kept else NO_EPOCH,
        updated=now,
    )


def renewed(current: Transaction, new_id: ProducerId, now: TimestampMs) -> Transaction:
    """Give a new producer id to a producer that learns of an abort which took the last epoch (KIP-890)."""
    assert current.is_past_last_epoch, "a producer with another epoch keeps its id"
    assert current.state is TransactionState.COMPLETE_COMMIT or current.state is TransactionState.COMPLETE_ABORT
    assert new_id != NO_ID
    return current._replace(
        producer_id=new_id,
        previous_id=current.client.id,
        epoch=ProducerEpoch(0),
        last_epoch=ProducerEpoch(LAST_EPOCH),
        next_id=NO_ID,
        next_epoch=NO_EPOCH,
        updated=now,
    )


def _version_of_end(current: Transaction, version: int) -> int:
    """Return the version of the end of a transaction, below 2 if no epoch is left for its markers.

    Only a log from elsewhere contains such a transaction.
    """
    return min(version, EPOCH_PER_TRANSACTION - 1) if current.epoch > LAST_EPOCH else version


def completed(current: Transaction, now: TimestampMs) -> Transaction:
    """Return the transaction once every partition has its marker."""
    done = current._replace(
        state=COMPLETE_AFTER[current.state], partitions=frozenset(), updated=now, next_id=NO_ID, next_epoch=NO_EPOCH
    )
    if current.is_kept:
        return done._replace(producer_id=current.next_id, epoch=current.next_epoch, previous_id=current.producer_id)
    if current.next_id != NO_ID:
        return done._replace(producer_id=current.next_id, epoch=ProducerEpoch(0), previous_id=current.producer_id)
    return done


def _check_end(current: Transaction, producer: ProducerIdAndEpoch, commit: bool) -> None:
    """Check an EndTxn of version 0 or 1, where transactions share an epoch."""
    client = current.client
    if producer.id != client.id:
        raise Refused(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"producer id {producer.id} does not match {client.id} of {current.id}",
        )
    if producer.epoch != client.epoch or current.is_past_last_epoch:
        raise _fenced(current, producer)
    if current.state is ONGOING:
        return
    _refuse_or_retried(current, commit)


def _check_end_with_epochs(current: Transaction, producer: ProducerIdAndEpoch, commit: bool) -> None:
    """Check an EndTxn where each transaction has its own epoch; the previous epoch means a retry."""
    client = current.client
    has_new_id = producer.id == current.previous_id != NO_ID and producer.epoch >= LAST_EPOCH and client.epoch == 0
    if producer.id != client.id and not has_new_id:
        raise Refused(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"producer id {producer.id} does not match {client.id} of {current.id}",
        )
    is_current = producer.epoch == client.epoch and not current.is_past_last_epoch
    is_retry = has_new_id or producer.epoch + 1 == client.epoch
    if current.state is ONGOING or current.state is EMPTY:
        is_valid = is_current
    else:
        is_valid = is_retry or (is_current and not current.is_decided)
    if not is_valid:
        raise _fenced(current, producer)
    if current.state is ONGOING:
        return
    if is_retry and current.state is not EMPTY:
        _refuse_or_retried(current, commit)
    if commit:
        raise _wrong_state(current, "commit")
    # An abort without partitions: the epoch still rises, and late writes are fenced.


def _refuse_or_retried(current: Transaction, commit: bool) -> None:
    prepared = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
    if current.state is prepared:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, f"the transaction of {current.id} is still completing")
    if current.state is COMPLETE_AFTER[prepared]:
        raise RepeatedEndTxn
    raise _wrong_state(current, "commit" if commit else "abort")


def _wrong_state(current: Transaction, what: str) -> Refused:
    return Refused(
        ErrorCode.INVALID_TXN_STATE, f"cannot {what} the transaction of {current.id} in state {current.state.title}"
    )


def _fenced(current: Transaction, producer: ProducerIdAndEpoch) -> Refused:
    text = (
        f"producer {producer.id} in epoch {producer.epoch} is fenced: "
        f"the epoch of {current.id} is {current.client.epoch}"
    )
    return Refused(ErrorCode.PRODUCER_FENCED, text)


def _next(epoch: ProducerEpoch) -> ProducerEpoch:
    return ProducerEpoch(min(epoch + 1, INT16_MAX))  # No transaction needs more, except in a log from elsewhere.
