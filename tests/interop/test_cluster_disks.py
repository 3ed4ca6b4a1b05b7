"""Slow, full or failing disks of one of three brokers: the others continue, and acknowledged records are kept."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, TopicPartition  # type: ignore[attr-defined]
from kafka_zookeeper import OLD_KAFKA
from loaded_cluster import EACH_LEADS, LAG_MS, PARTITIONS, THE_FIRST_FOLLOWS, TOPIC, Cluster, Load, cluster

from odradek.app.main import main
from support.faults import Faults, Operations
from support.small_disk import fill, small_disk
from support.waiting import SECONDS_MAX, until

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("kills brokers on a ZooKeeper of its own")]

DISK_MIB = 24


@pytest.mark.parametrize("assignment", [EACH_LEADS, THE_FIRST_FOLLOWS], ids=["leader", "follower"])
def test_a_broker_with_a_full_disk_resigns_and_follows_again(tmp_path: Path, assignment: list[list[int]]) -> None:
    """The broker resigns its leaderships, and follows again as soon as there is space, without a restart."""
    with (
        small_disk(tmp_path / "disk", DISK_MIB) as disk,
        cluster(tmp_path, {1: {"log.dirs": str(disk / "data")}}, assignment=assignment) as it,
    ):
        with Load(it.address) as load:
            load.wait_for_progress()
            fill(disk / "rest")
            until(lambda: all(leader != 1 for leader, _ in it.states()))
            load.wait_for_progress()
            it.until_in_sync({2, 3})
            (disk / "rest").unlink()
            it.until_in_sync({1, 2, 3})
            load.wait_for_progress()
        it.check(load)


def test_logs_open_without_a_restart_once_there_is_space(tmp_path: Path) -> None:
    """Logs that could not be opened are opened as soon as there is space, without another start."""
    with (
        small_disk(tmp_path / "disk", DISK_MIB) as disk,
        cluster(tmp_path, {1: {"log.dirs": str(disk / "data")}}) as it,
    ):
        with Load(it.address) as load:
            load.wait_for_progress()
            fill(disk / "rest")
            until(lambda: all(leader != 1 for leader, _ in it.states()))
            it.brokers[1].kill()
            fill(disk / "more")
            it.brokers[1].start()
            load.wait_for_progress()
            for name in ("rest", "more"):
                (disk / name).unlink()
            it.until_in_sync({1, 2, 3})
            load.wait_for_progress()
        it.check(load)


def test_a_full_disk_leaves_the_other_directory_leading(tmp_path: Path) -> None:
    """A broker with two directories continues to lead the partitions in the other one."""
    directories = {"log.dirs": f"{tmp_path / 'disk' / 'data'},{tmp_path / 'other'}"}
    with (
        small_disk(tmp_path / "disk", DISK_MIB) as disk,
        cluster(tmp_path, {1: directories}, assignment=[[1, 2, 3]] * 3) as it,
    ):
        is_there = [it.folder(1, index).is_relative_to(disk) for index in range(PARTITIONS)]
        assert set(is_there) == {True, False}
        with Load(it.address) as load:
            load.wait_for_progress()
            fill(disk / "rest")
            until(lambda: [leader != 1 for leader, _ in it.states()] == is_there)
            load.wait_for_progress()
            assert [leader != 1 for leader, _ in it.states()] == is_there
            (disk / "rest").unlink()
            it.until_in_sync({1, 2, 3})
        it.check(load)


@pytest.mark.parametrize("operation", [Operations.WRITES, pytest.param(Operations.READS, marks=pytest.mark.soak)])
def test_a_bad_sector_takes_one_log_offline(tmp_path: Path, operation: Operations) -> None:
    """The log is offline until the next start, and another broker leads its partition."""
    faults = Faults(tmp_path)
    with cluster(tmp_path, faults=faults) as it:
        with Load(it.address) as load:
            load.wait_for_progress()
            faults.fail(operation, f"/{TOPIC}-0/", errno.EIO)
            until(lambda: it.states()[0][0] in {2, 3})
            load.wait_for_progress()
            until(lambda: it.states()[0][1] == {2, 3})
            faults.repair()
            it.brokers[1].kill()
            load.wait_for_progress()
            it.brokers[1].start()
            it.until_in_sync({1, 2, 3})
        it.check(load)


SMALL_SEGMENTS = {number: {"log.segment.bytes": "1048576", "log.index.interval.bytes": "1000"} for number in (1, 2, 3)}


def cut_tail(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 700)


def flip_byte(path: Path) -> None:
    """Damage the checksum of one batch, which only a reader of its records notices."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x40
    path.write_bytes(data)


def closed_segment(it: Cluster, number: int) -> Path:
    return sorted(it.folder(number, 0).glob("*.log"))[1]


def have_closed_segments(it: Cluster) -> bool:
    return all(len(list(it.folder(number, 0).glob("*.log"))) > 2 for number in (1, 2, 3))


@pytest.mark.parametrize("damage", [cut_tail, flip_byte])
def test_an_empty_follower_catches_up_despite_damage_at_the_leader(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """An undamaged replica leads, and the damaged one fetches again from the damage on."""
    with cluster(tmp_path, SMALL_SEGMENTS) as it:
        with Load(it.address, pause_seconds=0.0005) as load:
            until(lambda: have_closed_segments(it))
            assert it.brokers[1].stop() == 0
            damage(closed_segment(it, 1))
            it.brokers[1].start()
            it.until_in_sync({1, 2, 3})
            load.wait_for_progress()
            _lead(it, 1)
            folder = Path(it.brokers[3]._overrides["log.dirs"])
            assert it.brokers[3].stop() == 0
            shutil.rmtree(folder)
            it.brokers[3].start()
            until(lambda: it.states()[0][0] == 2)
            it.until_in_sync({1, 2, 3})
            load.wait_for_progress()
        it.check(load)
        assert "t-0: truncated to offset" in it.brokers[1].errors()


def test_damage_known_at_the_start_is_repaired(tmp_path: Path) -> None:
    """`odradek log verify` found it while the broker was stopped."""
    with cluster(tmp_path, SMALL_SEGMENTS) as it:
        with Load(it.address, pause_seconds=0.0005) as load:
            until(lambda: have_closed_segments(it))
            assert it.brokers[1].stop() == 0
            flip_byte(closed_segment(it, 1))
            assert main(["log", "verify", str(it.folder(1, 0).parent)]) != 0
            it.brokers[1].start()
            until(lambda: "t-0: truncated to offset" in it.brokers[1].errors())
            it.until_in_sync({1, 2, 3})
            load.wait_for_progress()
        it.check(load)


def _lead(it: Cluster, number: int) -> None:
    """Make a broker lead the first partition, of which it is the preferred leader.

    The client does not retry errors in the response, such as a controller that has moved.
    """

    def is_elected() -> bool:
        it.admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(TOPIC, 0)]).result(SECONDS_MAX)
        return it.states()[0][0] == number

    until(is_elected)


def test_a_follower_on_a_slow_disk_leaves_and_rejoins_the_isr(tmp_path: Path) -> None:
    """The follower, which is also the controller, cannot keep up for a while."""
    faults = Faults(tmp_path)
    with cluster(tmp_path, faults=faults, assignment=THE_FIRST_FOLLOWS) as it:
        # Each fetch is written at once: with ten such writes, none of which ends within 4 seconds, no client
        # would get an answer within request.timeout.ms.
        with Load(it.address, pause_seconds=0.02) as load:
            load.wait_for_progress()
            # That broker does nothing else during a write, so clients learn of the ISR only between two writes.
            faults.slow(Operations.WRITES, 2 * LAG_MS / 1000, f"/{TOPIC}-1/")
            until(lambda: it.states()[1][1] == {2, 3})
            load.wait_for_progress()
            faults.repair()
            it.until_in_sync({1, 2, 3})
            load.wait_for_progress()
        it.check(load)
