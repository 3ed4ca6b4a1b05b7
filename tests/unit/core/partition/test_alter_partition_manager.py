"""Checks of a leader for lagging followers, and batching of its ISR proposals."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.api.request.sliced_response import whole
from odradek.base.errors import ErrorCode
from odradek.base.units import SECOND_MS, BrokerId, Offset, TopicName
from odradek.core.kernel.cluster_view import BrokerInfo
from odradek.core.partition import alter_partition_manager as alter_partition
from odradek.core.partition.alter_partition_manager import CHECKS_PER_LAG, SYNCED_MS
from support.controlling import OTHER, Controlling
from support.in_memory import US, Harness
from support.logs import batch

T = TopicName("t")
PARTITIONS = 5


def led(folder: Path, lag_ms_max: int) -> Harness:
    """Return a broker that leads partitions with a follower that lacks only the last record."""
    harness = Harness(folder, replica_lag_time_max_ms=str(lag_ms_max))
    controller = Controlling(harness)
    view = harness.broker.view
    view.brokers = {**view.brokers, OTHER: BrokerInfo(OTHER)}
    assert controller.send_leader_and_isr(T, *range(PARTITIONS), replicas=(US, OTHER), is_new=True) == {}
    for index in range(PARTITIONS):
        leading = harness.broker.leader(T, index)
        leading.fetched(OTHER, Offset(0), Offset(0), harness.now)
        harness.broker.stage(leading, batch(b"a"), harness.now, all_replicas=False)
    harness.broker.commit(harness.now)
    return harness


@pytest.mark.parametrize("lag_ms_max", [500, 2000, 10_000, 30_000, 90_000])
def test_lagging_follower_is_proposed_for_removal_soon(tmp_path: Path, lag_ms_max: int) -> None:
    harness = led(tmp_path, lag_ms_max)
    manager, passed = harness.broker.alter_partition, 0
    while not manager.has_proposals:
        harness.pass_time(SECOND_MS)
        passed += SECOND_MS
        harness.run_housekeeping()
        assert passed <= lag_ms_max + lag_ms_max // CHECKS_PER_LAG + 2 * SECOND_MS
    assert passed > lag_ms_max
    assert [one.proposal.isr for one in manager.take_proposals()] == [(US,)] * PARTITIONS


def test_leader_syncs_before_it_proposes_itself_as_the_only_isr_member(tmp_path: Path) -> None:
    """After that change no other replica with the acknowledged records can be elected."""
    harness = led(tmp_path, 2000)
    leading = harness.broker.leader(T, 0)
    leading.fetched(OTHER, leading.log.end_offset, Offset(0), harness.now)
    harness.broker.stage(leading, batch(b"b"), harness.now, all_replicas=False)
    harness.broker.commit(harness.now)
    assert leading.positions.durable_end < leading.positions.high_watermark
    harness.pass_time(5000)
    manager = harness.broker.alter_partition
    whole(manager.shrink(harness.now))
    assert [one.leading.name.partition for one in manager.take_proposals()] == [1, 2, 3, 4]
    harness.pass_time(SYNCED_MS)
    assert not manager.has_proposals, "nothing was synced"
    harness.settle()
    assert leading.positions.durable_end == leading.log.end_offset
    harness.pass_time(SYNCED_MS)
    assert [one.leading for one in manager.take_proposals()] == [leading]


def test_each_request_has_a_limited_number_of_proposals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alter_partition, "PROPOSALS_PER_REQUEST_MAX", 2)
    harness = led(tmp_path, 2000)
    harness.pass_time(5000)
    manager = harness.broker.alter_partition
    whole(manager.shrink(harness.now))
    taken: list[list[int]] = []
    while manager.has_proposals:
        taken.append([one.leading.name.partition for one in manager.take_proposals()])
    assert taken == [[0, 1], [2, 3], [4]]


def test_former_leader_proposes_no_change(tmp_path: Path) -> None:
    harness = led(tmp_path, 2000)
    harness.pass_time(5000)
    manager = harness.broker.alter_partition
    whole(manager.shrink(harness.now))
    assert Controlling(harness).send_leader_and_isr(T, 0, leader=BrokerId(-1), epoch=1, replicas=(US, OTHER)) == {}
    assert [one.leading.name.partition for one in manager.take_proposals()] == [1, 2, 3, 4]
    assert not manager.has_proposals


def test_isr_changes_and_failures_are_counted(tmp_path: Path) -> None:
    """Expected responses are counted as shrinks, expansions, and failures, which are retried."""
    harness = led(tmp_path, 2000)
    harness.pass_time(5000)
    manager, counts = harness.broker.alter_partition, harness.broker.alter_partition.counts
    whole(manager.shrink(harness.now))
    first, second, *_ = manager.take_proposals()
    manager.on_proposal_answered(first, ErrorCode.UNKNOWN_SERVER_ERROR, None, harness.now)
    assert (counts.shrinks, counts.expands, counts.failures) == (0, 0, 1)
    for _ in range(2):  # A repeated response changes nothing.
        shrunk = second.proposal._replace(partition_epoch=second.proposal.partition_epoch + 1)
        manager.on_proposal_answered(second, ErrorCode.NONE, shrunk, harness.now)
        assert (counts.shrinks, counts.expands, counts.failures) == (1, 0, 1)
    second.leading.fetched(OTHER, second.leading.log.end_offset, Offset(0), harness.now)
    grows = next(one for one in manager.take_proposals() if one.leading is second.leading)
    grown = grows.proposal._replace(partition_epoch=grows.proposal.partition_epoch + 1)
    manager.on_proposal_answered(grows, ErrorCode.NONE, grown, harness.now)
    assert (counts.shrinks, counts.expands, counts.failures) == (1, 1, 1)
