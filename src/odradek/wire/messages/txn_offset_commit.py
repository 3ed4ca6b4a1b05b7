"""TxnOffsetCommit: offsets that take effect when the transaction commits.

v1: throttled after the answer (KIP-219). v2: committed_leader_epoch (KIP-320). v3: flexible; generation, member and
group_instance_id, to fence an old consumer (KIP-447). v4: may answer TRANSACTION_ABORTABLE (KIP-890). v5: the group
does not have to be added to the transaction before (KIP-890). v6: topic ids instead of names.
"""

from odradek.base.uuids import ZERO_UUID
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Int16, Int32, Int64, Str, UuidField
from odradek.wire.schema.schema import field, message, since, struct


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(2, default=-1, ignorable=True)
    committed_metadata: Str | None


@struct
class TxnOffsetCommitRequestTopic:
    name: Str = field(default="", until=5, ignorable=True)
    topic_id: UuidField = since(6, default=ZERO_UUID, ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition]


@message(api_key=ApiKey.TXN_OFFSET_COMMIT, kind="request", versions=(0, 6), flexible_from=3)
class TxnOffsetCommitRequest:
    transactional_id: Str
    group_id: Str
    producer_id: Int64
    producer_epoch: Int16
    generation_id_or_member_epoch: Int32 = since(3, default=-1)
    member_id: Str = since(3, default="")
    group_instance_id: Str | None = since(3, default=None)
    topics: list[TxnOffsetCommitRequestTopic]


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16


@struct
class TxnOffsetCommitResponseTopic:
    name: Str = field(default="", until=5, ignorable=True)
    topic_id: UuidField = since(6, default=ZERO_UUID, ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition]


@message(api_key=ApiKey.TXN_OFFSET_COMMIT, kind="response", versions=(0, 6), flexible_from=3)
class TxnOffsetCommitResponse:
    throttle_time_ms: Int32
    topics: list[TxnOffsetCommitResponseTopic]
