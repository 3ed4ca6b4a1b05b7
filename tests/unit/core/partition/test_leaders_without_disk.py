"""A leader whose disk fails or is full has another replica lead; with a disk that has room again it follows."""

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
    """The look for room finds none, until this is undone."""

    def refuses(*_: object, **__: object) -> None:
        raise FULL

    monkeypatch.setattr(probe, "replace_file", refuses)
    return monkeypatch


def partition_of(led: Led, name: TopicPartition = T0) -> Partition:
    return led.harness.broker.partitions[name]


def rounds(led: Led) -> int:
    """Has two rounds of housekeeping done; returns how many replicas went or came back."""
    before = led.harness.broker.replicas.changes
    for _ in range(2):
        led.harness.pass_time(1000)
        led.harness.keep_house()
    return led.harness.broker.replicas.changes - before


def test_another_one_leads_while_there_is_no_room(led: Led, has_no_room: pytest.MonkeyPatch) -> None:
    waiting = led.produce()
    partition_of(led).disk_failed(FULL)
    assert rounds(led) == 1
    assert led.produced(waiting)[0] is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(Refused, match="offline"):
        _ = led.leading
    # The controller asks, takes us out of the ISR and stops what it can't reach.
    assert led.controller.leads("t", replicas=ALL_THREE) == STORAGE_ERROR
    assert led.controller.stops("t") == STORAGE_ERROR
    assert rounds(led) == 0
    has_no_room.undo()
    assert rounds(led) == 1
    assert T0 not in led.harness.broker.partitions
    assert led.controller.leads("t", leader=OTHER, epoch=1, replicas=ALL_THREE) == {}
    assert partition_of(led).info.leader == OTHER
    assert partition_of(led).log.end_offset == 1


def test_who_has_room_by_then_leads_on(led: Led) -> None:
    partition_of(led).disk_failed(FULL)
    led.produce()
    assert rounds(led) == 0
    assert partition_of(led).leading is not None


def test_who_is_alone_in_sync_leads_on(tmp_path: Path) -> None:
    led = Led(tmp_path)
    assert led.controller.leads("t", epoch=1, replicas=(US,)) == {}
    partition_of(led).disk_failed(FULL)
    assert rounds(led) == 0
    assert partition_of(led).leading is not None


def test_who_could_be_elected_has_to_live(led: Led) -> None:
    view = led.harness.broker.view
    view.brokers = {US: view.brokers[US]}
    partition_of(led).disk_failed(FULL)
    assert rounds(led) == 0


def test_a_want_of_descriptors_is_no_full_disk(led: Led) -> None:
    partition_of(led).disk_failed(OUT_OF_FILES)
    assert rounds(led) == 0
    assert partition_of(led).leading is not None


def test_the_controller_hears_of_one_log_that_failed(led: Led) -> None:
    partition_of(led).disk_failed(BROKEN)
    assert rounds(led) == 1
    assert led.controller.leads("t", replicas=ALL_THREE) == STORAGE_ERROR
    assert rounds(led) == 0


def test_a_follower_waits_for_room_and_goes_on(led: Led) -> None:
    assert led.controller.leads("t", leader=OTHER, epoch=1, replicas=ALL_THREE) == {}
    partition_of(led).disk_failed(FULL)
    assert rounds(led) == 0
    assert partition_of(led).is_online


def test_a_log_that_has_no_room_is_told_of_once(
    led: Led, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise FULL

    monkeypatch.setattr(Storage, "open", refuses)
    assert led.controller.leads("u", leader=OTHER, replicas=ALL_THREE) == {"u-0": ErrorCode.KAFKA_STORAGE_ERROR}
    assert rounds(led) == 0
    assert caplog.text.count("u-0 is offline") == 1
    monkeypatch.undo()
    assert rounds(led) == 1
    assert partition_of(led, name_of("u")).is_online


def test_a_topic_is_deleted_to_get_room(led: Led, has_no_room: pytest.MonkeyPatch) -> None:
    partition_of(led).disk_failed(FULL)
    assert rounds(led) == 1
    assert led.controller.deletes("t", 0) == {}
    assert T0 not in led.harness.broker.partitions
    assert led.controller.leads("t", epoch=1, replicas=ALL_THREE, generation=1, is_new=True) == {}
    has_no_room.undo()
    assert rounds(led) == 0
    assert partition_of(led).leading is not None, "it is another topic's"


def test_a_controller_of_before_kafka_1_is_not_left_without_a_leader(tmp_path: Path) -> None:
    led = Led(tmp_path, inter_broker="0.11.0")
    partition_of(led).disk_failed(FULL)
    assert rounds(led) == 0
    assert partition_of(led).leading is not None


def test_a_look_for_room_leaves_nothing(tmp_path: Path) -> None:
    one = probe.Probe(RealDisk(), str(tmp_path), probe.ROOM_BYTES)
    one.run()
    assert one.found_room
    assert not list(tmp_path.iterdir())
