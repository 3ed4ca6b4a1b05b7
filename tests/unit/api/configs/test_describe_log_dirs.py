"""DescribeLogDirs: places and sizes of logs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from support.in_memory import Harness
from support.logs import put

LATEST = 5
RequestedTopic = tuple[str, list[int]]


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    made = Harness(tmp_path)
    topics = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[])
        for name, count in (("a", 3), ("b", 1))
    ]
    made.request(CreateTopicsRequest(topics=topics, timeout_ms=1_000), 5, CreateTopicsResponse)
    log = made.broker.partitions[TopicPartition(TopicName("a"), 1)].log
    for _ in range(3):
        put(log, b"some value")
        log.roll(made.now.wall)
    return made


def describe(harness: Harness, *requested: RequestedTopic, version: int = LATEST) -> DescribeLogDirsResult:
    topics = [DescribableLogDirTopic(topic=topic, partitions=indexes) for topic, indexes in requested]
    request = DescribeLogDirsRequest(topics=topics if requested else None)
    answer = harness.request(request, version, DescribeLogDirsResponse)
    assert answer.error_code == ErrorCode.NONE
    (result,) = answer.results
    assert result.error_code == ErrorCode.NONE
    return result


def sizes(result: DescribeLogDirsResult) -> dict[tuple[str, int], int]:
    assert all(not part.is_future_key and not part.offset_lag for topic in result.topics for part in topic.partitions)
    assert len({topic.name for topic in result.topics}) == len(result.topics)
    parts = [(topic.name, part) for topic in result.topics for part in topic.partitions]
    return {(topic, part.partition_index): part.partition_size for topic, part in parts}


@pytest.mark.parametrize("version", range(1, LATEST + 1))
def test_all_logs_are_described_with_their_size(harness: Harness, version: int, tmp_path: Path) -> None:
    result = describe(harness, version=version)
    written = sum(file.stat().st_size for file in tmp_path.glob("a-1/*.log"))
    assert written > 0
    assert sizes(result) == {("a", 0): 0, ("a", 1): written, ("a", 2): 0, ("b", 0): 0}
    assert result.log_dir == str(tmp_path.absolute())
    status = os.statvfs(tmp_path)
    expected = status.f_blocks * status.f_frsize if version >= 4 else -1
    assert result.total_bytes == expected
    assert (0 < result.usable_bytes <= expected) if version >= 4 else result.usable_bytes == -1
    assert not result.is_cordoned


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        ([("a", [1, 2])], {("a", 1), ("a", 2)}),
        ([("a", [1, 1, 9]), ("nowhere", [0])], {("a", 1)}),
        ([("a", [1]), ("a", [2])], {("a", 1), ("a", 2)}),
        ([("a", [])], set()),
        ([("nowhere", [0])], set()),
    ],
)
def test_only_requested_partitions_are_described(
    harness: Harness, requested: list[RequestedTopic], expected: set[tuple[str, int]]
) -> None:
    assert set(sizes(describe(harness, *requested))) == expected


def test_empty_topic_list_describes_no_topics(harness: Harness) -> None:
    answer = harness.request(DescribeLogDirsRequest(topics=[]), LATEST, DescribeLogDirsResponse)
    assert [result.topics for result in answer.results] == [[]]
