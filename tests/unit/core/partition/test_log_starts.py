"""Log start offsets, written before segments are deleted: retention on full and failing disks."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from odradek.base.units import LeaderEpoch, Offset, TopicName, TopicPartition
from odradek.core.partition.log_starts import Advance, AllAdvanced, WriteStarts
from odradek.core.partition.partition import Partition
from odradek.core.replication.follower_log import truncate_log
from odradek.log.files.disk import DiskFailed, File, RealDisk
from odradek.log.log.durability import flush_now
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from support.controlling import OTHER
from support.in_memory import Harness
from support.logs import put

T = TopicPartition(TopicName("t"), 0)
SEGMENTS = 3


class Failing(RealDisk):
    """A disk that cannot create files."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def create(self, path: str) -> File:
        raise DiskFailed(self.number, "as the test wants it", path)


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    made = Harness(tmp_path, log_retention_ms="1000")
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    made.request(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 5, CreateTopicsResponse)
    made.run_housekeeping()
    partition = partition_of(made)
    for _ in range(SEGMENTS):
        put(partition.log, b"x", at=made.now.wall)
        partition.log.roll(made.now.wall)
    flush_now(partition.log)
    partition.positions.advance_high_watermark(partition.log.end_offset)
    return made


def partition_of(harness: Harness) -> Partition:
    return harness.broker.partitions[T]


def writes(harness: Harness) -> list[WriteStarts]:
    return [effect for effect in harness.broker.take_effects() if isinstance(effect, WriteStarts)]


def begin_retention(harness: Harness) -> WriteStarts:
    harness.pass_time(1_000_000)
    harness.run_housekeeping_in_slices()
    (write,) = writes(harness)
    return write


def end(harness: Harness, write: WriteStarts) -> None:
    for _ in harness.broker.log_starts.on_starts_written(write.run(), harness.now):
        pass


def test_retention_makes_room_on_a_full_disk(harness: Harness, tmp_path: Path) -> None:
    """The names of the segments then record the start, before any client sees it."""
    write = begin_retention(harness)
    write.write.disk = Failing(errno.ENOSPC)
    end(harness, write)
    assert partition_of(harness).log.start_offset == SEGMENTS
    assert len(list(tmp_path.rglob("*.log.deleted"))) == SEGMENTS
    harness.kill()
    assert partition_of(harness).log.start_offset == SEGMENTS


def test_retention_that_failed_is_repeated_in_the_next_round(harness: Harness, tmp_path: Path) -> None:
    write = begin_retention(harness)
    write.write.disk = Failing(errno.EIO)
    end(harness, write)
    log = partition_of(harness).log
    assert log.start_offset == 0
    assert not list(tmp_path.rglob("*.deleted"))
    end(harness, begin_retention(harness))
    assert log.start_offset == SEGMENTS


def test_requested_advance_is_refused_on_a_full_disk(harness: Harness) -> None:
    waiting = AllAdvanced()
    advance = harness.broker.log_starts.request_advance(
        partition_of(harness), partition_of(harness).log.end_offset, waiting
    )
    (write,) = writes(harness)
    write.write.disk = Failing(errno.ENOSPC)
    end(harness, write)
    assert waiting.is_settled and is_refused(advance)
    assert partition_of(harness).log.start_offset == 0


def test_advance_beyond_a_log_truncated_since_is_refused(harness: Harness) -> None:
    """An unclean election has cost the records; the log has reached the offset again, with other records."""
    partition = partition_of(harness)
    end_offset = partition.log.end_offset
    advance = harness.broker.log_starts.request_advance(partition, end_offset, AllAdvanced())
    (write,) = writes(harness)
    partition.follow(partition.info._replace(leader=OTHER, leader_epoch=LeaderEpoch(5)))
    truncate_log(partition, Offset(1), harness.now.wall)
    for _ in range(SEGMENTS):
        put(partition.log, b"y", at=harness.now.wall)
    assert partition.positions.high_watermark < end_offset < partition.log.end_offset
    end(harness, write)
    (write,) = writes(harness)  # The truncation has written a checkpoint in its place.
    assert not write.write.offsets.get(T)
    end(harness, write)
    assert is_refused(advance)
    assert partition.log.start_offset == 0


def is_refused(advance: Advance) -> bool:
    return advance.is_ended and advance.refused is not None


def test_segment_below_the_start_is_deleted_without_a_write(harness: Harness) -> None:
    """The log start offset does not change by that."""
    partition = partition_of(harness)
    partition.log.config = type(partition.log.config)(retention_ms=-1)
    advance = harness.broker.log_starts.request_advance(partition, partition.log.end_offset, AllAdvanced())
    harness.settle()
    assert advance.is_ended and len(partition.log.segments) == SEGMENTS + 1
    harness.pass_time(1_000_000)
    harness.run_housekeeping_in_slices()
    assert not writes(harness)
    assert len(partition.log.segments) == 1


def test_no_second_write_follows_after_the_log_went_offline(harness: Harness) -> None:
    write = begin_retention(harness)
    partition_of(harness).take_offline()
    end(harness, write)
    assert not harness.broker.log_starts.has_pending
