"""A transactional id and its transaction, as a value, with its state transitions.

    Empty ──> Ongoing ──> PrepareCommit ──> CompleteCommit ──> Ongoing, Empty
                     └──> PrepareAbort  ──> CompleteAbort  ──> Ongoing, Empty

PrepareCommit and PrepareAbort are decisions. Once a decision is safe in the log, every partition of the transaction
gets its marker, no matter how often the broker stops. Then the transaction is complete.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from odradek.base.units import INT16_MAX, INT32_MAX, ProducerEpoch, ProducerId, TimestampMs, TopicName, TopicPartition
from odradek.core.coordinators.state_log import ProducerIdAndEpoch, StateRecord
from odradek.record.internal.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue

NO_ID, NO_EPOCH, NO_TIME = ProducerId(-1), ProducerEpoch(-1), TimestampMs(-1)
LAST_EPOCH = INT16_MAX - 1  # The greatest epoch a client ever sees; the next one is for the last marker.
ALL_SINCE = 1  # The version of a record with all fields of a transaction.
NEVER_MS = INT32_MAX  # The timeout of a producer that prepared elsewhere and may be away for long (KIP-939).


class TransactionState(IntEnum):
    """The states, with their numbers in the log and names in DescribeTransactions."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        return self.name.title().replace("_", "")


DECIDED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
COMPLETE_AFTER = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


class Transaction(NamedTuple):
    """One transaction.

    `producer_id` and `epoch` belong to the data and the markers. `version` is 2 if each transaction has its own epoch
    (KIP-890). `next_*` are the client's next values: a new id after the last epoch, or both if a prepared transaction
    is kept for a restarted producer (KIP-939). Times are wall clock, in ms.
    """

    id: str
    producer_id: ProducerId
    epoch: ProducerEpoch = NO_EPOCH
    timeout_ms: int = 0
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started: TimestampMs = NO_TIME
    updated: TimestampMs = NO_TIME
    version: int = 0
    previous_id: ProducerId = NO_ID
    next_id: ProducerId = NO_ID
    next_epoch: ProducerEpoch = NO_EPOCH
    last_epoch: ProducerEpoch = NO_EPOCH  # The previous epoch; not kept in the log.

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.epoch)

    @property
    def client(self) -> ProducerIdAndEpoch:
        """Return the producer id and epoch that the client has to send."""
        return ProducerIdAndEpoch(self.next_id, self.next_epoch) if self.is_kept else self.producer

    @property
    def is_kept(self) -> bool:
        """Return whether it is prepared and waits for the decision of a restarted producer (KIP-939)."""
        return self.next_epoch >= 0

    @property
    def is_exhausted(self) -> bool:
        """Return whether the client's producer id has no next epoch."""
        return self.client.epoch >= LAST_EPOCH

    @property
    def is_past_last_epoch(self) -> bool:
        """Return whether the client's epoch is one that no client may use: an abort by the coordinator took it."""
        return self.client.epoch > LAST_EPOCH

    @property
    def is_decided(self) -> bool:
        return self.state in DECIDED

    @property
    def is_timed(self) -> bool:
        return self.state is TransactionState.ONGOING and self.timeout_ms != NEVER_MS

    def is_ahead(self, now: TimestampMs) -> bool:
        """Return whether it starts in the future: a clock was set back, or another coordinator's was ahead."""
        return self.is_timed and self.started > now

    def is_overdue(self, now: TimestampMs) -> bool:
        return self.is_timed and self.started + self.timeout_ms < now


def to_record(transaction: Transaction, version: int) -> StateRecord:
    """Return the record of the transaction, for a value of this version."""
    assert transaction.partitions == frozenset() or transaction.state is not TransactionState.EMPTY
    assert transaction.epoch <= INT16_MAX and transaction.next_epoch <= INT16_MAX
    if version < ALL_SINCE:  # These fields are unused then: no transaction has its own epoch or is prepared.
        transaction = transaction._replace(version=0, previous_id=NO_ID, next_id=NO_ID, next_epoch=NO_EPOCH)
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        by_topic.setdefault(topic, []).append(partition)
    partitions = [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in by_topic.items()]
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_id,
        next_producer_id=transaction.next_id,
        producer_epoch=transaction.epoch,
        next_producer_epoch=transaction.next_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None if transaction.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=transaction.updated,
        transaction_start_timestamp_ms=transaction.started,
        client_transaction_version=transaction.version,
    )
    return StateRecord(key_of(transaction.id), value)


def key_of(transactional_id: str) -> TransactionLogKey:
    return TransactionLogKey(transactional_id=transactional_id)


def from_record(key: TransactionLogKey, value: TransactionLogValue) -> Transaction:
    """Return the transaction of a record, or raise ValueError for an unknown status."""
    partitions = frozenset(
        TopicPartition(TopicName(topic.topic), partition)
        for topic in value.transaction_partitions or ()
        for partition in topic.partition_ids
    )
    return Transaction(
        id=key.transactional_id,
        producer_id=ProducerId(value.producer_id),
        epoch=ProducerEpoch(value.producer_epoch),
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions=partitions,
        started=TimestampMs(value.transaction_start_timestamp_ms),
        updated=TimestampMs(value.transaction_last_update_timestamp_ms),
        version=value.client_transaction_version,
        previous_id=ProducerId(value.previous_producer_id),
        next_id=ProducerId(value.next_producer_id),
        next_epoch=ProducerEpoch(value.next_producer_epoch),
    )
