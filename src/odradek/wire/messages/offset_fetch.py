"""OffsetFetch: the committed offsets of a group, -1 for a partition without a committed offset.

v0 read from ZooKeeper in Apache Kafka. v2: null topics requests all of them; an error_code for the whole answer
(KIP-88). v3: throttle time. v4: throttled after the answer (KIP-219). v5: committed_leader_epoch (KIP-320). v6:
flexible. v7: require_stable, no answer while a transaction is about to commit offsets (KIP-447). v8: many groups
instead of a single group and answer (KIP-709). v9: the member sends its epoch (KIP-848). v10: topic ids instead of
names (KIP-848).
"""

from odradek.base.uuids import ZERO_UUID
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Bool, Int16, Int32, Int64, Str, UuidField
from odradek.wire.schema.schema import field, message, since, struct


@struct
class OffsetFetchRequestTopic:
    name: Str
    partition_indexes: list[Int32]


@struct
class OffsetFetchRequestTopics:
    name: Str = field(default="", until=9, ignorable=True)
    topic_id: UuidField = since(10, default=ZERO_UUID, ignorable=True)
    partition_indexes: list[Int32]


@struct
class OffsetFetchRequestGroup:
    group_id: Str
    member_id: Str | None = since(9, default=None, ignorable=True)
    member_epoch: Int32 = since(9, default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None


@message(api_key=ApiKey.OFFSET_FETCH, kind="request", versions=(0, 10), flexible_from=6)
class OffsetFetchRequest:
    group_id: Str = field(default="", until=7)
    topics: list[OffsetFetchRequestTopic] | None = field(default_factory=list, until=7, nullable_since=2)
    groups: list[OffsetFetchRequestGroup] = since(8, default_factory=list)
    require_stable: Bool = since(7, default=False)


@struct
class OffsetFetchResponsePartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(5, default=-1, ignorable=True)
    metadata: Str | None
    error_code: Int16


@struct
class OffsetFetchResponseTopic:
    name: Str
    partitions: list[OffsetFetchResponsePartition]


@struct
class OffsetFetchResponsePartitions:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(default=-1)
    metadata: Str | None
    error_code: Int16


@struct
class OffsetFetchResponseTopics:
    name: Str = field(default="", until=9, ignorable=True)
    topic_id: UuidField = since(10, default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions]


@struct
class OffsetFetchResponseGroup:
    group_id: Str
    topics: list[OffsetFetchResponseTopics]
    error_code: Int16 = field(default=0)


@message(api_key=ApiKey.OFFSET_FETCH, kind="response", versions=(0, 10), flexible_from=6)
class OffsetFetchResponse:
    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field(default_factory=list, until=7)
    error_code: Int16 = since(2, default=0, until=7, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = since(8, default_factory=list)
