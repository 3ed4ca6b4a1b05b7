"""Past bugs of Apache Kafka's recovery, and the cost of a start."""

from __future__ import annotations

from random import Random

import pytest
from simdisk import SimDisk

from odradek.base.units import BrokerId, LeaderEpoch, Offset, TopicName, TopicPartition
from odradek.log.directory.directory import LogDirectory
from odradek.log.directory.directory_loading import open_log_directory
from odradek.log.files.disk import DiskFailed
from odradek.log.files.log_config import LogConfig
from odradek.log.files.log_file_names import LEADER_EPOCHS, LOG_STARTS, RECOVERY_POINTS
from odradek.log.log.durability import flush_now
from odradek.log.log.log import Log
from odradek.log.segment.checkpoints import write_offsets
from odradek.record.record_batch import iter_batches
from support.logs import T0, put, stored

T = TopicPartition(TopicName("t"), 0)
CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=200)
BATCHES = 60


class WatchedDisk(SimDisk):
    """A disk that records which files are read."""

    def __init__(self, folders: SimDisk) -> None:
        super().__init__()
        self.folders = folders.folders
        self.read_from: dict[str, int] = {}

    def count(self, path: str, *, is_read: bool = False) -> None:
        super().count(path, is_read=is_read)
        if is_read:
            name = path.rpartition("/")[2]
            self.read_from[name] = self.read_from.get(name, 0) + 1


def open_directory(disk: SimDisk) -> LogDirectory:
    return open_log_directory(disk, "/data", T0, broker_id=BrokerId(1), cluster_id="c", config_of=lambda _: CONFIG)


def create_directory(disk: SimDisk) -> LogDirectory:
    directory = open_directory(disk)
    log = directory.create(T, None, CONFIG, T0)
    for number in range(BATCHES):
        put(log, b"%d" % number * 10, epoch=number // 40)
    assert len(log.segments) > 4
    return directory


def offsets(log: Log) -> list[int]:
    return [first for first, _ in stored(log)]


def test_epoch_0_is_recovered_as_any_other() -> None:
    """S14, KAFKA-10432."""
    disk = SimDisk()
    create_directory(disk).abandon()
    disk.unlink(f"/data/t-0/{LEADER_EPOCHS}")
    log = open_directory(disk.kill()).logs[T]
    assert log.epochs.entries == [(LeaderEpoch(0), Offset(0)), (LeaderEpoch(1), Offset(40))]


@pytest.mark.parametrize("point", [0, 1, 30, BATCHES, BATCHES + 1000])
@pytest.mark.parametrize("start", [0, 1, 30])
def test_outdated_checkpoints_lose_nothing(point: int, start: int) -> None:
    """S7, S15, KAFKA-10101: below the log, inside a segment, beyond the end.  A scan alone makes nothing safe."""
    disk = SimDisk()
    create_directory(disk).abandon()
    write_offsets(disk, f"/data/{RECOVERY_POINTS}", {T: Offset(point)})
    write_offsets(disk, f"/data/{LOG_STARTS}", {T: Offset(start)})
    directory = open_directory(disk.kill())
    log = directory.logs[T]
    assert log.recovery_point == min(point, BATCHES), "it passes no end, and moves with a sync, not with a scan"
    assert (log.start_offset, log.end_offset) == (start, BATCHES)
    assert [one for one in offsets(log) if one >= start] == list(range(start, BATCHES))
    reported = [problem for problem in directory.problems if "is below the recovery point" in problem]
    assert bool(reported) == (point > BATCHES)
    flush_now(log)
    assert log.recovery_point == BATCHES
    directory.close(T0)
    assert open_directory(disk.kill()).logs[T].recovery_point == BATCHES


def test_log_with_a_start_beyond_its_end_is_reset_there() -> None:
    """S7: the log was truncated after its start had moved."""
    disk = SimDisk()
    create_directory(disk).abandon()
    write_offsets(disk, f"/data/{LOG_STARTS}", {T: Offset(BATCHES + 5)})
    log = open_directory(disk.kill()).logs[T]
    assert (log.start_offset, log.end_offset, log.recovery_point) == (BATCHES + 5,) * 3
    put(log, b"goes on")
    assert offsets(log) == [BATCHES + 5]


@pytest.mark.parametrize("size", [1, 80, 100, 150, 333, 999, 1000, 1001, 5000])
def test_a_read_ends_with_its_segment(size: int) -> None:
    """S17: the following data comes with the next read, and nothing is left out in between."""
    log = create_directory(SimDisk()).logs[T]
    found: list[int] = []
    while len(found) < BATCHES:
        piece = log.read(Offset(len(found)), size, log.end_offset)
        (segment,) = (one for one in log.segments if one.path == piece.file.path)
        assert piece.position + piece.size <= segment.size
        found += [one.base_offset for one in iter_batches(piece.read())]
    assert found == list(range(BATCHES))


def test_a_start_after_a_crash_reads_from_the_recovery_point_on() -> None:
    """After a clean stop it reads only the end of the last segment."""
    disk = SimDisk()
    directory = create_directory(disk)
    log = directory.logs[T]
    flush_now(log)
    directory.checkpoints.write_now()
    for number in range(20):
        put(log, b"%d" % number * 10)
    segments = [one.name for one in log.segments]
    synced = next(number for number, one in enumerate(log.segments[1:]) if one.base_offset >= log.recovery_point)
    directory.abandon()
    watched = WatchedDisk(disk.kill())
    directory = open_directory(watched)
    read = {name for name in watched.read_from if name.endswith(".log")}
    assert read == set(segments[synced:]), "the segment with the recovery point, and what came later"
    assert 2 <= len(read) < len(segments) - 2
    directory.close(T0)
    watched = WatchedDisk(watched.kill())
    assert open_directory(watched).logs[T].end_offset == BATCHES + 20
    assert {name for name in watched.read_from if name.endswith(".log")} == {segments[-1]}


def test_data_of_a_failed_sync_is_written_again() -> None:
    """The next process reads and serves it and considers it durable: it must be on the disk by then."""
    disk = SimDisk()
    directory = create_directory(disk)
    flush_now(directory.logs[T])
    directory.checkpoints.write_now()
    disk.sync_directory("")
    disk.drops_unsynced = disk.caches_dropped = True
    put(directory.logs[T], b"in memory alone")
    disk.fails_to_sync = True
    with pytest.raises(DiskFailed):
        flush_now(directory.logs[T])
    directory.abandon()
    survivor = disk.kill()
    log = open_directory(survivor).logs[T]
    assert log.end_offset == BATCHES + 1
    flush_now(log)
    for seed in range(5):
        assert open_directory(survivor.crash(Random(seed))).logs[T].end_offset == BATCHES + 1
