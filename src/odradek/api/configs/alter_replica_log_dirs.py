"""AlterReplicaLogDirs, versions 1 and 2.

Moves partitions between data directories (KIP-113). The response does not wait for the moves; DescribeLogDirs returns
their progress.

- v2: flexible.

Difference from Apache Kafka: a partition that does not exist yet is not created in the directory that the request
names for it.
"""

from __future__ import annotations

from odradek.api.request.call import Call
from odradek.api.request.sliced_response import Parts
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicName, TopicPartition
from odradek.core.broker.log_dirs import LogDir, log_dirs
from odradek.core.kernel.access import Operation, ResourceType
from odradek.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def handle(call: Call, body: AlterReplicaLogDirsRequest) -> Parts[AlterReplicaLogDirsResponse]:
    return _answer(call, body)


def _answer(call: Call, body: AlterReplicaLogDirsRequest) -> Parts[AlterReplicaLogDirsResponse]:
    if not call.may(Operation.ALTER, ResourceType.CLUSTER):
        return refuse(call, body, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    targets: dict[TopicPartition, str] = {}  # If a partition is named twice, the last directory applies.
    call.free_later(targets)
    for directory in body.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                targets[TopicPartition(TopicName(topic.name), index)] = directory.path
                yield
    directories = {log_dir.path: log_dir for log_dir in log_dirs(call.broker.storage)}
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for name, path in targets.items():
        code = _alter(call, name, directories.get(path))
        result = AlterReplicaLogDirPartitionResult(partition_index=name.partition, error_code=code)
        results.setdefault(name.topic, []).append(result)
        yield
    return AlterReplicaLogDirsResponse(
        throttle_time_ms=0,
        results=[
            AlterReplicaLogDirTopicResult(topic_name=topic, partitions=partitions)
            for topic, partitions in results.items()
        ],
    )


def refuse(call: Call, body: AlterReplicaLogDirsRequest, code: ErrorCode) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        throttle_time_ms=0,
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    for index in topic.partitions
                ],
            )
            for directory in body.dirs
            for topic in directory.topics
        ],
    )


def _alter(call: Call, name: TopicPartition, directory: LogDir | None) -> ErrorCode:
    """Start, redirect or end one partition's move."""
    try:
        call.broker.moves.alter(name, None if directory is None else directory.directory, call.now)
    except Refused as refused:
        # Apache Kafka returns this code to this request, in every version.
        is_elsewhere = refused.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.REPLICA_NOT_AVAILABLE if is_elsewhere else refused.code
    return ErrorCode.NONE
