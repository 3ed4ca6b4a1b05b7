"""AddPartitionsToTxn between brokers: the queries as one message, and the answer to each query."""

from __future__ import annotations

from odradek.base.errors import ErrorCode, Refused, error_code
from odradek.base.units import TopicName, TopicPartition
from odradek.core.transactions.additions import AdditionsOutcome, AddPartitions
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

BETWEEN_BROKERS_SINCE = 4


def to_message(effect: AddPartitions, version: int) -> AddPartitionsToTxnRequest:
    """Return the message, with each topic of a transaction once.

    Raise Refused(UNSUPPORTED_VERSION) for a version that is for clients only.
    """
    if version < BETWEEN_BROKERS_SINCE:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"AddPartitionsToTxn version {version} is only valid for clients")
    transactions = []
    for query, names in effect.transactions:
        topics: dict[TopicName, list[int]] = {}
        for name in names:
            topics.setdefault(name.topic, []).append(name.partition)
        transactions.append(
            AddPartitionsToTxnTransaction(
                transactional_id=query.transactional_id,
                producer_id=query.producer.id,
                producer_epoch=query.producer.epoch,
                verify_only=not query.adds,
                topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()
                ],
            )
        )
    return AddPartitionsToTxnRequest(transactions=transactions)


def errors(effect: AddPartitions, response: AddPartitionsToTxnResponse) -> AdditionsOutcome:
    """Return the error code of each partition in the query, without those that the response omits.

    If the request failed as a whole, return the reason.
    """
    if response.error_code:
        return Refused(error_code(response.error_code), f"broker {effect.broker} rejected AddPartitionsToTxn")
    requested = {(query.transactional_id, name) for query, names in effect.transactions for name in names}
    codes = {}
    for result in response.results_by_transaction:
        for topic in result.topic_results:
            for partition_result in topic.results_by_partition:
                key = result.transactional_id, TopicPartition(TopicName(topic.name), partition_result.partition_index)
                if key in requested:
                    codes[key] = error_code(partition_result.partition_error_code)
    return codes
