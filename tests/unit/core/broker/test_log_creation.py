"""Files of new partitions, created before the broker opens them, in the directory where it will look."""

from __future__ import annotations

from pathlib import Path

from odradek.base.units import BrokerId, TimestampMs, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.partition.storage import Storage
from odradek.log.directory.directory import LogDirectory
from odradek.log.directory.directory_loading import open_log_directory
from odradek.log.files.disk import RealDisk
from odradek.log.files.log_config import LogConfig

NOW = TimestampMs(1_700_000_000_000)
TOPIC_ID = Uuid(bytes(range(16)))
CONFIGS = BrokerConfigs.parse({}).for_topic({})


def at(number: int) -> TopicPartition:
    return TopicPartition(TopicName("t"), number)


def open_directory(folder: Path) -> LogDirectory:
    return open_log_directory(
        RealDisk(), str(folder), NOW, broker_id=BrokerId(1), cluster_id="c", config_of=lambda _: LogConfig()
    )


def test_log_opens_in_the_directory_of_its_creation(tmp_path: Path) -> None:
    directories = [open_directory(tmp_path / name) for name in "ab"]
    storage = Storage(directories)
    for number in range(6):
        storage.make(at(number), TOPIC_ID, CONFIGS, NOW)
    assert [directory.count for directory in directories] == [3, 3], "those made count where the next one goes"
    places = {number: next(one for one in directories if one.is_made(at(number))) for number in range(6)}
    for number in reversed(range(6)):
        log = storage.open(at(number), TOPIC_ID, CONFIGS, NOW)
        assert log is not None and log.directory == f"{places[number].path}/{at(number)}"
    assert sum(1 for folder in tmp_path.glob("*/t-*")) == 6
    assert storage.close({}, NOW) == []


def test_existing_log_is_not_created_again(tmp_path: Path) -> None:
    directories = [open_directory(tmp_path / name) for name in "ab"]
    storage = Storage(directories)
    log = storage.open(at(0), TOPIC_ID, CONFIGS, NOW)
    directories[0].offline[at(1)] = "its disk failed"
    for number in range(2):
        storage.make(at(number), TOPIC_ID, CONFIGS, NOW)
    assert not any(directory.is_made(at(number)) for directory in directories for number in range(2))
    assert storage.open(at(0), TOPIC_ID, CONFIGS, NOW) is log
    assert storage.open(at(1), TOPIC_ID, CONFIGS, NOW) is None
