"""DescribeLogDirs: the data directories of a broker, and the size of each log in them (KIP-113).

v1: throttled after the answer. v2: flexible. v3: an error for the whole request (KIP-784). v4: the size of the volume
(KIP-827). v5: the cordoned state of the directory (KIP-1066).
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Bool, Int16, Int32, Int64, Str
from odradek.wire.schema.schema import message, since, struct


@struct
class DescribableLogDirTopic:
    topic: Str
    partitions: list[Int32]


@message(api_key=ApiKey.DESCRIBE_LOG_DIRS, kind="request", versions=(0, 5), flexible_from=2)
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None


@struct
class DescribeLogDirsPartition:
    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Bool


@struct
class DescribeLogDirsTopic:
    name: Str
    partitions: list[DescribeLogDirsPartition]


@struct
class DescribeLogDirsResult:
    error_code: Int16
    log_dir: Str
    topics: list[DescribeLogDirsTopic]
    total_bytes: Int64 = since(4, default=-1, ignorable=True)
    usable_bytes: Int64 = since(4, default=-1, ignorable=True)
    is_cordoned: Bool = since(5, default=False, ignorable=True)


@message(api_key=ApiKey.DESCRIBE_LOG_DIRS, kind="response", versions=(0, 5), flexible_from=2)
class DescribeLogDirsResponse:
    throttle_time_ms: Int32
    error_code: Int16 = since(3, default=0, ignorable=True)
    results: list[DescribeLogDirsResult]
