"""Ownership of the logs in a data directory: no log of another topic is served, or deleted without a request."""

from __future__ import annotations

from pathlib import Path
from random import Random

from simdisk import SimDisk

from odradek.base.units import NO_EPOCH, BrokerId, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.partition.storage import Storage
from odradek.log.directory.directory import LogDirectory
from odradek.log.directory.directory_loading import open_log_directory
from odradek.log.files.log_config import LogConfig
from odradek.log.files.log_file_names import PARTITION_METADATA
from odradek.log.log.durability import flush_now
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from support.in_memory import Harness
from support.logs import T0, put, stored

T = TopicPartition(TopicName("t"), 0)
ID, OTHER_ID = Uuid(bytes(range(16))), Uuid(bytes(range(1, 17)))
CONFIGS = BrokerConfigs.parse({}).for_topic({})


def open_storage(disk: SimDisk) -> tuple[LogDirectory, Storage]:
    directory = open_log_directory(
        disk, "/data", T0, broker_id=BrokerId(1), cluster_id="c", config_of=lambda _: LogConfig()
    )
    return directory, Storage([directory])


def folders(disk: SimDisk) -> list[str]:
    return sorted(entry.name for entry in disk.entries("/data") if entry.size < 0)


def without_id(disk: SimDisk, *, clean: bool, synced: bool = True) -> None:
    """Create a log as Kafka wrote it before 2.8, or as a power failure left it."""
    directory, _ = open_storage(disk)
    log = directory.create(T, None, LogConfig(), T0)
    put(log, b"old")
    if synced:
        flush_now(log)
        directory.checkpoints.write_now()
    directory.close(T0) if clean else directory.abandon()


def test_failed_deletion_is_repeated_when_the_topic_is_recreated() -> None:
    disk = SimDisk()
    _, storage = open_storage(disk)
    log = storage.open(T, ID, CONFIGS, T0)
    assert log is not None
    put(log, b"old")
    disk.fail_from(0)
    storage.delete(T, T0)
    disk.fail_call(-1)
    log = storage.open(T, OTHER_ID, CONFIGS, T0)
    assert log is not None and log.topic_id == OTHER_ID
    assert stored(log) == []
    assert [name.partition(".")[0] for name in folders(disk)] == ["t-0", "t-0"]


def test_unopenable_log_is_deleted_with_its_topic() -> None:
    disk = SimDisk()
    directory, storage = open_storage(disk)
    log = storage.open(T, ID, CONFIGS, T0)
    assert log is not None
    put(log, b"old")
    directory.close(T0)
    disk.open(f"/data/t-0/{PARTITION_METADATA}").write(0, b"version: 8")
    directory, storage = open_storage(disk)
    assert T in directory.offline
    assert storage.topics() == {"t": (None, {0: NO_EPOCH})}
    storage.delete(T, T0)
    log = storage.open(T, OTHER_ID, CONFIGS, T0)
    assert log is not None and stored(log) == []


def test_log_of_another_topic_id_is_quarantined() -> None:
    disk = SimDisk()
    directory, storage = open_storage(disk)
    log = storage.open(T, ID, CONFIGS, T0)
    assert log is not None
    put(log, b"old")
    directory.close(T0)
    _, storage = open_storage(disk)
    log = storage.open(T, OTHER_ID, CONFIGS, T0)
    assert log is not None and stored(log) == []
    aside = next(name for name in folders(disk) if name.endswith("-stray"))
    assert disk.size(f"/data/{aside}/00000000000000000000.log") > 0
    for _ in range(2):
        storage.close({}, T0)
        _, storage = open_storage(disk)
        assert aside in folders(disk)


def test_missing_logs_exclude_those_on_a_failed_disk() -> None:
    disk = SimDisk()
    directory, storage = open_storage(disk)
    assert storage.open(T, ID, CONFIGS, T0) is not None
    absent = TopicPartition(TopicName("t"), 1)
    assert storage.missing_replicas({T: ID, absent: ID}) == [absent]
    assert storage.missing_replicas({T: OTHER_ID}) == [T]
    directory.offline[absent] = "it can't be opened"
    assert storage.missing_replicas({T: ID, absent: ID}) == []
    directory.failure = "it can't be read"
    assert storage.missing_replicas({T: OTHER_ID}) == []


def test_old_log_without_an_id_is_opened_for_the_topic() -> None:
    for clean, synced in ((True, True), (False, True), (True, False)):
        disk = SimDisk()
        without_id(disk, clean=clean, synced=synced)
        disk = disk.kill()
        directory, storage = open_storage(disk)
        log = storage.open(T, ID, CONFIGS, T0)
        assert log is not None and stored(log) == [(0, 0)]
        directory.abandon()
        disk.sync_directory("")
        assert open_storage(disk.crash(Random(3)))[0].logs[T].topic_id == ID, "it is safe at once"


def test_log_without_an_id_is_not_opened_after_a_power_failure() -> None:
    disk = SimDisk()
    without_id(disk, clean=False, synced=False)
    _, storage = open_storage(disk.kill())
    log = storage.open(T, ID, CONFIGS, T0)
    assert log is not None and stored(log) == []


def test_adopted_log_without_an_id_is_opened_after_a_power_failure() -> None:
    disk = SimDisk()
    without_id(disk, clean=False, synced=False)
    _, storage = open_storage(disk.kill())
    storage.adopted(["t"])
    log = storage.open(T, ID, CONFIGS, T0)
    assert log is not None and stored(log) == [(0, 0)]


def test_logs_of_topics_deleted_during_downtime_are_quarantined(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    for name in ("kept", "gone"):
        topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
        harness.request(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5, CreateTopicsResponse)
    put(harness.broker.partitions[TopicPartition(TopicName("gone"), 1)].log, b"x")
    harness.broker.view.remove(TopicName("gone"))
    harness.restart()
    names = sorted(path.name for path in tmp_path.iterdir() if path.is_dir())
    assert [name[:6] for name in names] == ["gone-0", "gone-1", "kept-0", "kept-1"]
    assert all(name.endswith("-stray") for name in names[:2])
    assert set(harness.broker.partitions) == {TopicPartition(TopicName("kept"), number) for number in range(2)}
    harness.restart()
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == names


def test_cluster_without_topics_quarantines_no_log(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    harness.request(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5, CreateTopicsResponse)
    harness.broker.view.remove(TopicName("t"))
    harness.restart()
    assert (tmp_path / "t-0").is_dir()
    assert not harness.broker.partitions
    assert harness.broker.storage.topics()[TopicName("t")].epochs.keys() == {0}
