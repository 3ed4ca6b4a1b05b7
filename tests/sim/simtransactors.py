"""Transactional producers of the replicated cluster, and read-committed consumers.

    init ──> two partitions are added ──> a batch to each ──> commit or abort ──> the next transaction
     ^                                                             │
     └── unknown outcome, or the producer is fenced <──────────────┘

A read-committed consumer may see only transactions whose commit was requested. At the end, records acknowledged as
committed are present in both partitions, those acknowledged as aborted in none.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from odradek.base.errors import ErrorCode
from odradek.base.units import ProducerEpoch, ProducerId, TopicName, TopicPartition
from odradek.core.kernel.cluster_view import TRANSACTION_STATE
from odradek.record.builder import encode_batch
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from sim.simclock import MILLISECOND_US
from sim.simcoordinated import ACCOUNTS
from sim.simidempotent import RETRIABLE

if TYPE_CHECKING:
    from sim.simtransactionclients import TransactionClients

T = TypeVar("T")
R = TypeVar("R")

TIMEOUT_MS = 1_500  # transaction.timeout.ms
RETRY_US = 100 * MILLISECOND_US
ADDED_BEFORE = 11  # The last version of Produce that requires AddPartitionsToTxn.
STATE = TopicPartition(TRANSACTION_STATE, 0)
PARTITIONS = tuple(TopicPartition(ACCOUNTS, index) for index in range(2))
RETRIABLE_IN_TRANSACTION = RETRIABLE | {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
}

Wait: TypeAlias = int | Callable[[Callable[[Any], None]], None]  # A pause in microseconds, or a request.
Steps: TypeAlias = Generator[Wait, Any, R]


class TransactionFailed(Exception):
    """Raised when a transaction cannot continue as planned."""


class Transaction:
    """One transaction: its values for each partition, and the known part of its outcome."""

    def __init__(self) -> None:
        self.values: dict[TopicPartition, bytes] = {}
        self.is_commit_requested = False
        self.is_committed: bool | None = None  # None until its end is acknowledged.


class Transactor:
    """One producer with a transactional id; it ends when another one takes over the id."""

    def __init__(self, clients: TransactionClients, transactional_id: str) -> None:
        self._clients = clients
        self._random = clients.random
        self._transactional_id = transactional_id
        self._producer = (-1, -1)
        self._sequences: dict[TopicPartition, int] = {}
        self._steps = self._run()
        self._continue(None)

    def _continue(self, value: object) -> None:
        try:
            wait = self._steps.send(value)
        except StopIteration:
            return
        if isinstance(wait, int):
            self._clients.cluster.clients.after(wait, lambda: self._continue(None))
        else:
            wait(self._continue)

    @property
    def _is_deposed(self) -> bool:
        return self._clients.owners.get(self._transactional_id, self) is not self

    def _run(self) -> Steps[None]:
        is_known = False
        while not self._clients.are_done:
            if not is_known:
                is_known = yield from self._init()
                if not is_known:
                    return
            try:
                yield from self._transaction()
            except TransactionFailed:
                is_known = False
                if self._is_deposed:
                    return
            yield self._random.randrange(1, RETRY_US)

    def _init(self) -> Steps[bool]:
        """Request an identity; return False if the producer cannot continue."""
        request = InitProducerIdRequest(transactional_id=self._transactional_id, transaction_timeout_ms=TIMEOUT_MS)
        while not self._clients.are_done:
            if self._is_deposed:
                return False
            answer = yield from self._request(STATE, request, InitProducerIdResponse, 4)
            if answer is not None and not answer.error_code:
                self._clients.on_takeover(self._transactional_id, self, answer.producer_id, answer.producer_epoch)
                self._producer = answer.producer_id, answer.producer_epoch
                self._sequences.clear()
                return True
            assert answer is None or answer.error_code in RETRIABLE_IN_TRANSACTION, f"{ErrorCode(answer.error_code)}"
            yield self._random.randrange(1, RETRY_US)
        return False

    def _transaction(self) -> Steps[None]:
        """Play one transaction; raise TransactionFailed if it cannot be ended, or its outcome is unknown."""
        transaction, is_whole = Transaction(), False
        try:
            yield from self._add()
            for partition in PARTITIONS:
                yield from self._write(transaction, partition)
            is_whole = True
        except TransactionFailed:
            if self._random.random() < 0.5:
                raise
        is_commit = is_whole and self._random.random() < 0.6
        if self._random.random() < 0.1:
            raise TransactionFailed  # The transaction stays open until the next one or its timeout aborts it.
        transaction.is_commit_requested = is_commit
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            committed=is_commit,
        )
        yield from self._request_with_retries(STATE, request, EndTxnResponse, 3, lambda answer: answer.error_code)
        transaction.is_committed = is_commit
        if not is_whole:
            raise TransactionFailed  # The written sequences are unknown.

    def _add(self) -> Steps[None]:
        topic = AddPartitionsToTxnTopic(name=ACCOUNTS, partitions=[one.partition for one in PARTITIONS])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=[topic],
        )

        def code(answer: AddPartitionsToTxnResponse) -> int:
            (result,) = answer.results_by_topic_v3_and_below
            codes = {one.partition_error_code for one in result.results_by_partition}
            return max(codes - {ErrorCode.OPERATION_NOT_ATTEMPTED}, default=0, key=abs)

        yield from self._request_with_retries(STATE, request, AddPartitionsToTxnResponse, 3, code)

    def _write(self, transaction: Transaction, partition: TopicPartition) -> Steps[None]:
        value = self._clients.new_value(transaction)
        transaction.values[partition] = value
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + 1
        records = encode_batch(
            [(None, value, (), self._clients.time())],
            producer_id=ProducerId(self._producer[0]),
            producer_epoch=ProducerEpoch(self._producer[1]),
            base_sequence=sequence,
            is_transactional=True,
        )
        data = [PartitionProduceData(index=partition.partition, records=records)]
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=800,
            topic_data=[TopicProduceData(name=TopicName(partition.topic), partition_data=data)],
        )

        def code(answer: ProduceResponse) -> int:
            (part,) = answer.responses[0].partition_responses
            return part.error_code

        yield from self._request_with_retries(partition, request, ProduceResponse, ADDED_BEFORE, code)

    # Requests.

    def _request(self, at: TopicPartition, message: object, kind: type[T], version: int) -> Steps[T | None]:
        """Send a request to the supposed leader; return None without a response."""
        topic_id = self._clients.cluster.assignment(at.topic).topic_id
        broker = self._clients.leader(topic_id, at)
        if broker is None:
            yield RETRY_US
            return None
        answer: T | None = yield lambda then: self._clients.send_request(broker, message, kind, version, then)
        return answer

    def _request_with_retries(
        self, at: TopicPartition, message: object, kind: type[T], version: int, code_of: Callable[[T], int]
    ) -> Steps[None]:
        """Retry a request until it succeeds; raise TransactionFailed for a permanent error, or when it gives up."""
        while self._random.random() < 0.95 or self._clients.are_done:
            was_deposed = self._is_deposed
            answer = yield from self._request(at, message, kind, version)
            code = None if answer is None else ErrorCode(code_of(answer))
            if code is ErrorCode.NONE:
                assert not was_deposed, f"{self._transactional_id} is fenced, and may {type(message).__name__}"
                return
            if code is not None and code not in RETRIABLE_IN_TRANSACTION:
                assert code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"{at} has lost what it acknowledged"
                raise TransactionFailed
            yield self._random.randrange(1, RETRY_US)
        raise TransactionFailed
