"""DescribeTransactions, version 0.

Returns the coordinator's state of transactional ids (KIP-664).
"""

from __future__ import annotations

from odradek.api.request import repeated_names as describing
from odradek.api.request.call import Call
from odradek.api.request.outcome import PAUSE, Slices
from odradek.api.request.sliced_response import CHEAP, Parts
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicName
from odradek.core.kernel.access import Operation, ResourceType
from odradek.core.transactions.transaction_states import Transaction
from odradek.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def handle(call: Call, body: DescribeTransactionsRequest) -> Slices:
    if len(body.transactional_ids) > describing.REPEATS_MAX:
        yield from describing.check_repeats(body.transactional_ids)
    states = []
    for transactional_id in body.transactional_ids:
        states.append((yield from _describe(call, transactional_id)))
        yield PAUSE
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states)


def refuse(call: Call, body: DescribeTransactionsRequest, code: ErrorCode) -> DescribeTransactionsResponse:
    states = [_refused(transactional_id, code) for transactional_id in body.transactional_ids]
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states)


def _describe(call: Call, transactional_id: str) -> Parts[TransactionState]:
    try:
        call.check(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        if not transactional_id:
            raise Refused(ErrorCode.INVALID_REQUEST)
        shard = call.broker.transactions.shards.find_shard(transactional_id)
        transaction = shard.transactions.get(transactional_id)
        if transaction is None:
            raise Refused(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    except Refused as refused:
        return _refused(transactional_id, refused.code)
    topics = yield from _topics(call, transaction)
    return TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=transaction.state.title,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=topics,
    )


def _topics(call: Call, transaction: Transaction) -> Parts[list[TopicData]]:
    """Return the transaction's topics that the client may describe."""
    by_topic: dict[TopicName, list[int]] = {}
    for number, (name, partition) in enumerate(transaction.partitions, 1):
        by_topic.setdefault(name, []).append(partition)
        if not number % CHEAP:
            yield
    listed = []
    for topic in sorted(by_topic):
        if call.may(Operation.DESCRIBE, ResourceType.TOPIC, topic):
            listed.append(TopicData(topic=topic, partitions=sorted(by_topic[topic])))
        yield
    return listed


def _refused(transactional_id: str, code: ErrorCode) -> TransactionState:
    return TransactionState(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )
