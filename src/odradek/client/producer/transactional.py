"""Transactions: records to many partitions, and the offsets of groups, that count together or not at all.

    producer = TransactionalProducer(cluster, "billing-1")   # Fences earlier producers of this transactional id.
    with producer.transaction():                             # Commits; aborts when an exception is on its way.
        producer.send("invoices", b"...")
        producer.send_offsets("billing", {partition: Committed(offset)}, membership)

Two-phase commit (KIP-939), for whoever keeps a log of decisions elsewhere:

    producer = TransactionalProducer(cluster, "sink-1", two_phase=True, keep_prepared=True)
    producer.complete(decided)         # What an earlier process had prepared: committed if it is the one decided on.
    producer.begin(); producer.send(...)
    decided = producer.prepare()       # Nothing can expire or abort it now but this transactional id.
    ...                                # Write `decided` down: that is the decision.
    producer.commit()

With transaction.version 2 (KIP-890) partitions join a transaction by being written to, and each transaction has an
epoch of its own; before, partitions are announced, and the epoch changes only after an error.  Both are spoken here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import TypeVar

from odradek.base.errors import ErrorCode
from odradek.base.units import MINUTE_MS, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_errors import ClientError, ErrorAnswer
from odradek.client.consumer.group_offsets import NOBODY, Committed, Membership
from odradek.client.producer.idempotence import Buffer, Identity
from odradek.client.producer.producer import Producer
from odradek.client.producer.transaction_requests import TransactionRequests, TransactionSequences
from odradek.record.compression import Codec

T = TypeVar("T")

TRANSACTION_TIMEOUT_MS = 1 * MINUTE_MS

# Another producer has taken over, or only the transaction's time was over (KIP-588): InitProducerId tells which.
EPOCH_IS_OLD = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
# The coordinator has forgotten a transactional id that was idle for long: there is nothing left to abort.
ID_IS_FORGOTTEN = frozenset({ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID})


class State(Enum):
    """The state of a transactional producer, which says which calls it takes."""

    READY = "ready"
    OPEN = "in a transaction"
    FAILED = "in a transaction that has to be aborted"
    PREPARED = "in a prepared transaction"
    UNANSWERED = "in a transaction whose commit was not answered"
    FENCED = "fenced by another producer"
    WORN_OUT = "at its end after an error, on a broker older than Kafka 2.5: a new producer may go on"


MAY_COMMIT = (State.OPEN, State.PREPARED, State.UNANSWERED)
MAY_ABORT = (State.OPEN, State.FAILED, State.PREPARED)


class WrongState(ClientError):
    """Raised for a call that this state does not take: a mistake of the caller."""


class TransactionalProducer:
    """One transactional id.  Not thread-safe.  After a ClientError within a transaction only abort() leads on."""

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        two_phase: bool = False,
        keep_prepared: bool = False,
    ) -> None:
        """Waits for a transaction of an earlier producer to be aborted; with keep_prepared it is kept, see `prepared`.

        timeout_ms: when the coordinator aborts a transaction by itself; with two_phase it never does.
        Raises ErrorAnswer: INVALID_TRANSACTION_TIMEOUT, TRANSACTIONAL_ID_AUTHORIZATION_FAILED; Unsupported for
        two_phase where the broker does not have it.
        """
        self.prepared: Identity | None = None
        self._requests = TransactionRequests(cluster, transactional_id, timeout_ms, two_phase=two_phase)
        self._sequences = TransactionSequences(self._requests)
        self._producer = Producer(cluster, codec=codec, level=level, sequences=self._sequences)
        ongoing = self._requests.init(keep_prepared=keep_prepared)
        self._sequences.restart(self._requests.identity)
        self._state = State.READY
        if ongoing is not None:
            self.prepared, self._state = ongoing, State.PREPARED

    @property
    def state(self) -> State:
        return self._state

    @property
    def identity(self) -> Identity:
        """The producer id and epoch of the transaction, or of the next one."""
        return self._requests.identity

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """begin(), then commit(); or abort(), when an exception is on its way.  What is prepared is not aborted: the
        decision may be written down already, see complete().
        """
        self.begin()
        try:
            yield
            self.commit()
        except BaseException:
            if self._state in MAY_ABORT and self.prepared is None:
                self.abort()
            raise

    def begin(self) -> None:
        self._expect(State.READY)
        self._state = State.OPEN

    def send(
        self,
        topic: str,
        value: Buffer | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> None:
        """As Producer.send()."""
        self._expect(State.OPEN)
        try:
            self._producer.send(topic, value, key=key, headers=headers, timestamp=timestamp, partition=partition)
        except BaseException:
            self._state = State.FAILED
            raise

    def send_batch(self, partition: TopicPartition, batch: Buffer, records: int) -> None:
        """As Producer.send_batch()."""
        self._within(lambda: self._producer.send_batch(partition, batch, records))

    def flush(self) -> None:
        """Return when everything sent so far is written, though not committed."""
        self._within(self._producer.flush)

    def partitions(self, topic: str) -> int:
        return self._producer.partitions(topic)

    def send_offsets(
        self, group: str, offsets: Mapping[TopicPartition, Committed], membership: Membership = NOBODY
    ) -> None:
        """Commit a group's offsets with the transaction; as a member of it, so that a member it lost is fenced
        (KIP-447).
        """
        self._within(lambda: self._requests.commit_offsets(group, offsets, membership))

    def prepare(self) -> Identity:
        """Flushes; returns the transaction's name for the log of decisions; only commit() or abort() may follow."""
        self._within(self._producer.flush)
        self._state = State.PREPARED
        self.prepared = self.identity
        return self.prepared

    def complete(self, decided: Identity | None) -> bool:
        """Commits what is prepared if it is the one decided on, else aborts it.

        True if it was committed; nothing happens when nothing is prepared.
        """
        if self._state is State.READY:
            return False
        self._expect(State.PREPARED)
        is_decided = self.prepared == decided
        self.commit() if is_decided else self.abort()
        return is_decided

    def commit(self) -> None:
        """Flush, and make everything since begin() visible.  Where this raises KafkaUnavailable, nobody knows whether
        it did: call it again.
        """
        self._expect(*MAY_COMMIT)
        if self._state is State.OPEN:
            self._within(self._producer.flush)
        self._state = State.UNANSWERED
        try:
            self._requests.end(commit=True)
        except ErrorAnswer as error:
            self._state = State.UNANSWERED if error.retriable else State.FAILED
            raise
        if self._requests.identity != self._sequences.identity:
            self._sequences.restart(self._requests.identity)
        self._state, self.prepared = State.READY, None

    def abort(self) -> None:
        """Aborts everything since begin().

        Raises PRODUCER_FENCED (INVALID_PRODUCER_EPOCH before Kafka 2.7) if another producer has taken over.
        """
        self._expect(*MAY_ABORT)
        self._state = State.FAILED
        self._producer.discard()
        try:
            self._requests.end(commit=False)
        except ErrorAnswer as error:
            self._end_refused(error)
        else:
            if not self._requests.has_epochs and self._requests.can_renew:
                self._renew()  # What failed may have left a gap in the sequences: begin at 0 under another epoch.
        is_worn_out = self._sequences.has_gap and not self._requests.can_renew
        if self._requests.can_renew:
            self._sequences.restart(self._requests.identity)
        self._state, self.prepared = State.WORN_OUT if is_worn_out else State.READY, None

    # States.

    def _expect(self, *states: State) -> None:
        if self._state not in states:
            raise WrongState(f"transactional id {self._requests.transactional_id} is {self._state.value}")

    def _within(self, action: Callable[[], T]) -> T:
        self._expect(State.OPEN)
        try:
            return action()
        except BaseException:  # Whatever it was, Ctrl-C too: a record may be missing.
            self._state = State.FAILED
            raise

    def _end_refused(self, error: ErrorAnswer) -> None:
        """Goes on under another epoch if the old one is why an abort was refused; raises any other error."""
        if error.code not in EPOCH_IS_OLD | ID_IS_FORGOTTEN:
            raise error
        if self._requests.can_renew:
            self._renew()
            return
        if error.code in EPOCH_IS_OLD:
            self._state = State.FENCED
        raise error

    def _renew(self) -> None:
        try:
            self._requests.renew()
        except ErrorAnswer as error:
            if error.code in EPOCH_IS_OLD:
                self._state = State.FENCED
            raise
