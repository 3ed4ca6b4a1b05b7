"""A data directory: found, kept, refused and leftover files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from simdisk import SimDisk

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId, Offset, TimestampMs, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.log.directory.directory import LogDirectory
from odradek.log.directory.directory_loading import open_log_directory
from odradek.log.files.disk import DirectoryInUse, DiskFailed, RealDisk, read_file
from odradek.log.files.log_config import LogConfig
from odradek.log.files.meta_properties import WrongDirectory
from odradek.log.log.durability import begin_flush, flush_now
from odradek.log.log.retention import advance_start
from odradek.log.log.truncation import truncate_to
from support.logs import T0, put, stored

PATH = "/data"
CONFIG = LogConfig(segment_bytes=400)
TOPIC_ID = Uuid(bytes(range(16)))
OTHER_ID = Uuid(bytes(range(1, 17)))


def at(topic: str, number: int = 0) -> TopicPartition:
    return TopicPartition(TopicName(topic), number)


def open_directory(disk: SimDisk, *, broker_id: int = 1, cluster_id: str | None = "cluster") -> LogDirectory:
    return open_log_directory(
        disk, PATH + "/", T0, broker_id=BrokerId(broker_id), cluster_id=cluster_id, config_of=lambda _: CONFIG
    )


def text(disk: SimDisk, name: str) -> str:
    return (read_file(disk, f"{PATH}/{name}", 10_000) or b"").decode()


def names(disk: SimDisk, path: str = PATH) -> set[str]:
    return {entry.name for entry in disk.entries(path)}


def test_directory_opens_again_after_a_clean_close() -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    assert not directory.clean_shutdown
    log = directory.create(at("a-b", 7), TOPIC_ID, CONFIG, T0)
    assert directory.create(at("a-b", 7), TOPIC_ID, CONFIG, T0) is log
    put(log, b"x", epoch=3)
    assert directory.close(T0, {at("a-b", 7): Offset(1)}) == []
    assert text(disk, ".kafka_cleanshutdown") == '{"version":0,"brokerEpoch":-1}\n'
    assert text(disk, "recovery-point-offset-checkpoint") == "0\n1\na-b 7 1\n"
    assert text(disk, "replication-offset-checkpoint") == "0\n1\na-b 7 1\n"
    assert text(disk, "log-start-offset-checkpoint") == "0\n0\n"
    again = open_directory(disk)
    assert again.clean_shutdown
    assert again.checkpoints.high_watermarks == {at("a-b", 7): 1}
    log = again.logs[at("a-b", 7)]
    assert (log.topic_id, log.end_offset, log.recovery_point) == (TOPIC_ID, 1, 1)
    assert ".kafka_cleanshutdown" not in names(disk)


def test_directory_is_locked_for_one_broker() -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    with pytest.raises(DirectoryInUse):
        open_directory(disk)
    directory.close(T0)
    open_directory(disk)


def test_a_refused_directory_is_not_left_locked() -> None:
    disk = SimDisk()
    open_directory(disk).close(T0)
    for wrong in ({"broker_id": 2}, {"cluster_id": "other"}):
        with pytest.raises(WrongDirectory, match="this broker has"):
            open_directory(disk, **wrong)
    assert open_directory(disk, cluster_id=None).cluster_id == "cluster"


def test_bad_partition_does_not_affect_others() -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    for topic in ("bad", "good"):
        put(directory.create(at(topic), TOPIC_ID, CONFIG, T0), b"x", b"y")
        advance_start(directory.logs[at(topic)], Offset(1))
    directory.close(T0, {at("bad"): Offset(2), at("good"): Offset(2)})
    disk.open(f"{PATH}/bad-0/partition.metadata").write(0, b"version: 8")
    again = open_directory(disk)
    assert set(again.logs) == {at("good")}
    assert "version 8" in again.offline[at("bad")]
    with pytest.raises(Refused, match="offline") as refused:
        again.create(at("bad"), TOPIC_ID, CONFIG, T0)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    again.checkpoints.write_now()
    for name in ("recovery-point", "replication"):
        assert text(disk, f"{name}-offset-checkpoint") == "0\n2\nbad 0 2\ngood 0 2\n"
    assert text(disk, "log-start-offset-checkpoint") == "0\n2\nbad 0 1\ngood 0 1\n"
    assert "version 8" in again.close(T0)[0]
    assert ".kafka_cleanshutdown" not in names(disk), "what is in the bad one is not known"


def test_log_without_room_at_the_start_is_opened_later() -> None:
    disk, name = SimDisk(), at("t")
    directory = open_directory(disk)
    put(directory.create(name, TOPIC_ID, CONFIG, T0), b"x")
    directory.abandon()
    disk.unlink(f"{PATH}/t-0/00000000000000000000.index")
    disk.room = 0
    directory = open_directory(disk)
    assert "no room" in directory.offline[name]
    for _ in range(2):
        with pytest.raises(DiskFailed) as failed:
            directory.open_again(name, CONFIG, T0)
        assert failed.value.is_full
        probe = directory.begin_room_probe()
        assert probe is not None
        probe.run()
    disk.mend()
    probe = directory.begin_room_probe()
    assert probe is not None
    probe.run()
    other = LogConfig(segment_bytes=500)
    directory.open_again(name, other, T0)
    assert directory.offline == {}
    assert directory.logs[name].end_offset == 1
    assert directory.logs[name].config is other
    directory.open_again(name, other, T0)  # The file exists again.


def test_damaged_checkpoints_lose_no_records() -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    put(directory.create(at("t"), TOPIC_ID, CONFIG, T0), b"x")
    directory.close(T0)
    disk.unlink(f"{PATH}/.kafka_cleanshutdown")
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"):
        disk.create(f"{PATH}/{name}").write(0, b"junk")
    again = open_directory(disk)
    assert stored(again.logs[at("t")]) == [(0, 0)]
    assert len(again.problems) == 3


def test_truncation_by_recovery_is_reported() -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    log = directory.create(at("t"), TOPIC_ID, CONFIG, T0)
    put(log, b"x")
    disk.open(log.segments[0].path).truncate(50)
    again = open_directory(disk.kill())
    assert again.problems == ["t-0: truncated 50 bytes of an incomplete batch at the log end"]


# ---------------------------------------------------------------- delete


def test_deleted_log_is_renamed_and_removed_later() -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    long = at("t" * 249, 12)
    log = directory.create(long, TOPIC_ID, CONFIG, T0)
    put(log, b"still read")
    piece = log.read(Offset(0), 100, Offset(1))
    directory.delete(long, T0)
    assert long not in directory.logs
    (renamed,) = (name for name in names(disk) if name.endswith("-delete"))
    assert len(renamed) <= 255
    assert directory.begin_reap(TimestampMs(T0 + CONFIG.file_delete_delay_ms - 1)) is None
    reap = directory.begin_reap(TimestampMs(T0 + CONFIG.file_delete_delay_ms))
    assert reap is not None
    reap.run()
    reap.run()
    assert not any(name.startswith("tt") for name in names(disk))
    assert b"still read" in piece.read()


def test_log_can_be_recreated_before_the_old_one_is_removed() -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    for topic_id in (TOPIC_ID, OTHER_ID):
        log = directory.create(at("t"), topic_id, CONFIG, T0)
        assert (log.topic_id, log.end_offset) == (topic_id, 0)
        put(log, b"x")
        directory.delete(at("t"), T0)
    assert sum(name.endswith("-delete") for name in names(disk)) == 2


def test_interrupted_deletion_continues_at_the_next_start() -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    directory.create(at("t"), TOPIC_ID, CONFIG, T0)
    directory.delete(at("t"), T0)
    again = open_directory(disk.kill())
    assert again.logs == {}
    assert again.reaper.reap(T0) == 1
    assert not any(name.endswith("-delete") for name in names(disk))


def test_a_new_log_does_not_inherit_the_offsets_of_its_name() -> None:
    """With the checkpoints of the deleted topic, a crash would move the new log to the old start."""
    disk = SimDisk()
    directory = open_directory(disk)
    log = directory.create(at("t"), TOPIC_ID, CONFIG, T0)
    for _ in range(10):
        put(log, b"x" * 50)
    advance_start(log, Offset(9))
    flush_now(log)
    directory.checkpoints.write_now()
    directory.delete(at("t"), T0)
    log = directory.create(at("t"), OTHER_ID, CONFIG, T0)
    put(log, b"new")
    flush_now(log)
    disk.sync_directory("")
    again = open_directory(disk.crash(Random(1)))
    assert stored(again.logs[at("t")]) == [(0, 0)]


def test_foreign_directories_are_not_touched() -> None:
    disk = SimDisk()
    kept = ["__cluster_metadata-0", "lost+found", "t-0.0123456789abcdef0123456789abcdef-future", "notes"]
    for name in kept:
        disk.make_directory(f"{PATH}/{name}")
        disk.create(f"{PATH}/{name}/00000000000000000000.log")
    directory = open_directory(disk)
    assert directory.logs == {}
    assert len(directory.reaper) == 0
    directory.close(T0)
    assert all(names(disk, f"{PATH}/{name}") == {"00000000000000000000.log"} for name in kept)


# ---------------------------------------------------------------- topic ids, checkpoints


def test_a_log_without_an_id_gets_one() -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    directory.create(at("t"), None, CONFIG, T0)
    directory.assign_topic_id(at("t"), TOPIC_ID)
    directory.close(T0)
    assert open_directory(disk).logs[at("t")].topic_id == TOPIC_ID


def test_checkpoint_is_written_only_after_a_change() -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    log = directory.create(at("t"), TOPIC_ID, CONFIG, T0)
    first = directory.begin_checkpoint({at("t"): Offset(0)})
    assert first is not None
    first.run()
    assert directory.begin_checkpoint({at("t"): Offset(0)}) is None
    put(log, b"x")
    second = directory.begin_checkpoint({at("t"): Offset(1)})
    assert second is not None
    assert set(second.contents) == {"replication-offset-checkpoint"}
    disk.room = 0
    with pytest.raises(DiskFailed):
        second.run()
    disk.room = None
    third = directory.begin_checkpoint({at("t"): Offset(1)})
    assert third is not None, "what failed is due again"
    third.run()
    assert text(disk, "replication-offset-checkpoint") == "0\n1\nt 0 1\n"


def test_truncation_is_checkpointed_first_and_before_pending_ones() -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    log = directory.create(at("t"), TOPIC_ID, CONFIG, T0)
    for _ in range(4):
        put(log, b"x")
    flush_now(log)
    waiting = directory.begin_checkpoint()
    assert waiting is not None
    truncate_to(log, Offset(1), T0)
    waiting.run()
    assert text(disk, "recovery-point-offset-checkpoint") == "0\n1\nt 0 1\n"


def test_a_failed_sync_leaves_no_marker() -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    log = directory.create(at("t"), TOPIC_ID, CONFIG, T0)
    put(log, b"x")
    flush = begin_flush(log)
    disk.fails_to_sync = True
    with pytest.raises(DiskFailed):
        flush.run()
    disk.fails_to_sync = False
    assert "an earlier flush failed" in directory.close(T0)[0]
    assert ".kafka_cleanshutdown" not in names(disk)


def test_log_files_can_be_made_before_the_log_is_created() -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    directory.make(at("t"), TOPIC_ID, CONFIG, T0)
    assert directory.is_made(at("t")) and directory.count == 1
    assert at("t") not in directory.logs, "not before create()"
    assert "partition.metadata" in names(disk, f"{PATH}/t-0")
    log = directory.create(at("t"), TOPIC_ID, CONFIG, T0)
    assert not directory.is_made(at("t")) and directory.count == 1
    put(log, b"x")
    directory.make(at("t"), OTHER_ID, CONFIG, T0)
    assert directory.create(at("t"), TOPIC_ID, CONFIG, T0) is log, "one that is there stays"
    assert stored(log) == [(0, 0)]
    assert directory.close(T0) == []
    assert open_directory(disk).logs[at("t")].end_offset == 1


def test_files_made_for_another_topic_id_are_not_used() -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    directory.make(at("t"), OTHER_ID, CONFIG, T0)
    log = directory.create(at("t"), TOPIC_ID, CONFIG, T0)
    assert log.topic_id == TOPIC_ID
    directory.close(T0)
    assert open_directory(disk).logs[at("t")].topic_id == TOPIC_ID


def test_files_are_not_made_while_a_checkpoint_has_the_name() -> None:
    """Until the next checkpoint, its offsets are those of an earlier log."""
    disk = SimDisk()
    directory = open_directory(disk)
    put(directory.create(at("t"), TOPIC_ID, CONFIG, T0), b"x", b"y")
    directory.checkpoints.write_now()
    directory.delete(at("t"), T0)
    directory.make(at("t"), OTHER_ID, CONFIG, T0)
    assert not directory.is_made(at("t"))
    assert directory.create(at("t"), OTHER_ID, CONFIG, T0).end_offset == 0


def test_files_of_a_log_that_was_never_created_open_as_empty() -> None:
    """The broker stopped in between: the next start finds an empty log."""
    disk = SimDisk()
    directory = open_directory(disk)
    directory.make(at("t"), TOPIC_ID, CONFIG, T0)
    assert directory.close(T0) == []
    again = open_directory(disk)
    assert (again.offline, again.logs[at("t")].end_offset) == ({}, 0)


def test_logs_can_be_closed_on_threads(tmp_path: Path) -> None:
    def opened() -> LogDirectory:
        path, broker = str(tmp_path), BrokerId(1)
        return open_log_directory(RealDisk(), path, T0, broker_id=broker, cluster_id="c", config_of=lambda _: CONFIG)

    directory = opened()
    for number in range(40):
        log = directory.create(at("t", number), TOPIC_ID, CONFIG, T0)
        for _ in range(number):  # The later ones have several segments.
            put(log, b"x" * 100)
    closings = directory.begin_close(T0)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda closing: closing.run(), closings))
    assert directory.close(T0) == []
    again = opened()
    assert again.clean_shutdown
    assert [again.logs[at("t", number)].recovery_point for number in range(40)] == list(range(40))
    again.close(T0)


def test_failed_close_on_a_thread_leaves_no_marker() -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    for number in range(3):
        put(directory.create(at("t", number), TOPIC_ID, CONFIG, T0), b"x")
    first, second, _ = directory.begin_close(T0)
    first.run()
    disk.fails_to_sync = True
    second.run()
    disk.fails_to_sync = False
    assert directory.close(T0, {at("t"): Offset(1)}) == [second.failure]
    assert "t-1" in (second.failure or "")
    assert "t 2 1\n" in text(disk, "recovery-point-offset-checkpoint"), "close() does what no thread did"
    assert ".kafka_cleanshutdown" not in names(disk)


@pytest.mark.parametrize("seed", range(40))
def test_flushed_records_survive_a_power_failure(seed: int) -> None:
    """With directory, id and epochs, though none of these was synced at the creation of the log."""
    disk = SimDisk()
    directory = open_directory(disk)
    disk.sync_directory("")
    flushed = {}
    for number in range(3):
        log = directory.create(at("t", number), TOPIC_ID, CONFIG, T0)
        for record in range(number * 4 + 1):
            put(log, b"x" * 50, epoch=record // 2)
        flush_now(log)
        flushed[at("t", number)] = stored(log), log.epochs.entries
        put(log, b"may go", epoch=9)
    directory.create(at("may", 1), OTHER_ID, CONFIG, T0)
    again = open_directory(disk.crash(Random(seed)))
    assert not again.offline
    for partition, (batches, epochs) in flushed.items():
        log = again.logs[partition]
        assert stored(log)[: len(batches)] == batches
        assert log.epochs.entries[: len(epochs)] == epochs
        assert log.topic_id == TOPIC_ID


@pytest.mark.parametrize("seed", range(20))
def test_created_directory_survives_a_power_failure(seed: int) -> None:
    disk = SimDisk()
    log = open_directory(disk).create(at("t"), TOPIC_ID, CONFIG, T0)
    put(log, b"x")
    flush_now(log, T0)
    assert stored(open_directory(disk.crash(Random(seed))).logs[at("t")]) == [(0, 0)]


def test_created_parent_directories_are_returned(tmp_path: Path) -> None:
    disk = RealDisk()
    assert disk.make_directory(str(tmp_path / "a" / "b")) == [str(tmp_path / "a"), str(tmp_path)]
    assert disk.make_directory(str(tmp_path / "a" / "c")) == [str(tmp_path / "a")]
    assert disk.make_directory(str(tmp_path / "a" / "c")) == []
