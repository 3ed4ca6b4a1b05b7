"""Administration of transactions (KIP-664): listing, description, and aborting of hanging ones.

A transaction is known in two places: its coordinator knows the transactional id, and each partition leader knows the
producer that wrote there. A transaction that only a leader knows is hanging: it never ends, and readers of committed
records wait at its first offset.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from odradek.base.errors import ErrorCode
from odradek.base.units import MINUTE_MS, TopicName, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.coordinator_lookup import KeyType, call_coordinator, call_coordinators, call_every_broker
from odradek.client.cluster.describe import check
from odradek.client.cluster.leader_requests import call_leaders, collect_failures
from odradek.client.cluster.topic_metadata import Broker
from odradek.client.connection.broker_connection import Connection, Pending
from odradek.client.connection.client_errors import ClientError, ErrorResponse, Unsupported, response_error
from odradek.client.consumer.group_offsets import by_topic
from odradek.client.producer.idempotence import Identity
from odradek.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from odradek.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

T = TypeVar("T")

VERSION_WITH_DURATION, VERSION_WITH_PATTERN = 1, 2
FENCING_TIMEOUT_MS = 1 * MINUTE_MS  # Timeout of a transaction that never begins; it only replaces another.
IN_PROGRESS = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """One transactional id."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transaction as known by its coordinator; started_at_ms is -1 if none is in progress."""

    transactional_id: str
    identity: Identity
    state: str
    timeout_ms: int
    started_at_ms: int
    partitions: tuple[TopicPartition, ...]
    coordinator: Broker

    @property
    def is_in_progress(self) -> bool:
        return self.state in IN_PROGRESS


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer as known by a partition's leader; -1 for unknown values."""

    identity: Identity
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start: int  # Offset; -1 for a producer without an open transaction here.


class Hanging(NamedTuple):
    """An open transaction of a partition that no coordinator will end."""

    partition: TopicPartition
    producer: ActiveProducer
    transactional_id: str | None


def list_transactions(
    cluster: Cluster,
    *,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    longer_than_ms: int | None = None,
    pattern: str | None = None,
    failures: dict[int, ClientError] | None = None,
) -> list[ListedTransaction]:
    """List the transactional ids known to the brokers that match all filters.

    `longer_than_ms` is the minimum time a transaction has been open, `pattern` a regular expression for the id (RE2).
    `failures` collects the errors of unavailable brokers, whose ids are missing; without it their error is raised.
    """
    request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=list(producer_ids))
    if longer_than_ms is not None:
        request.duration_filter = longer_than_ms
    request.transactional_id_pattern = pattern

    def send_list_transactions(connection: Connection) -> list[ListedTransaction]:
        version = connection.version(ListTransactionsRequest)
        if longer_than_ms is not None and version < VERSION_WITH_DURATION:
            raise Unsupported(f"{connection.where} cannot filter transactions by duration: it is older than Kafka 3.8")
        if pattern is not None and version < VERSION_WITH_PATTERN:
            raise Unsupported(
                f"{connection.where} cannot filter transactional ids by pattern: it is older than Kafka 4.1"
            )
        response = connection.call(request, ListTransactionsResponse, version=version)
        check(response.error_code, f"transactions of {connection.where}", None)
        return [
            ListedTransaction(each.transactional_id, each.producer_id, each.transaction_state, -1)
            for each in response.transaction_states
        ]

    listed = {
        each.transactional_id: replace(each, coordinator=node)
        for node, those in call_every_broker(cluster, send_list_transactions, failures).items()
        for each in those
    }
    return [listed[name] for name in sorted(listed)]


def describe_transactions(
    cluster: Cluster, transactional_ids: Iterable[str]
) -> dict[str, TransactionDescription | ClientError]:
    """Return the description or error of each transactional id: TRANSACTIONAL_ID_NOT_FOUND, ..."""

    def send_describe_transactions(node: int, names: list[str]) -> dict[str, TransactionDescription | ClientError]:
        request = DescribeTransactionsRequest(transactional_ids=names)
        response = cluster.connection(node).call(request, DescribeTransactionsResponse)
        broker = cluster.metadata.brokers[node]
        return {
            each.transactional_id: _description_of(each, broker)
            if each.error_code == ErrorCode.NONE
            else response_error(each.error_code, f"transactional id {each.transactional_id}")
            for each in response.transaction_states
        }

    return call_coordinators(cluster, KeyType.TRANSACTION, transactional_ids, send_describe_transactions)


def _description_of(state: TransactionState, broker: Broker) -> TransactionDescription:
    partitions = [TopicPartition(TopicName(topic.topic), index) for topic in state.topics for index in topic.partitions]
    return TransactionDescription(
        state.transactional_id,
        Identity(state.producer_id, state.producer_epoch),
        state.transaction_state,
        state.transaction_timeout_ms,
        state.transaction_start_time_ms,
        tuple(sorted(partitions)),
        broker,
    )


def describe_producers(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    *,
    failures: dict[TopicPartition, ClientError] | None = None,
) -> dict[TopicPartition, list[ActiveProducer]]:
    """Return the producers known to each partition's leader, by id, with retries until api_timeout_ms.

    `failures` collects the partitions without an answer; without it the first error is raised.
    """
    outcomes = call_leaders(cluster, sorted(set(partitions)), _send_describe_producers, _producer_outcomes)
    return collect_failures(outcomes, failures)


def _send_describe_producers(
    connection: Connection, partitions: list[TopicPartition]
) -> Pending[DescribeProducersResponse]:
    topics = [
        TopicRequest(name=topic, partition_indexes=[each.partition for each in those])
        for topic, those in by_topic(partitions).items()
    ]
    return connection.send(DescribeProducersRequest(topics=topics), DescribeProducersResponse)


def _producer_outcomes(
    response: DescribeProducersResponse,
) -> Iterator[tuple[TopicPartition, list[ActiveProducer] | ClientError]]:
    for topic in response.topics:
        for part in topic.partitions:
            partition = TopicPartition(TopicName(topic.name), part.partition_index)
            if part.error_code != ErrorCode.NONE:
                yield partition, response_error(part.error_code, str(partition), part.error_message)
            else:
                yield partition, sorted(map(_producer, part.active_producers), key=lambda each: each.identity)


def _retry_at_leaders(cluster: Cluster, partitions: Sequence[TopicPartition], send: Callable[[], T]) -> T:
    """Send requests to the leaders until api_timeout_ms, with new metadata after any error."""

    def attempt() -> T:
        cluster.learn(partitions)
        try:
            return send()
        except ClientError:
            cluster.forget(partitions)
            raise

    return cluster.retry(attempt)


def _producer(state: ProducerState) -> ActiveProducer:
    return ActiveProducer(
        Identity(state.producer_id, state.producer_epoch),
        state.last_sequence,
        state.last_timestamp,
        state.coordinator_epoch,
        state.current_txn_start_offset,
    )


# Aborting.


def abort_transaction(cluster: Cluster, transactional_id: str) -> Identity:
    """Fence the producer, which aborts its open transaction, and return its replacement's identity."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=FENCING_TIMEOUT_MS, producer_id=-1, producer_epoch=-1
    )

    def send_init_producer_id(connection: Connection) -> Identity:
        response = connection.call(request, InitProducerIdResponse)
        check(response.error_code, f"transactional id {transactional_id}", None)
        return Identity(response.producer_id, response.producer_epoch)

    return call_coordinator(cluster, KeyType.TRANSACTION, transactional_id, send_init_producer_id)


def abort_hanging(cluster: Cluster, partition: TopicPartition, producer: ActiveProducer) -> None:
    """Write an abort marker for a transaction of one partition in place of the coordinator.

    Use this only for a hanging transaction: the coordinator of a live one would not learn of it.
    """
    marker = WritableTxnMarker(
        producer_id=producer.identity.producer_id,
        producer_epoch=producer.identity.epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
        coordinator_epoch=max(0, producer.coordinator_epoch),
    )

    def send_write_txn_markers() -> None:
        connection = cluster.connection(cluster.leader(partition))
        response = connection.call(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse)
        for each in response.markers:
            for topic in each.topics:
                for part in topic.partitions:
                    check(part.error_code, f"abort in {partition}", None)

    _retry_at_leaders(cluster, [partition], send_write_txn_markers)


def find_hanging(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    *,
    older_than_ms: int,
    now_ms: int | None = None,
    failures: dict[TopicPartition, ClientError] | None = None,
) -> list[Hanging]:
    """Find inactive transactions of these partitions that no coordinator keeps open.

    older_than_ms: the minimum inactivity, at least the transaction timeout of any producer; a younger transaction may
    still be ended normally.

    failures: collects the partitions that could not be examined; without it the first error is raised.

    Raise ClientError if a coordinator does not answer: its transactions must not be taken for hanging.
    """
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    suspects = [
        (partition, producer)
        for partition, producers in describe_producers(cluster, partitions, failures=failures).items()
        for producer in producers
        if producer.transaction_start >= 0 and now - producer.last_timestamp > older_than_ms
    ]
    if not suspects:
        return []
    ids = sorted({producer.identity.producer_id for _, producer in suspects})
    listed = {each.producer_id: each.transactional_id for each in list_transactions(cluster, producer_ids=ids)}
    described = describe_transactions(cluster, sorted(listed.values()))
    return [
        Hanging(partition, producer, listed.get(producer.identity.producer_id))
        for partition, producer in suspects
        if not _is_known_to_coordinator(partition, listed.get(producer.identity.producer_id), described)
    ]


def _is_known_to_coordinator(
    partition: TopicPartition,
    transactional_id: str | None,
    described: Mapping[str, TransactionDescription | ClientError],
) -> bool:
    """Return whether a coordinator has this partition in a transaction that it is going to end."""
    outcome = described.get(transactional_id) if transactional_id is not None else None
    if isinstance(outcome, ErrorResponse) and outcome.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return False
    if isinstance(outcome, ClientError):
        raise outcome
    return outcome is not None and outcome.is_in_progress and partition in outcome.partitions
