"""Damaged replicas: they leave the ISR, are truncated to the damage and follow; the last in sync is kept."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest
from simdisk import SimDisk, Stopped

from odradek.base.errors import ErrorCode
from odradek.base.units import NO_BROKER, BrokerId, LeaderEpoch, Offset, TimestampMs, TopicName
from odradek.core.controller.broker_request_batch import PartitionMetadata, UpdateMetadata
from odradek.core.kernel.cluster_view import LeaderAndIsr
from odradek.core.partition.partition import Partition
from odradek.log.directory.directory import LogDirectory
from odradek.log.directory.directory_loading import open_log_directory
from odradek.log.files.disk import DiskFailed
from odradek.log.files.disk_failures import LogDamaged
from odradek.log.files.log_config import LogConfig
from odradek.log.log.damage_cut import DamageCut
from odradek.log.log.durability import flush_now
from odradek.log.log.log import Log
from odradek.log.log.truncation import truncate_to
from odradek.record.builder import encode_batch
from odradek.record.record_batch import Batch
from support.controlling import OTHER, name_of, topic_id
from support.in_memory import US
from support.led import ALL_THREE, LAG_MS_MAX, THIRD, Led
from support.rooms import interpreted
from support.stray_files import stored_offsets

T0 = name_of("t")
STORAGE_ERROR = {"t-0": ErrorCode.KAFKA_STORAGE_ERROR}
RECORDS = 10
NOW_MS = TimestampMs(1_700_000_000_000)
SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100, retention_ms=-1, file_delete_delay_ms=1000)
STORED, DAMAGED = 20, 7
BASE_OFFSET, LENGTH, BODY = 6, 8, 61  # Unchecked, found by a walk, found by the checksum.


@pytest.fixture
def led(tmp_path: Path) -> Led:
    return fill(Led(tmp_path))


def fill(led: Led) -> Led:
    for _ in range(RECORDS):
        led.produce(acks=1)
    led.fetch_as_follower(OTHER, THIRD)
    assert led.high_watermark == RECORDS
    return led


def partition_of(led: Led) -> Partition:
    return led.harness.broker.partitions[T0]


def damage(led: Led, offset: int, byte: int = LENGTH, *, is_noticed: bool = True) -> None:
    """Flip bits of the batch at an offset; if `is_noticed`, also read it."""
    log = partition_of(led).log
    place = log.active.find_batch(offset)
    assert place is not None
    path = Path(log.active.path)
    data = bytearray(path.read_bytes())
    data[place.position + byte] ^= 0x7F
    path.write_bytes(data)
    if is_noticed:
        assert log.active.note_damage(place.position, "it was flipped")
        log._report_damage()


def rounds(led: Led, count: int = 2) -> int:
    """Run rounds of housekeeping; return the number of replicas that went offline or returned."""
    before = led.harness.broker.replicas.changes
    for _ in range(count):
        led.harness.pass_time(1000)
        led.harness.run_housekeeping()
    return led.harness.broker.replicas.changes - before


def update_metadata(led: Led, leader: BrokerId, epoch: int, isr: tuple[BrokerId, ...]) -> None:
    """Send UpdateMetadata with an ISR."""
    known = led.harness.broker.view.brokers
    state = LeaderAndIsr(leader, LeaderEpoch(epoch), isr, controller_epoch=led.controller.epoch)
    states = {T0: PartitionMetadata(state, ALL_THREE, ())}
    ids = {TopicName("t"): topic_id("t")}
    assert led.controller.send(UpdateMetadata(states, ids, tuple(known.values()), False)) == {}


def follows(led: Led, epoch: int) -> None:
    assert led.controller.send_leader_and_isr("t", leader=OTHER, epoch=epoch, replicas=ALL_THREE) == {}
    assert partition_of(led).info.leader == OTHER


@pytest.mark.parametrize("byte", [LENGTH, BODY])
@pytest.mark.parametrize("offset", [0, 4, RECORDS - 1])
def test_damaged_leader_is_truncated_after_another_is_elected(
    led: Led, byte: int, offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    damage(led, offset, byte)
    waiting = led.produce()
    before = Path(partition_of(led).log.active.path).read_bytes()
    assert rounds(led) == 1
    assert led.produced(waiting)[0] is ErrorCode.KAFKA_STORAGE_ERROR
    assert led.controller.send_leader_and_isr("t", replicas=ALL_THREE) == STORAGE_ERROR
    assert rounds(led, 10) == 0, "the controller has not elected another one yet"
    update_metadata(led, OTHER, 1, (OTHER, THIRD))
    assert rounds(led, 10) == 1
    assert T0 not in led.harness.broker.partitions
    follows(led, 1)
    log = partition_of(led).log
    assert (log.end_offset, partition_of(led).positions.high_watermark) == (offset, offset)
    assert not log.damaged_places
    assert rounds(led, 10) == 0
    directory = Path(log.directory)
    (aside,) = directory.glob("*.aside*")
    assert aside.name == f"{offset:020}.log.aside"
    assert Path(log.active.path).read_bytes() + aside.read_bytes() == before
    here, set_aside = stored_offsets(log.disk, log.directory)
    assert (here, set_aside) == ([*range(offset)], [*range(offset + 1, RECORDS + 1)])
    assert f"t-0: truncated to offset {offset} (byte " in caplog.text
    assert f"moved to {aside}" in caplog.text


def test_replica_that_cannot_quarantine_its_damage_stays_offline(led: Led, caplog: pytest.LogCaptureFixture) -> None:
    """The disk is full, or an obstacle is in the way: nothing is truncated until it is removed."""
    damage(led, 4)
    log = partition_of(led).log
    before = Path(log.active.path).read_bytes()
    obstacle = Path(log.directory, f"{4:020}.log.aside.tmp")
    obstacle.mkdir()
    assert rounds(led) == 1
    assert led.controller.send_leader_and_isr("t", replicas=ALL_THREE) == STORAGE_ERROR
    update_metadata(led, OTHER, 1, (OTHER, THIRD))
    assert rounds(led, 200) == 0
    assert not partition_of(led).is_online
    assert Path(log.active.path).read_bytes() == before
    assert caplog.text.count("failed to quarantine") == 1
    obstacle.rmdir()
    assert rounds(led, 70) == 1
    follows(led, 1)
    assert partition_of(led).log.end_offset == 4
    assert stored_offsets(log.disk, log.directory)[1] == [*range(5, RECORDS)]


def test_damaged_follower_is_truncated_after_it_left_the_isr(led: Led) -> None:
    follows(led, 1)
    update_metadata(led, OTHER, 1, ALL_THREE)
    damage(led, 4)
    assert rounds(led) == 1
    assert led.controller.send_leader_and_isr("t", leader=OTHER, epoch=1, replicas=ALL_THREE) == STORAGE_ERROR
    assert rounds(led, 10) == 0
    update_metadata(led, OTHER, 2, (OTHER, THIRD))
    assert rounds(led, 10) == 1
    follows(led, 2)
    assert partition_of(led).log.end_offset == 4


def test_last_replica_in_sync_is_not_truncated(led: Led) -> None:
    """All others failed before the controller could elect one, so the readable records are served."""
    damage(led, 4)
    assert rounds(led) == 1
    assert led.controller.send_leader_and_isr("t", replicas=ALL_THREE) == STORAGE_ERROR
    update_metadata(led, NO_BROKER, 1, (US,))
    assert rounds(led, 10) == 1
    assert led.controller.send_leader_and_isr("t", epoch=2, replicas=(US,)) == {}
    assert partition_of(led).log.end_offset == RECORDS
    assert partition_of(led).leading is not None
    assert rounds(led, 10) == 0


def test_damaged_leader_alone_in_the_isr_serves_the_rest(led: Led) -> None:
    assert led.controller.send_leader_and_isr("t", epoch=1, replicas=(US,)) == {}
    damage(led, 4)
    assert rounds(led, 10) == 0
    assert partition_of(led).leading is not None


@interpreted
def test_replica_whose_disk_fails_behind_a_damage_goes_offline(led: Led, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> bool:
        raise DiskFailed(errno.EIO, "Input/output error", path)

    partition = partition_of(led)
    path = partition.log.active.path
    monkeypatch.setattr(Log, "note_damage", fails)
    assert partition.disk_failed(LogDamaged(path, 61, "a walk has failed")).code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not partition.is_online


@pytest.mark.parametrize(("offset", "byte"), [(4, BODY), (4, BASE_OFFSET), (RECORDS - 1, BASE_OFFSET)])
def test_damage_that_blocks_a_follower_is_found(led: Led, offset: int, byte: int) -> None:
    """The follower refuses a wrong checksum or offset; the leader sent the batch without reading it."""
    damage(led, offset, byte, is_noticed=False)
    led.pass_time(2 * LAG_MS_MAX, OTHER)
    log = led.leading.log
    assert not log.damaged_places
    state = LeaderAndIsr(US, led.leading.epoch, (US, OTHER), partition_epoch=1)
    in_sync = led.leading.in_sync
    assert in_sync is not None
    in_sync.apply_leader_and_isr(state, ALL_THREE, log.end_offset, led.harness.now.steady)
    led.fetch_as_follower(THIRD, offset=0)
    assert rounds(led, 5) == 1
    assert log.damaged_places == 1
    assert not partition_of(led).is_online


class Stored:
    """A log of several segments on a simulated disk, with damage amid a segment before the last."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.directory = open_directory(self.disk)
        self.log = self.directory.create(T0, None, SMALL, NOW_MS)
        for number in range(STORED):
            raw = encode_batch([(None, b"%d" % number, (), NOW_MS)])
            self.log.append(Batch.checked(memoryview(bytearray(raw))), LeaderEpoch(0), NOW_MS)
        flush_now(self.log, NOW_MS)
        self.directory.checkpoints.begin_checkpoint({T0: Offset(STORED)})
        self.directory.checkpoints.write_now()
        segment = [one for one in self.log.segments if one.base_offset <= DAMAGED][-1]
        place = segment.find_batch(Offset(DAMAGED))
        assert place is not None
        assert segment is not self.log.active
        file = self.disk.open(segment.path)
        file.write(place.position + BODY, b"\xff")
        file.sync()
        self.note(self.log)

    @staticmethod
    def note(log: Log) -> None:
        segment = [one for one in log.segments if one.base_offset <= DAMAGED][-1]
        place = segment.find_batch(Offset(DAMAGED))
        assert place is not None
        segment.note_damage(place.position, "it was flipped")

    @staticmethod
    def cut(log: Log) -> DamageCut:
        cut = DamageCut(log, Offset(DAMAGED), "it was flipped")
        cut.run()
        if cut.failure is None:
            assert cut.finish(NOW_MS)
        return cut


def open_directory(disk: SimDisk) -> LogDirectory:
    return open_log_directory(disk, "/a", NOW_MS, broker_id=US, cluster_id="c", config_of=lambda _: SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("power_fails", [False, True])
def test_stop_at_any_call_of_a_truncation_loses_nothing(power_fails: bool) -> None:
    """Each record is in the log or in quarantine, and the log is consecutive, unchanged or shorter."""
    number, ended = 0, False
    whole = {*range(STORED)} - {DAMAGED}
    while not ended:
        stored = Stored()
        stored.disk.stop_at(number)
        try:
            Stored.cut(stored.log)
            ended = True
        except Stopped:
            pass
        stored.disk.stop_at(None)
        for seed in range(6 if power_fails else 1):
            survivor = stored.disk.crash(Random(seed)) if power_fails else stored.disk.kill()
            log = open_directory(survivor).logs[T0]
            here, aside = stored_offsets(survivor, "/a/t-0")
            assert {*here, *aside} >= whole, (number, seed)
            assert here == [one for one in range(len(here) + (len(here) > DAMAGED)) if one != DAMAGED], (number, seed)
            if log.end_offset > DAMAGED:
                Stored.note(log)
                Stored.cut(log)
            here, aside = stored_offsets(survivor, "/a/t-0")
            assert here == [*range(DAMAGED)], (number, seed)
            assert {*aside} == {*range(DAMAGED + 1, STORED)}, (number, seed)
        number += 1
    assert number > 30


def test_truncation_on_a_full_disk_changes_nothing() -> None:
    stored = Stored()
    names = {entry.name for entry in stored.disk.entries("/a/t-0")}
    stored.disk.room = 10
    failure = Stored.cut(stored.log).failure
    assert failure is not None
    assert failure.is_full
    assert {entry.name for entry in stored.disk.entries("/a/t-0")} == names
    assert stored.log.end_offset == STORED
    stored.disk.mend()
    aside = Stored.cut(stored.log).aside
    assert aside.paths[0] == f"/a/t-0/{DAMAGED:020}.log.aside"
    assert len(aside.paths) > 1
    assert stored.log.end_offset == DAMAGED


def test_truncation_of_a_changed_log_is_not_finished() -> None:
    stored = Stored()
    cut = DamageCut(stored.log, Offset(DAMAGED), "it was flipped")
    assert not cut.finish(NOW_MS), "nothing was set aside yet"
    cut.run()
    truncate_to(stored.log, Offset(STORED - 1), NOW_MS)
    assert not cut.finish(NOW_MS)
    assert stored.log.end_offset == STORED - 1


def test_damaged_replica_stays_leader_with_a_controller_before_kafka_1(tmp_path: Path) -> None:
    led = fill(Led(tmp_path, inter_broker="0.11.0"))
    damage(led, 4)
    assert rounds(led, 10) == 0
    assert partition_of(led).leading is not None
