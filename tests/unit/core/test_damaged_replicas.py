"""A damaged replica leaves the in-sync replicas, is truncated to the damage and follows; the last in sync stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import NO_BROKER, BrokerId, LeaderEpoch, TopicName
from odradek.core.cluster import LeaderAndIsr
from odradek.core.controller.requests import PartitionMetadata, UpdateMetadata
from odradek.core.partition import Partition
from support.controlling import OTHER, name_of, topic_id
from support.in_memory import US
from support.led import ALL_THREE, LAG_MS_MAX, THIRD, Led

T0 = name_of("t")
STORAGE_ERROR = {"t-0": ErrorCode.KAFKA_STORAGE_ERROR}
RECORDS = 10
BASE_OFFSET, LENGTH, BODY = 6, 8, 61  # The bytes of a batch that are damaged: no checksum, a walk or a checksum tells.


@pytest.fixture
def led(tmp_path: Path) -> Led:
    return filled(Led(tmp_path))


def filled(led: Led) -> Led:
    for _ in range(RECORDS):
        led.produce(acks=1)
    led.fetches(OTHER, THIRD)
    assert led.high_watermark == RECORDS
    return led


def partition_of(led: Led) -> Partition:
    return led.harness.broker.partitions[T0]


def damage(led: Led, offset: int, byte: int = LENGTH, *, is_noticed: bool = True) -> None:
    """Flip bits of the batch at an offset; `is_noticed`: and read it."""
    log = partition_of(led).log
    place = log.active.find(offset)
    assert place is not None
    path = Path(log.active.path)
    data = bytearray(path.read_bytes())
    data[place.position + byte] ^= 0x7F
    path.write_bytes(data)
    if is_noticed:
        assert log.active.note_damage(place.position, "it was flipped")
        log._tell_damage()


def rounds(led: Led, count: int = 2) -> int:
    """Have rounds of housekeeping done; return how many replicas went or came back."""
    before = led.harness.broker.replicas.changes
    for _ in range(count):
        led.harness.pass_time(1000)
        led.harness.keep_house()
    return led.harness.broker.replicas.changes - before


def tells(led: Led, leader: BrokerId, epoch: int, isr: tuple[BrokerId, ...]) -> None:
    """UpdateMetadata with an ISR."""
    known = led.harness.broker.view.brokers
    state = LeaderAndIsr(leader, LeaderEpoch(epoch), isr, controller_epoch=led.controller.epoch)
    states = {T0: PartitionMetadata(state, ALL_THREE, ())}
    ids = {TopicName("t"): topic_id("t")}
    assert led.controller.says(UpdateMetadata(states, ids, tuple(known.values()), False)) == {}


def follows(led: Led, epoch: int) -> None:
    assert led.controller.leads("t", leader=OTHER, epoch=epoch, replicas=ALL_THREE) == {}
    assert partition_of(led).info.leader == OTHER


@pytest.mark.parametrize("byte", [LENGTH, BODY])
@pytest.mark.parametrize("offset", [0, 4, RECORDS - 1])
def test_a_damaged_leader_is_truncated_once_another_one_leads(led: Led, byte: int, offset: int) -> None:
    damage(led, offset, byte)
    waiting = led.produce()
    assert rounds(led) == 1
    assert led.produced(waiting)[0] is ErrorCode.KAFKA_STORAGE_ERROR
    assert led.controller.leads("t", replicas=ALL_THREE) == STORAGE_ERROR
    assert rounds(led, 10) == 0, "the controller has not elected another one yet"
    tells(led, OTHER, 1, (OTHER, THIRD))
    assert rounds(led, 10) == 1
    assert T0 not in led.harness.broker.partitions
    follows(led, 1)
    log = partition_of(led).log
    assert (log.end_offset, partition_of(led).positions.high_watermark) == (offset, offset)
    assert not log.damaged_places
    assert rounds(led, 10) == 0


def test_a_damaged_follower_is_truncated_once_it_is_out_of_the_isr(led: Led) -> None:
    follows(led, 1)
    tells(led, OTHER, 1, ALL_THREE)
    damage(led, 4)
    assert rounds(led) == 1
    assert led.controller.leads("t", leader=OTHER, epoch=1, replicas=ALL_THREE) == STORAGE_ERROR
    assert rounds(led, 10) == 0
    tells(led, OTHER, 2, (OTHER, THIRD))
    assert rounds(led, 10) == 1
    follows(led, 2)
    assert partition_of(led).log.end_offset == 4


def test_the_last_in_sync_is_kept_as_it_is(led: Led) -> None:
    """All others have failed before the controller could elect one: what can be read here is served."""
    damage(led, 4)
    assert rounds(led) == 1
    assert led.controller.leads("t", replicas=ALL_THREE) == STORAGE_ERROR
    tells(led, NO_BROKER, 1, (US,))
    assert rounds(led, 10) == 1
    assert led.controller.leads("t", epoch=2, replicas=(US,)) == {}
    assert partition_of(led).log.end_offset == RECORDS
    assert partition_of(led).leading is not None
    assert rounds(led, 10) == 0


def test_who_is_alone_in_sync_serves_the_rest(led: Led) -> None:
    assert led.controller.leads("t", epoch=1, replicas=(US,)) == {}
    damage(led, 4)
    assert rounds(led, 10) == 0
    assert partition_of(led).leading is not None


@pytest.mark.parametrize(("offset", "byte"), [(4, BODY), (4, BASE_OFFSET), (RECORDS - 1, BASE_OFFSET)])
def test_a_damage_that_a_follower_is_stuck_at_is_found(led: Led, offset: int, byte: int) -> None:
    """It refuses what has a wrong checksum or offset, and the leader has sent it unread."""
    damage(led, offset, byte, is_noticed=False)
    led.time_passes(2 * LAG_MS_MAX, OTHER)
    log = led.leading.log
    assert not log.damaged_places
    state = LeaderAndIsr(US, led.leading.epoch, (US, OTHER), partition_epoch=1)
    in_sync = led.leading.in_sync
    assert in_sync is not None
    in_sync.told(state, ALL_THREE, log.end_offset, led.harness.now.steady)
    led.fetches(THIRD, offset=0)
    assert rounds(led, 5) == 1
    assert log.damaged_places == 1
    assert not partition_of(led).is_online


def test_a_controller_of_before_kafka_1_is_not_left_without_a_leader(tmp_path: Path) -> None:
    led = filled(Led(tmp_path, inter_broker="0.11.0"))
    damage(led, 4)
    assert rounds(led, 10) == 0
    assert partition_of(led).leading is not None
