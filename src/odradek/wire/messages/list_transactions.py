"""ListTransactions: the transactional ids that this broker coordinates (KIP-664).

v1: filter by the time they have been open (KIP-994). v2: filter by a pattern (KIP-1152).
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Int16, Int32, Int64, Str
from odradek.wire.schema.schema import message, since, struct


@message(api_key=ApiKey.LIST_TRANSACTIONS, kind="request", versions=(0, 2), flexible_from=0)
class ListTransactionsRequest:
    state_filters: list[Str]
    producer_id_filters: list[Int64]
    duration_filter: Int64 = since(1, default=-1)
    transactional_id_pattern: Str | None = since(2, default=None)


@struct
class TransactionState:
    transactional_id: Str
    producer_id: Int64
    transaction_state: Str


@message(api_key=ApiKey.LIST_TRANSACTIONS, kind="response", versions=(0, 2), flexible_from=0)
class ListTransactionsResponse:
    throttle_time_ms: Int32
    error_code: Int16
    unknown_state_filters: list[Str]
    transaction_states: list[TransactionState]
