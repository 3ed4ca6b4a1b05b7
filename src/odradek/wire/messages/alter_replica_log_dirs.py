"""AlterReplicaLogDirs: move of a broker's replicas to different data directories (KIP-113).

v1: throttled after the answer (KIP-219). v2: flexible.
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Int16, Int32, Str
from odradek.wire.schema.schema import message, struct


@struct
class AlterReplicaLogDirTopic:
    name: Str
    partitions: list[Int32]


@struct
class AlterReplicaLogDir:
    path: Str
    topics: list[AlterReplicaLogDirTopic]


@message(api_key=ApiKey.ALTER_REPLICA_LOG_DIRS, kind="request", versions=(0, 2), flexible_from=2)
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDir]


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: Int32
    error_code: Int16


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: Str
    partitions: list[AlterReplicaLogDirPartitionResult]


@message(api_key=ApiKey.ALTER_REPLICA_LOG_DIRS, kind="response", versions=(0, 2), flexible_from=2)
class AlterReplicaLogDirsResponse:
    throttle_time_ms: Int32
    results: list[AlterReplicaLogDirTopicResult]
