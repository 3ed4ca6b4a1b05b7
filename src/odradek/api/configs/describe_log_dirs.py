"""DescribeLogDirs, versions 1 to 5.

Returns the data directories of this broker, and the size of each log in them (KIP-113). A size is that of the .log
files, without their indexes.

- v2: flexible.
- v3: an error for the whole request (KIP-784).
- v4: the size of the volume (KIP-827).
- v5: whether the directory is cordoned (KIP-1066); in Odradek, none is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from odradek.api.request.call import Call
from odradek.api.request.outcome import Slices
from odradek.api.request.sliced_response import CHEAP, Parts, pauses
from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.core.broker.log_dirs import LogDir, Volume, log_dirs
from odradek.core.kernel.access import Operation, ResourceType
from odradek.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

SEGMENTS_PER_PART = 200  # The number of sizes that are summed in some ten microseconds.

RequestedPartitions: TypeAlias = dict[str, set[int]] | None  # None means all partitions.


def handle(call: Call, body: DescribeLogDirsRequest) -> Slices:
    if not call.may(Operation.DESCRIBE, ResourceType.CLUSTER):
        return refuse(call, body, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    requested = yield from _requested(body)
    results = []
    for directory in log_dirs(call.broker.storage):
        if not directory.is_online:
            results.append(_result(directory, ErrorCode.KAFKA_STORAGE_ERROR))
            continue
        volume = yield directory.read_volume()
        assert isinstance(volume, Volume)
        topics = yield from _topics(call, directory, requested)
        results.append(_result(directory, ErrorCode.NONE, topics, volume))
    return DescribeLogDirsResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, results=results)


def refuse(call: Call, body: DescribeLogDirsRequest, code: ErrorCode) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(throttle_time_ms=0, error_code=code, results=[])


def _requested(body: DescribeLogDirsRequest) -> Parts[RequestedPartitions]:
    """Return the requested partitions, by topic."""
    if body.topics is None:
        return None
    requested: dict[str, set[int]] = {}
    for topic in body.topics:
        requested.setdefault(topic.topic, set()).update(topic.partitions)
        yield from pauses(1 + len(topic.partitions) // CHEAP)
    return requested


def _topics(call: Call, directory: LogDir, requested: RequestedPartitions) -> Parts[list[DescribeLogDirsTopic]]:
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    names = directory.names() if requested is None else _named(requested)
    for number, name in enumerate(names, 1):
        found = directory.size_of(name)  # Its topic may be deleted while other requests run.
        if found is not None:
            part = DescribeLogDirsPartition(
                partition_index=name.partition, partition_size=found.size, offset_lag=0, is_future_key=False
            )
            topics.setdefault(name.topic, []).append(part)
            yield from pauses(found.segments // SEGMENTS_PER_PART)
        if not number % CHEAP:
            yield
    for name in directory.futures():
        future = (
            directory.future_of(name) if requested is None or name.partition in requested.get(name.topic, ()) else None
        )
        partition = call.broker.partitions.get(name)
        if future is not None and partition is not None and partition.is_online:
            part = DescribeLogDirsPartition(
                partition_index=name.partition,
                partition_size=future.size,
                offset_lag=max(partition.log.end_offset - future.end_offset, 0),
                is_future_key=True,
            )
            topics.setdefault(name.topic, []).append(part)
        yield
    return [DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()]


def _named(requested: dict[str, set[int]]) -> Iterator[TopicPartition]:
    """Yield partitions one by one: listing all that a request may name takes tens of milliseconds."""
    for topic, indexes in requested.items():
        for index in indexes:
            yield TopicPartition(TopicName(topic), index)


def _result(
    directory: LogDir,
    code: ErrorCode,
    topics: list[DescribeLogDirsTopic] | None = None,
    volume: Volume | None = None,
) -> DescribeLogDirsResult:
    result = DescribeLogDirsResult(error_code=code, log_dir=directory.path, topics=topics or [])
    if volume is not None:
        result.total_bytes, result.usable_bytes = volume
    return result
