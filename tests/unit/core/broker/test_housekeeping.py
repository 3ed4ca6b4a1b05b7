"""Housekeeping rounds, divided into short slices."""

from __future__ import annotations

from pathlib import Path

from odradek.base.units import TimestampMs, TopicName, TopicPartition
from odradek.core.broker.housekeeping import Housekeeping
from odradek.core.kernel.moment import Moment
from odradek.core.partition.log_starts import WriteStarts
from odradek.core.partition.storage import Storage
from odradek.log.directory.checkpointing import Checkpoint
from odradek.log.directory.directory_loading import open_log_directory
from odradek.log.files.disk import RealDisk
from odradek.log.files.log_config import LogConfig
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from support.in_memory import Harness
from support.logs import put

PARTITIONS = 40


def test_each_slice_deletes_segments_of_one_partition(tmp_path: Path) -> None:
    harness = Harness(tmp_path, log_retention_ms="1000")
    topic = CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[])
    harness.request(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5, CreateTopicsResponse)
    harness.run_housekeeping()
    logs = [partition.log for partition in harness.broker.partitions.values()]
    for partition in harness.broker.partitions.values():
        put(partition.log, b"x", at=harness.now.wall)
        partition.log.roll(harness.now.wall)
        partition.positions.advance_high_watermark(partition.log.end_offset)
    later = Moment(TimestampMs(harness.now.wall + 1_000_000), harness.now.steady + 1_000_000)
    for _ in harness.broker.run_housekeeping(later):
        assert not any(log.start_offset for log in logs), "nobody is told before it is on the disk"
    writes = [effect for effect in harness.broker.take_effects() if isinstance(effect, WriteStarts)]
    assert len(writes) == 1, "one write is for all of them"
    assert harness.broker.log_starts.has_pending and harness.broker.is_writing
    wrote, moved = writes[0].run(), 0
    assert (tmp_path / "log-start-offset-checkpoint").read_text().count(" 1\n") == PARTITIONS
    for _ in harness.broker.log_starts.on_starts_written(wrote, later):
        before, moved = moved, sum(log.start_offset > 0 for log in logs)
        assert moved - before <= 1
    assert moved == PARTITIONS
    assert not harness.broker.log_starts.has_pending
    assert len(list(tmp_path.rglob("*.deleted"))) == 0, "files are a chore"
    harness.run_housekeeping()
    assert len(list(tmp_path.rglob("*.log.deleted"))) == PARTITIONS


def test_each_slice_cleans_one_compacted_and_deleted_log(tmp_path: Path) -> None:
    """The cleaner applies the retention of logs with cleanup.policy=compact,delete, in slices too."""
    harness = Harness(tmp_path, log_retention_ms="1000", log_cleanup_policy="compact,delete")
    topic = CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[])
    harness.request(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5, CreateTopicsResponse)
    for partition in harness.broker.partitions.values():
        put(partition.log, b"x", at=harness.now.wall)
        partition.log.roll(harness.now.wall)
        partition.positions.advance_high_watermark(partition.log.end_offset)
    later = Moment(TimestampMs(harness.now.wall + 1_000_000), harness.now.steady + 1_000_000)
    requested = 0
    for _ in harness.broker.cleaner.schedule_passes(later, harness.broker.partitions):
        before, requested = requested, sum(map(len, harness.broker.log_starts._queued.values()))
        assert requested - before <= 1
    assert requested == PARTITIONS
    harness.settle()
    assert all(partition.log.start_offset == 1 for partition in harness.broker.partitions.values())


def test_each_slice_starts_the_checkpoint_of_one_directory(tmp_path: Path) -> None:
    """A checkpoint takes about a microsecond per partition, and many directories may have many partitions."""
    harness = Harness(tmp_path / "first")
    others = [
        open_log_directory(
            RealDisk(),
            str(tmp_path / name),
            harness.now.wall,
            broker_id=harness.broker.id,
            cluster_id="cluster",
            config_of=lambda _: LogConfig(),
        )
        for name in ("second", "third")
    ]
    for directory in others:
        directory.create(TopicPartition(TopicName("t"), 0), None, LogConfig(), harness.now.wall)
    storage = Storage([*harness.broker.storage, *others])
    housekeeping = Housekeeping(storage, harness.broker.log_starts, harness.configs)
    slices = [list(due.chores) for due in housekeeping.round(harness.now, harness.broker.partitions)]
    begun = [[one for one in chores if isinstance(one, Checkpoint)] for chores in slices]
    assert [one.directory for some in begun for one in some] == [one.path for one in others]
    assert max(map(len, begun)) == 1
    for directory in others:
        directory.abandon()
