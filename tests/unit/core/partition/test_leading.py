"""A leader and its followers: commits of records, the ISR, and proposals to the controller.

The followers are their fetches; the test sends the controller's responses (support/led.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_BROKER, BrokerId, LeaderEpoch, Offset, ProducerEpoch, ProducerId
from odradek.core.coordinators.durable import PendingWrite
from odradek.core.partition.alter_partition_manager import RETRY_MS
from odradek.core.partition.partition import Partition
from odradek.log.log.durability import flush_now
from support.asking import LEADER
from support.controlling import OTHER, Controlling, name_of
from support.in_memory import US, Harness
from support.led import ALL_THREE, LAG_MS_MAX, THIRD, Led
from support.rooms import interpreted
from support.watching import fail_disk_when_notified


@pytest.fixture
def led(tmp_path: Path) -> Led:
    return Led(tmp_path)


def test_record_is_committed_once_the_whole_isr_has_it(led: Led) -> None:
    led.fetch_as_follower(OTHER, THIRD)
    waiting = led.produce()
    assert led.is_waiting(waiting), "its own disk is not what it waits for"
    led.fetch_as_follower(OTHER)
    assert led.is_waiting(waiting)
    assert (led.high_watermark, led.visible()) == (0, 0)
    led.fetch_as_follower(THIRD)
    assert not led.is_waiting(waiting)
    assert led.produced(waiting) == (ErrorCode.NONE, 0)
    assert led.high_watermark == 1
    assert led.visible() > 0


def test_acks_1_write_is_acknowledged_before_it_is_visible(led: Led) -> None:
    led.fetch_as_follower(OTHER, THIRD)
    assert led.produced(led.produce(acks=LEADER)) == (ErrorCode.NONE, 0)
    assert led.visible() == 0
    led.fetch_as_follower(OTHER, THIRD)
    assert led.visible() > 0


def test_high_watermark_waits_for_the_first_fetch_of_each_follower(led: Led) -> None:
    """A new leader does not know the log end offsets of its followers."""
    led.produce()
    led.fetch_as_follower(OTHER)
    assert led.high_watermark == 0


def test_lagging_follower_delays_commits_until_its_removal(led: Led) -> None:
    led.fetch_as_follower(OTHER, THIRD)
    waiting = led.produce()
    led.pass_time(LAG_MS_MAX - 2000, OTHER)
    assert led.harness.broker.alter_partition.take_proposals() == []
    led.pass_time(4000, OTHER)
    pending = led.take_proposal()
    assert pending.proposal.isr == (US, OTHER)
    assert led.is_waiting(waiting), "the controller may elect the third still"
    led.answer_proposal(pending)
    assert led.high_watermark == 1
    assert led.leading.in_sync is not None
    assert led.leading.in_sync.committed.isr == (US, OTHER)
    assert led.produced(led.produce(b"b", acks=LEADER))[0] is ErrorCode.NONE


def test_follower_that_caught_up_joins_and_delays_commits(led: Led) -> None:
    assert led.controller.send_leader_and_isr("t", epoch=1, replicas=ALL_THREE) == {}
    led.fetch_as_follower(OTHER)
    led.pass_time(LAG_MS_MAX + 2000, OTHER)
    led.answer_proposal(led.take_proposal())
    assert led.high_watermark == 0
    led.produce(b"a", LEADER)
    led.fetch_as_follower(OTHER)
    assert led.high_watermark == 1
    led.fetch_as_follower(THIRD, offset=0)
    assert led.harness.broker.alter_partition.take_proposals() == [], "it is not there yet"
    led.fetch_as_follower(THIRD)
    pending = led.take_proposal()
    assert set(pending.proposal.isr) == set(ALL_THREE)
    led.produce(b"b", LEADER)
    led.fetch_as_follower(OTHER)
    assert led.high_watermark == 1, "the controller may have taken it in"
    led.answer_proposal(pending, ErrorCode.INELIGIBLE_REPLICA)
    led.pass_time(LAG_MS_MAX + 2000, OTHER)
    assert led.high_watermark == 2


def test_failed_proposal_is_retried(led: Led) -> None:
    led.fetch_as_follower(OTHER, THIRD)
    led.produce()
    led.pass_time(LAG_MS_MAX + 2000, OTHER)
    pending = led.take_proposal()
    for error in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR):
        led.answer_proposal(pending, error)
        assert led.harness.broker.alter_partition.take_proposals() == []
        led.harness.pass_time(RETRY_MS)
        pending = led.take_proposal()
    led.answer_proposal(pending)
    assert led.high_watermark == 1


def test_former_leader_retries_no_proposal(led: Led) -> None:
    led.fetch_as_follower(OTHER, THIRD)
    led.produce()
    led.pass_time(LAG_MS_MAX + 2000, OTHER)
    led.answer_proposal(led.take_proposal(), ErrorCode.NOT_CONTROLLER)
    assert led.controller.send_leader_and_isr("t", leader=OTHER, epoch=1, replicas=ALL_THREE) == {}
    led.harness.pass_time(RETRY_MS)
    assert led.harness.broker.alter_partition.take_proposals() == []


def test_controller_state_replaces_a_pending_proposal(led: Led) -> None:
    led.fetch_as_follower(OTHER, THIRD)
    waiting = led.produce()
    led.pass_time(LAG_MS_MAX + 2000, OTHER)
    pending = led.take_proposal()
    led.answer_proposal(pending, ErrorCode.INVALID_UPDATE_VERSION)
    assert led.is_waiting(waiting)
    assert led.controller.send_leader_and_isr("t", epoch=1, replicas=(US, OTHER)) == {}
    led.fetch_as_follower(OTHER)
    assert led.produced(waiting)[0] is ErrorCode.NONE


def test_acks_all_write_with_too_small_an_isr_is_refused(tmp_path: Path) -> None:
    led = Led(tmp_path, min_insync_replicas="2")
    led.fetch_as_follower(OTHER, THIRD)
    for follower in (THIRD, OTHER):
        alive = (OTHER,) if follower == THIRD else ()
        led.produce(acks=LEADER)
        led.pass_time(LAG_MS_MAX + 2000, *alive)
        led.answer_proposal(led.take_proposal())
    end = led.leading.log.end_offset
    assert led.produced(led.produce())[0] is ErrorCode.NOT_ENOUGH_REPLICAS
    assert led.leading.log.end_offset == end, "it was not written"
    assert led.produced(led.produce(acks=LEADER))[0] is ErrorCode.NONE
    assert led.high_watermark < led.leading.log.end_offset, "nothing is committed by too few"


def test_write_is_not_acknowledged_if_the_isr_shrinks_below_the_minimum(tmp_path: Path) -> None:
    led = Led(tmp_path, min_insync_replicas="2")
    led.fetch_as_follower(OTHER, THIRD)
    waiting = led.produce()
    led.pass_time(LAG_MS_MAX + 2000)
    led.answer_proposal(led.take_proposal())
    assert led.is_waiting(waiting)
    assert led.produced(waiting)[0] is ErrorCode.REQUEST_TIMED_OUT


def test_resigning_leader_fails_parked_writes(led: Led) -> None:
    led.fetch_as_follower(OTHER, THIRD)
    waiting = led.produce()
    assert led.controller.send_leader_and_isr("t", leader=NO_BROKER, epoch=1, replicas=ALL_THREE) == {}
    assert led.produced(waiting)[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert led.controller.send_leader_and_isr("t", epoch=2, replicas=ALL_THREE) == {}
    assert led.high_watermark == 0, "what followers have is asked anew"
    led.fetch_as_follower(OTHER, THIRD)
    assert led.high_watermark == 1


def test_follower_that_lost_its_log_does_not_lower_the_high_watermark(led: Led) -> None:
    led.fetch_as_follower(OTHER, THIRD)
    led.produce()
    led.fetch_as_follower(OTHER, THIRD)
    led.fetch_as_follower(THIRD, offset=0)
    assert led.high_watermark == 1


@interpreted
def test_leader_whose_disk_fails_when_it_notifies_a_fetch_has_ended(led: Led, monkeypatch: pytest.MonkeyPatch) -> None:
    led.fetch_as_follower(OTHER, THIRD)
    waiting = led.produce()
    leading, partition = led.leading, led.leading.partition
    assert isinstance(partition, Partition)
    fail_disk_when_notified(partition, monkeypatch)
    partition.changed()
    assert not partition.is_online
    assert leading.ended is ErrorCode.KAFKA_STORAGE_ERROR
    assert not leading.advance(led.harness.now)
    assert leading.positions.high_watermark == 0
    assert led.is_waiting(waiting)


@interpreted
def test_replica_whose_disk_fails_when_it_becomes_leader_does_not_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its high watermark advances, and a fetch that is notified of that reads from the disk."""
    led = Led(tmp_path)
    led.produce(acks=LEADER)
    partition = led.leading.partition
    assert isinstance(partition, Partition)
    info = partition.info
    partition.follow(info._replace(leader=OTHER))
    flush_now(partition.log, led.harness.now.wall)
    partition.positions.advance_durable_end(partition.log.recovery_point)
    fail_disk_when_notified(partition, monkeypatch)
    partition.lead(info._replace(isr=(US,), leader_epoch=LeaderEpoch(info.leader_epoch + 1)), led.harness.now)
    assert not partition.is_online
    assert partition.leading is None


def test_leader_continues_when_replicas_are_removed_and_added(led: Led) -> None:
    waiting = led.produce()
    assert led.controller.send_leader_and_isr("t", epoch=1, replicas=(US,)) == {}
    led.harness.broker.moved(led.leading.name, led.harness.now)
    assert led.produced(waiting)[0] is ErrorCode.NONE, "there is nobody else"
    assert led.leading.in_sync is None
    writing = led.produce()
    assert led.produced(writing)[0] is ErrorCode.NONE
    assert led.controller.send_leader_and_isr("t", epoch=2, replicas=(US, OTHER)) == {}
    waiting = led.produce()
    assert led.is_waiting(waiting)
    led.fetch_as_follower(OTHER)
    assert led.produced(waiting)[0] is ErrorCode.NONE


def test_marker_is_safe_once_it_is_committed(led: Led) -> None:
    led.fetch_as_follower(OTHER, THIRD)
    append = led.leading.end_transaction(ProducerId(1), ProducerEpoch(0), 0, commit=True, now=led.harness.now)
    written = PendingWrite(append)
    assert not written.is_settled
    led.fetch_as_follower(OTHER, THIRD)
    assert written.is_safe


def test_fetches_of_unknown_brokers_and_old_epochs_are_refused(led: Led) -> None:
    with pytest.raises(Refused, match="NOT_LEADER_OR_FOLLOWER"):
        led.fetch_as_follower(BrokerId(9))
    led.fetch_as_follower(OTHER, broker_epoch=7)
    with pytest.raises(Refused, match="NOT_LEADER_OR_FOLLOWER"):
        led.fetch_as_follower(OTHER, broker_epoch=6)


def test_partition_without_followers_refuses_follower_fetches(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    Controlling(harness).create_topic("t")
    with pytest.raises(Refused, match="NOT_LEADER_OR_FOLLOWER"):
        harness.broker.partitions[name_of("t")].leader().fetched(OTHER, Offset(0), Offset(0), harness.now)
