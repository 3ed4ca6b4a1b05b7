"""AddPartitionsToTxn: addition of partitions to a transaction, before anything is written to them.

v1: throttled after the answer (KIP-219). v2: may answer PRODUCER_FENCED (KIP-588). v3: flexible. v4: between brokers,
with many transactions in one request, and verify_only to check whether a partition is in the transaction (KIP-890). v5:
may answer TRANSACTION_ABORTABLE (KIP-890). Clients use at most v3.
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Bool, Int16, Int32, Int64, Str
from odradek.wire.schema.schema import field, message, since, struct


@struct
class AddPartitionsToTxnTopic:
    name: Str
    partitions: list[Int32]


@struct
class AddPartitionsToTxnTransaction:
    transactional_id: Str
    producer_id: Int64
    producer_epoch: Int16
    verify_only: Bool = field(default=False)
    topics: list[AddPartitionsToTxnTopic]


@message(api_key=ApiKey.ADD_PARTITIONS_TO_TXN, kind="request", versions=(0, 5), flexible_from=3)
class AddPartitionsToTxnRequest:
    transactions: list[AddPartitionsToTxnTransaction] = since(4, default_factory=list)
    v3_and_below_transactional_id: Str = field(default="", until=3)
    v3_and_below_producer_id: Int64 = field(default=0, until=3)
    v3_and_below_producer_epoch: Int16 = field(default=0, until=3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(default_factory=list, until=3)


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: Int32
    partition_error_code: Int16


@struct
class AddPartitionsToTxnTopicResult:
    name: Str
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


@struct
class AddPartitionsToTxnResult:
    transactional_id: Str
    topic_results: list[AddPartitionsToTxnTopicResult]


@message(api_key=ApiKey.ADD_PARTITIONS_TO_TXN, kind="response", versions=(0, 5), flexible_from=3)
class AddPartitionsToTxnResponse:
    throttle_time_ms: Int32
    error_code: Int16 = since(4, default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = since(4, default_factory=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(default_factory=list, until=3)
