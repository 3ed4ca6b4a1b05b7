"""AddPartitionsToTxn, versions 0 to 5.

Adds partitions to a transaction before any record is written to them. If one partition does not exist, none is added.
Clients send versions 0 to 3, for one transaction, which may share its epoch with the next one.

- v2: a fenced producer gets PRODUCER_FENCED (KIP-588).
- v4: sent between brokers, for several transactions; can also only verify that the partitions are part of them
  (KIP-890).
- v5: the sender knows TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from odradek.api.request.call import Call
from odradek.api.request.outcome import PAUSE, Slices
from odradek.api.request.sliced_response import Parts, settled, whole
from odradek.base.errors import ErrorCode, Refused, fenced_as
from odradek.base.units import ProducerEpoch, ProducerId, TopicName, TopicPartition
from odradek.core.coordinators.durable import PendingWrite, PendingWrites
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.kernel.access import Operation, ResourceType
from odradek.core.kernel.cluster_view import INTERNAL_TOPICS
from odradek.core.transactions.transaction_rules import EPOCH_PER_TRANSACTION
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from odradek.wire.schema.schema import maker

_partition = maker(AddPartitionsToTxnPartitionResult)

FENCED_SINCE = 2
MANY_SINCE = 4
WITHOUT_EPOCHS = 0  # A transaction.version.

Codes = dict[TopicPartition, ErrorCode]
Response = AddPartitionsToTxnResponse


class _TransactionResult(NamedTuple):
    """The result for one transaction; a record that the coordinator wrote must be safe before the answer."""

    transaction: AddPartitionsToTxnTransaction
    codes: Codes
    written: PendingWrite | None = None

    def code_of(self, name: TopicPartition) -> ErrorCode:
        if self.written is None or self.codes[name]:
            return self.codes[name]
        return self.written.code


def handle(call: Call, body: AddPartitionsToTxnRequest) -> Slices:
    if call.version >= MANY_SINCE:
        call.check(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    added, count = [], 0
    for transaction in _transactions(call, body):
        result = yield from _add(call, transaction)
        added.append(result)
        count += 1 + sum(1 + len(topic.partitions) for topic in transaction.topics)
        yield PAUSE
    writes = PendingWrites([result.written for result in added if result.written is not None])
    return (yield from settled(writes, call.now, count, lambda: _answer(call, added)))


def refuse(call: Call, body: AddPartitionsToTxnRequest, code: ErrorCode) -> Response:
    if call.version >= MANY_SINCE:
        return Response(throttle_time_ms=0, error_code=code)
    added = [
        _TransactionResult(transaction, dict.fromkeys(_names(transaction.topics), code))
        for transaction in _transactions(call, body)
    ]
    return whole(_answer(call, added))


def _transactions(call: Call, body: AddPartitionsToTxnRequest) -> Sequence[AddPartitionsToTxnTransaction]:
    if call.version >= MANY_SINCE:
        return body.transactions
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=body.v3_and_below_transactional_id,
            producer_id=body.v3_and_below_producer_id,
            producer_epoch=body.v3_and_below_producer_epoch,
            topics=body.v3_and_below_topics,
        )
    ]


def _names(topics: Sequence[AddPartitionsToTxnTopic]) -> Iterator[TopicPartition]:
    return (TopicPartition(TopicName(topic.name), index) for topic in topics for index in topic.partitions)


def _add(call: Call, transaction: AddPartitionsToTxnTransaction) -> Parts[_TransactionResult]:
    """Check all partitions of the transaction, then add them with one record."""
    names: Codes = {}
    may_write = _may_write(call, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id)
    for name in _names(transaction.topics):
        names[name] = _partition_error(call, name) if may_write else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        yield
    if not may_write:
        return _TransactionResult(transaction, names)
    if any(names.values()):
        errors = {name: code or ErrorCode.OPERATION_NOT_ATTEMPTED for name, code in names.items()}
        return _TransactionResult(transaction, errors)
    try:
        producer = ProducerIdAndEpoch(ProducerId(transaction.producer_id), ProducerEpoch(transaction.producer_epoch))
        if transaction.verify_only:
            codes = yield from _verify(call, transaction.transactional_id, producer, names)
            return _TransactionResult(
                transaction, codes, call.broker.transactions.unsafe_join(transaction.transactional_id)
            )
        version = EPOCH_PER_TRANSACTION if call.version >= MANY_SINCE else WITHOUT_EPOCHS
        add_partitions = call.broker.transactions.add_partitions
        written = add_partitions(transaction.transactional_id, producer, names.keys(), version, call.now)
    except Refused as refused:
        return _TransactionResult(transaction, dict.fromkeys(names, refused.code))
    return _TransactionResult(transaction, names, written)


def _may_write(call: Call, resource: ResourceType, name: str) -> bool:
    """Return whether the client may write.

    Later versions come from brokers, whose right to all resources `handle` has checked.
    """
    return call.version >= MANY_SINCE or call.may(Operation.WRITE, resource, name)


def _partition_error(call: Call, name: TopicPartition) -> ErrorCode:
    """Return why the partition can't be added, or NONE; clients may not write to internal topics."""
    if name.topic in INTERNAL_TOPICS and call.version < MANY_SINCE:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if not _may_write(call, ResourceType.TOPIC, name.topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = call.broker.view.topics.get(name.topic)
    is_there = topic is not None and 0 <= name.partition < len(topic.partitions)
    return ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _verify(
    call: Call, transactional_id: str, producer: ProducerIdAndEpoch, names: Iterable[TopicPartition]
) -> Parts[Codes]:
    codes: Codes = {}
    for name in names:
        try:
            call.broker.transactions.check_added(transactional_id, producer, name)
            codes[name] = ErrorCode.NONE
        except Refused as refused:
            codes[name] = refused.code
        yield
    return codes


def _answer(call: Call, added: Sequence[_TransactionResult]) -> Parts[Response]:
    results = []
    for result in added:
        topics = []
        for topic in result.transaction.topics:
            if topic.partitions or not result.transaction.verify_only:
                topics.append((yield from _topic(call, result, topic)))
                yield
        results.append(
            AddPartitionsToTxnResult(transactional_id=result.transaction.transactional_id, topic_results=topics)
        )
        yield
    if call.version >= MANY_SINCE:
        return Response(throttle_time_ms=0, results_by_transaction=results)
    return Response(throttle_time_ms=0, results_by_topic_v3_and_below=results[0].topic_results)


def _topic(
    call: Call, result: _TransactionResult, topic: AddPartitionsToTxnTopic
) -> Parts[AddPartitionsToTxnTopicResult]:
    results = []
    for index in topic.partitions:
        code = result.code_of(TopicPartition(TopicName(topic.name), index))
        results.append(
            _partition(partition_index=index, partition_error_code=fenced_as(code, call.version, FENCED_SINCE))
        )
        yield
    return AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=results)
