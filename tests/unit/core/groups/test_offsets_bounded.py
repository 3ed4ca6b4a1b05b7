"""Bounded size of a shard's log: it is compacted long before a segment is full."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import HOUR_MS, TopicPartition
from odradek.core.coordinators.shards import COMPACTED_FROM_BYTES
from odradek.core.kernel.cluster_view import CONSUMER_OFFSETS
from odradek.log.log.log import Log
from support.group_offsets import GroupOffsets, Kept
from support.in_memory import Harness
from support.transactional import Transactional, make_topic

pytestmark = pytest.mark.slow

NONE = ErrorCode.NONE
A, B, C = ("t", 0), ("t", 1), ("t", 2)
AT_ONCE = 4000  # Commits per request.


def log_of(harness: Harness) -> Log:
    return harness.broker.partitions[TopicPartition(CONSUMER_OFFSETS, 0)].log


def commit_often(group: GroupOffsets, times: int) -> int:
    """Commit the given number of times, and return the last offset."""
    request = group.request({A: 0}, 9)
    (part,) = request.topics[0].partitions
    for last in range(AT_ONCE, times + 1, AT_ONCE):
        request.topics[0].partitions = [
            type(part)(partition_index=0, committed_offset=offset, committed_metadata="")
            for offset in range(last - AT_ONCE + 1, last + 1)
        ]
        group.harness.send(request, 9)
        group.harness.settle()
        group.harness.pass_time(100)
        group.harness.run_housekeeping()
    return times


def crash(harness: Harness) -> None:
    harness.kill()
    harness.settle()


def run_housekeeping(harness: Harness) -> None:
    for _ in range(5):
        harness.pass_time(1000)
        harness.run_housekeeping()


def test_log_of_one_repeatedly_committed_offset_is_compacted(tmp_path: Path) -> None:
    """Compaction reaches an open transaction, and the end of the log after the transaction's end."""
    harness = Harness(tmp_path, offsets_topic_num_partitions="1")
    make_topic(harness, "t", 3)
    group = GroupOffsets(harness)
    group.commit({C: 8}, retention_ms=HOUR_MS, version=4)
    last = commit_often(group, 60_000)
    run_housekeeping(harness)
    assert log_of(harness).compaction.cleaned_to > last / 2
    assert log_of(harness).size < COMPACTED_FROM_BYTES
    producer = Transactional(harness, "p")
    producer.begin()
    group.commit_in(producer, {B: 7})
    last = commit_often(group, 48_000)
    crash(harness)
    assert group.fetch([B, C], is_stable=True) == {B: ErrorCode.UNSTABLE_OFFSET_COMMIT, C: Kept(8)}
    assert producer.end(commit=True) == NONE
    for _ in range(2):
        assert group.fetch(is_stable=True) == {A: Kept(last), B: Kept(7), C: Kept(8)}
        crash(harness)
        run_housekeeping(harness)
    assert log_of(harness).size < COMPACTED_FROM_BYTES / 50
    harness.pass_time(HOUR_MS)
    harness.run_housekeeping()
    assert group.fetch() == {A: Kept(last), B: Kept(7)}, "what has a time of its own has it still"
