"""A shard of groups whose leadership ends in the middle of its own write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import HOUR_MS, TopicPartition
from odradek.core.coordinators.durable import PendingWrite
from odradek.core.kernel.cluster_view import CONSUMER_OFFSETS
from odradek.core.kernel.moment import Moment
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from odradek.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from support.in_memory import Harness
from support.members import coordinator, join, stable, sync
from support.transactional import make_topic


def end_in_next_write(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next write find that the disk has failed, and that this broker is not the coordinator anymore.

    A write runs the steps that waited for earlier ones, and these may find both.
    """
    shards = harness.broker.groups.shards
    log = shards.shard(0).log
    append_encoded = log.append_encoded

    def append_and_end(batch: bytearray, now: Moment) -> PendingWrite:
        written = append_encoded(batch, now)
        monkeypatch.undo()
        harness.broker.partitions[TopicPartition(CONSUMER_OFFSETS, 0)].take_offline()
        shards.resign(0)
        return written

    monkeypatch.setattr(log, "append_encoded", append_and_end)


def beat(harness: Harness, **fields: object) -> ConsumerGroupHeartbeatResponse:
    values: dict[str, object] = {
        "group_id": "c",
        "member_id": "one",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    request = ConsumerGroupHeartbeatRequest(**values | fields)  # type: ignore[arg-type]
    return harness.request(request, 1, ConsumerGroupHeartbeatResponse)


def assigning(harness: Harness) -> Callable[[], int]:
    joined = join(harness)
    return lambda: sync(harness, joined).error_code


def leaving(harness: Harness) -> Callable[[], int]:
    request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=stable(harness).member_id)])
    return lambda: harness.request(request, 5, LeaveGroupResponse).members[0].error_code


def replacing(harness: Harness) -> Callable[[], int]:
    joined = join(harness, 5, group_instance_id="i")
    sync(harness, joined, group_instance_id="i")
    return lambda: join(harness, 5, group_instance_id="i").error_code


def deleting(harness: Harness) -> Callable[[], int]:
    leaving(harness)()
    return lambda: (
        harness.request(DeleteGroupsRequest(groups_names=["g"]), 2, DeleteGroupsResponse).results[0].error_code
    )


def beginning(harness: Harness) -> Callable[[], int]:
    return lambda: beat(harness).error_code


def subscribing(harness: Harness) -> Callable[[], int]:
    epoch = beat(harness).member_epoch
    return lambda: beat(harness, member_epoch=epoch, subscribed_topic_names=["t", "u"]).error_code


def going(harness: Harness) -> Callable[[], int]:
    beat(harness)
    beat(harness, member_id="two")
    return lambda: beat(harness, member_epoch=-1).error_code


@pytest.mark.parametrize("begun", [assigning, leaving, replacing, deleting, beginning, subscribing, going])
def test_shard_may_end_during_its_own_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: Callable[[Harness], Callable[[], int]]
) -> None:
    harness = coordinator(tmp_path)
    make_topic(harness, "t")
    write = begun(harness)
    end_in_next_write(harness, monkeypatch)
    # The record of an empty group may be lost: the member reappears, and leaves when its session ends.
    assert write() == (ErrorCode.NONE if begun is leaving else ErrorCode.NOT_COORDINATOR)
    for _ in range(3):
        harness.pass_time(HOUR_MS)
        harness.run_housekeeping()
