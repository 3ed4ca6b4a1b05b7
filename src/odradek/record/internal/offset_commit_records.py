"""Committed offsets as records of __consumer_offsets.

The oldest brokers wrote the legacy key and value. Value v1: expire_timestamp, for a commit with a retention time,
removed in v2 (KIP-211). v3: leader_epoch (KIP-320). v4: flexible, topic_id; Apache Kafka 4.3 writes this version.
"""

from odradek.base.uuids import ZERO_UUID
from odradek.wire.schema.primitives import Int32, Int64, Str, UuidField
from odradek.wire.schema.schema import maker, message, since


@message(api_key=0, kind="coordinator-key", versions=(0, 0), flexible_from=None)
class LegacyOffsetCommitKey:
    group: Str
    topic: Str
    partition: Int32


@message(api_key=0, kind="coordinator-value", versions=(0, 0), flexible_from=None)
class LegacyOffsetCommitValue:
    offset: Int64
    metadata: Str
    commit_timestamp: Int64


@message(api_key=1, kind="coordinator-key", versions=(0, 0), flexible_from=None)
class OffsetCommitKey:
    group: Str
    topic: Str
    partition: Int32


@message(api_key=1, kind="coordinator-value", versions=(0, 4), flexible_from=4)
class OffsetCommitValue:
    offset: Int64
    leader_epoch: Int32 = since(3, default=-1, ignorable=True)
    metadata: Str
    commit_timestamp: Int64
    expire_timestamp: Int64 = since(1, default=-1, until=1, ignorable=True)
    topic_id: UuidField = since(4, default=ZERO_UUID, tag=0, ignorable=True)


offset_commit_value = maker(OffsetCommitValue)
