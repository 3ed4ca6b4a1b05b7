"""Transactions: atomic writes of records to many partitions and of group offsets.

    producer = TransactionalProducer(cluster, "billing-1")   # Fences earlier producers of this transactional id.
    with producer.transaction():                             # Commits; aborts if an exception is raised.
        producer.send("invoices", b"...")
        producer.send_offsets("billing", {partition: Committed(offset)}, membership)

Two-phase commit (KIP-939), for callers that keep a log of decisions elsewhere:

    producer = TransactionalProducer(cluster, "sink-1", two_phase=True, keep_prepared=True)
    producer.complete(decided)         # Commits the transaction prepared earlier if it is the decided one.
    producer.begin_transaction(); producer.send(...)
    decided = producer.prepare()       # From now on, only this transactional id can abort it.
    ...                                # Write `decided` to the log: this is the decision.
    producer.commit()

With transaction.version 2 (KIP-890) a write adds its partition to the transaction, and each transaction has its own
epoch. Before, partitions are added by a request, and the epoch changes only after an error. Both protocols are
supported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import TypeVar

from odradek.base.errors import ErrorCode
from odradek.base.units import MINUTE_MS, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_errors import ClientError, ErrorResponse
from odradek.client.consumer.group_offsets import NO_MEMBER, Committed, Membership
from odradek.client.producer.idempotence import Buffer, Identity
from odradek.client.producer.producer import Producer
from odradek.client.producer.transaction_requests import TransactionRequests, TransactionSequences
from odradek.record.compression import Codec

T = TypeVar("T")

TRANSACTION_TIMEOUT_MS = 1 * MINUTE_MS

# Another producer took over, or the transaction only timed out (KIP-588); InitProducerId distinguishes the two.
EPOCH_IS_OLD = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
# The coordinator has removed a transactional id that was idle for long, so there is nothing left to abort.
ID_IS_FORGOTTEN = frozenset({ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID})


class State(Enum):
    """The state of a transactional producer, which determines the permitted calls."""

    READY = "ready"
    OPEN = "in a transaction"
    FAILED = "in a transaction that must be aborted"
    PREPARED = "in a prepared transaction"
    UNANSWERED = "in a transaction whose commit result is unknown"
    FENCED = "fenced by another producer"
    WORN_OUT = "unusable after an error, because the broker is older than Kafka 2.5: create a new producer"


MAY_COMMIT = (State.OPEN, State.PREPARED, State.UNANSWERED)
MAY_ABORT = (State.OPEN, State.FAILED, State.PREPARED)


class WrongState(ClientError):
    """Error of a call that is not permitted in this state, a mistake of the caller."""


class TransactionalProducer:
    """Producer with one transactional id; not thread-safe.

    After a ClientError within a transaction, only abort() is permitted.
    """

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
        """Fence earlier producers and wait until their transaction is aborted, or kept with keep_prepared.

        timeout_ms: the time after which the coordinator aborts a transaction; with two_phase it never does.

        Raise ErrorResponse: INVALID_TRANSACTION_TIMEOUT, TRANSACTIONAL_ID_AUTHORIZATION_FAILED; Unsupported if the
        broker does not support two_phase. A kept transaction is in `prepared`.
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
        """Return the producer id and epoch of the transaction, or of the next one."""
        return self._requests.identity

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Begin a transaction, then commit it, or abort it after an exception.

        A prepared transaction is not aborted, because the decision may already be recorded, see complete().
        """
        self.begin_transaction()
        try:
            yield
            self.commit()
        except BaseException:
            if self._state in MAY_ABORT and self.prepared is None:
                self.abort()
            raise

    def begin_transaction(self) -> None:
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
        """Send a record as Producer.send() does."""
        self._expect(State.OPEN)
        try:
            self._producer.send(topic, value, key=key, headers=headers, timestamp=timestamp, partition=partition)
        except BaseException:
            self._state = State.FAILED
            raise

    def send_batch(self, partition: TopicPartition, batch: Buffer, records: int) -> None:
        """Send a batch as Producer.send_batch() does."""
        self._within(lambda: self._producer.send_batch(partition, batch, records))

    def flush(self) -> None:
        """Wait until everything sent so far is written, though not committed."""
        self._within(self._producer.flush)

    def partitions(self, topic: str) -> int:
        return self._producer.partitions(topic)

    def send_offsets(
        self, group: str, offsets: Mapping[TopicPartition, Committed], membership: Membership = NO_MEMBER
    ) -> None:
        """Commit a group's offsets with the transaction.

        With a membership, a member that the group has removed is fenced (KIP-447).
        """
        self._within(lambda: self._requests.commit_offsets(group, offsets, membership))

    def prepare(self) -> Identity:
        """Flush and return the transaction's identity for the log of decisions.

        Only commit() or abort() may follow.
        """
        self._within(self._producer.flush)
        self._state = State.PREPARED
        self.prepared = self.identity
        return self.prepared

    def complete(self, decided: Identity | None) -> bool:
        """Commit the prepared transaction if it is the decided one, otherwise abort it.

        Return whether it was committed; without a prepared transaction, do nothing.
        """
        if self._state is State.READY:
            return False
        self._expect(State.PREPARED)
        is_decided = self.prepared == decided
        self.commit() if is_decided else self.abort()
        return is_decided

    def commit(self) -> None:
        """Flush, and commit everything since begin().

        After KafkaUnavailable, the outcome is unknown: call commit() again.
        """
        self._expect(*MAY_COMMIT)
        if self._state is State.OPEN:
            self._within(self._producer.flush)
        self._state = State.UNANSWERED
        try:
            self._requests.end_transaction(commit=True)
        except ErrorResponse as error:
            self._state = State.UNANSWERED if error.retriable else State.FAILED
            raise
        if self._requests.identity != self._sequences.identity:
            self._sequences.restart(self._requests.identity)
        self._state, self.prepared = State.READY, None

    def abort(self) -> None:
        """Abort everything since begin().

        Raise PRODUCER_FENCED (INVALID_PRODUCER_EPOCH before Kafka 2.7) if another producer has taken over.
        """
        self._expect(*MAY_ABORT)
        self._state = State.FAILED
        self._producer.discard()
        try:
            self._requests.end_transaction(commit=False)
        except ErrorResponse as error:
            self._end_refused(error)
        else:
            if not self._requests.has_epochs and self._requests.can_renew:
                self._renew()  # A failure may have left a gap in the sequences: restart at 0 with a new epoch.
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
        except BaseException:  # After any exception, including Ctrl-C, a record may be missing.
            self._state = State.FAILED
            raise

    def _end_refused(self, error: ErrorResponse) -> None:
        """Renew the epoch if the old one caused the rejection of an abort; raise any other error."""
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
        except ErrorResponse as error:
            if error.code in EPOCH_IS_OLD:
                self._state = State.FENCED
            raise
