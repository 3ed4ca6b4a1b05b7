"""Responses of a coordinator during the load of a large log."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.core.coordinators.shards import LOADED_AT_ONCE_BYTES
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from support.group_offsets import GroupOffsets, Kept, groups
from support.in_memory import Harness
from support.transactional import make_topic

pytestmark = pytest.mark.slow

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.fixture
def loading(tmp_path: Path) -> Harness:
    """Return a broker that has just started to load the group "g"."""
    harness = Harness(tmp_path)
    make_topic(harness, "t")
    for offset in range(LOADED_AT_ONCE_BYTES // 4000):
        GroupOffsets(harness).commit({("t", 0): Kept(offset, "x" * 4000)})
    harness.restart()
    return harness


def test_list_groups_returns_load_in_progress(loading: Harness) -> None:
    answer = loading.request(ListGroupsRequest(), 5, ListGroupsResponse)
    assert (answer.error_code, answer.groups) == (LOADING, [])
    loading.settle()
    assert groups(loading) == {"g"}


@pytest.mark.parametrize("version", range(5))
def test_heartbeat_succeeds_for_any_member(loading: Harness, version: int) -> None:
    """As in Apache Kafka: clients treat this error of a heartbeat as a bug."""
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert loading.request(request, version, HeartbeatResponse).error_code == ErrorCode.NONE
    loading.settle()
    assert loading.request(request, version, HeartbeatResponse).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
def test_transactional_commit_error_depends_on_the_version(loading: Harness, version: int) -> None:
    """Producers before 2.0 fail at an error that they do not expect here (KAFKA-7296)."""
    part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    request = TxnOffsetCommitRequest(
        transactional_id="p",
        group_id="g",
        producer_id=0,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[part])],
    )
    (topic,) = loading.request(request, version, TxnOffsetCommitResponse).topics
    code = LOADING if version >= 2 else ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [one.error_code for one in topic.partitions] == [code]
