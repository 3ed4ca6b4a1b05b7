"""DescribeTransactions: the coordinator's state of transactional ids (KIP-664)."""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Int16, Int32, Int64, Str
from odradek.wire.schema.schema import message, struct


@message(api_key=ApiKey.DESCRIBE_TRANSACTIONS, kind="request", versions=(0, 0), flexible_from=0)
class DescribeTransactionsRequest:
    transactional_ids: list[Str]


@struct
class TopicData:
    topic: Str
    partitions: list[Int32]


@struct
class TransactionState:
    error_code: Int16
    transactional_id: Str
    transaction_state: Str
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: list[TopicData]


@message(api_key=ApiKey.DESCRIBE_TRANSACTIONS, kind="response", versions=(0, 0), flexible_from=0)
class DescribeTransactionsResponse:
    throttle_time_ms: Int32
    transaction_states: list[TransactionState]
