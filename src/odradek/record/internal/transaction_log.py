"""The state of a transactional id as a record of __transaction_state.

v1: flexible, written from transaction.version 1 on, with the previous and next producer ids and the next epoch
(KIP-890). transaction_partitions is null while the transaction has no partitions.
"""

from odradek.wire.schema.primitives import Int8, Int16, Int32, Int64, Str
from odradek.wire.schema.schema import message, since, struct


@message(api_key=0, kind="coordinator-key", versions=(0, 0), flexible_from=None)
class TransactionLogKey:
    transactional_id: Str


@struct
class PartitionsSchema:
    topic: Str
    partition_ids: list[Int32]


@message(api_key=0, kind="coordinator-value", versions=(0, 1), flexible_from=1)
class TransactionLogValue:
    producer_id: Int64
    previous_producer_id: Int64 = since(1, default=-1, tag=0)
    next_producer_id: Int64 = since(1, default=-1, tag=1)
    producer_epoch: Int16
    next_producer_epoch: Int16 = since(1, default=-1, tag=3)
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = since(1, default=0, tag=2)
