"""Leaders with a failed or full disk: another replica is elected, and a leader with room again follows."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicPartition
from odradek.core.partition.partition import Partition
from odradek.core.partition.storage import Storage
from odradek.log.files import probe
from odradek.log.files.disk import DiskFailed, RealDisk
from support.controlling import OTHER, name_of
from support.in_memory import US
from support.led import ALL_THREE, Led

FULL = DiskFailed(errno.ENOSPC, "No space left on device", "t-0")
OUT_OF_FILES = DiskFailed(errno.EMFILE, "Too many open files", "t-0")
BROKEN = DiskFailed(errno.EIO, "Input/output error", "t-0")
T0 = name_of("t")
STORAGE_ERROR = {"t-0": ErrorCode.KAFKA_STORAGE_ERROR}


@pytest.fixture
def led(tmp_path: Path) -> Led:
    return Led(tmp_path)


@pytest.fixture
def has_no_room(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let the check for room find none until this is undone."""

    def refuses(*_: object, **__: object) -> None:
        raise FULL

    monkeypatch.setattr(probe, "replace_file", refuses)
    return monkeypatch


def partition_of(led: Led, name: TopicPartition = T0) -> Partition:
    return led.harness.broker.partitions[name]


def rounds(led: Led) -> int:
    """Run two rounds of housekeeping; return the number of replicas that went offline or returned."""
    before = led.harness.broker.replicas.changes
    for _ in range(2):
        led.harness.pass_time(1000)
        led.harness.run_housekeeping()
    return led.harness.broker.replicas.changes - before


def test_another_replica_leads_while_the_disk_is_full(led: Led, has_no_room: pytest.MonkeyPatch) -> None:
    waiting = led.produce()
    partition_of(led).disk_failed(FULL)
    assert rounds(led) == 1
    assert led.produced(waiting)[0] is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(Refused, match="offline"):
        _ = led.leading
    # The controller sends its request, removes this broker from the ISR and stops the offline replica.
    assert led.controller.send_leader_and_isr("t", replicas=ALL_THREE) == STORAGE_ERROR
    assert led.controller.send_stop_replica("t") == STORAGE_ERROR
    assert rounds(led) == 0
    has_no_room.undo()
    assert rounds(led) == 1
    assert T0 not in led.harness.broker.partitions
    assert led.controller.send_leader_and_isr("t", leader=OTHER, epoch=1, replicas=ALL_THREE) == {}
    assert partition_of(led).info.leader == OTHER
    assert partition_of(led).log.end_offset == 1


def test_leader_with_room_again_keeps_leading(led: Led) -> None:
    partition_of(led).disk_failed(FULL)
    led.produce()
    assert rounds(led) == 0
    assert partition_of(led).leading is not None


def test_leader_alone_in_the_isr_keeps_leading(tmp_path: Path) -> None:
    led = Led(tmp_path)
    assert led.controller.send_leader_and_isr("t", epoch=1, replicas=(US,)) == {}
    partition_of(led).disk_failed(FULL)
    assert rounds(led) == 0
    assert partition_of(led).leading is not None


def test_leader_resigns_only_if_another_in_sync_replica_is_alive(led: Led) -> None:
    view = led.harness.broker.view
    view.brokers = {US: view.brokers[US]}
    partition_of(led).disk_failed(FULL)
    assert rounds(led) == 0


def test_lack_of_descriptors_is_not_a_full_disk(led: Led) -> None:
    partition_of(led).disk_failed(OUT_OF_FILES)
    assert rounds(led) == 0
    assert partition_of(led).leading is not None


def test_controller_learns_of_a_single_failed_log(led: Led) -> None:
    partition_of(led).disk_failed(BROKEN)
    assert rounds(led) == 1
    assert led.controller.send_leader_and_isr("t", replicas=ALL_THREE) == STORAGE_ERROR
    assert rounds(led) == 0


def test_follower_with_a_full_disk_stays_online(led: Led) -> None:
    assert led.controller.send_leader_and_isr("t", leader=OTHER, epoch=1, replicas=ALL_THREE) == {}
    partition_of(led).disk_failed(FULL)
    assert rounds(led) == 0
    assert partition_of(led).is_online


def test_log_without_room_is_reported_once(
    led: Led, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise FULL

    monkeypatch.setattr(Storage, "open", refuses)
    assert led.controller.send_leader_and_isr("u", leader=OTHER, replicas=ALL_THREE) == {
        "u-0": ErrorCode.KAFKA_STORAGE_ERROR
    }
    assert rounds(led) == 0
    assert caplog.text.count("u-0 is offline") == 1
    monkeypatch.undo()
    assert rounds(led) == 1
    assert partition_of(led, name_of("u")).is_online


def test_topic_can_be_deleted_on_a_full_disk(led: Led, has_no_room: pytest.MonkeyPatch) -> None:
    partition_of(led).disk_failed(FULL)
    assert rounds(led) == 1
    assert led.controller.delete_topic("t", 0) == {}
    assert T0 not in led.harness.broker.partitions
    assert led.controller.send_leader_and_isr("t", epoch=1, replicas=ALL_THREE, generation=1, is_new=True) == {}
    has_no_room.undo()
    assert rounds(led) == 0
    assert partition_of(led).leading is not None, "it is another topic's"


def test_full_disk_keeps_its_leader_with_a_controller_before_kafka_1(tmp_path: Path) -> None:
    led = Led(tmp_path, inter_broker="0.11.0")
    partition_of(led).disk_failed(FULL)
    assert rounds(led) == 0
    assert partition_of(led).leading is not None


def test_check_for_room_leaves_no_files(tmp_path: Path) -> None:
    one = probe.Probe(RealDisk(), str(tmp_path), probe.ROOM_BYTES)
    one.run()
    assert one.found_room
    assert not list(tmp_path.iterdir())
