"""Metadata logs written by real Apache Kafka clusters (tests/interop/capture_golden_moved.py), read offline."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest

from odradek.app.serve.kraft_topics import KnownTopic, UnreadableMetadata, read_topics
from odradek.base.units import BrokerId, TopicName
from support.golden import GOLDEN

US = BrokerId(1)
# Set on the brokers while they ran; the last one by Kafka itself, in every new cluster.
DEFAULTS = {"retention.ms": "77", "max.message.bytes": "2000000", "min.insync.replicas": "1"}
COMPACT = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "1000",
    "delete.retention.ms": "86400000",
}
KEPT = {"retention.ms": "-1"}
CONFIGS: dict[str, dict[str, str]] = {
    "every.codec": KEPT,
    "segments": KEPT | {"internal.segment.bytes": "2000", "index.interval.bytes": "200"},
    "transactions": KEPT,
    "compacted": COMPACT,
    "compacted_transactions": COMPACT,
    "both": COMPACT | KEPT | {"cleanup.policy": "compact,delete", "segment.ms": "5000"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "empty": KEPT,
    "late": {"max.message.bytes": "3000000"},
}
COUNTS = dict.fromkeys(CONFIGS, 1) | {"every.codec": 2, "segments": 4, "empty": 3, "late": 2}


@pytest.fixture(params=["4.3.0", "4.4.0"])
def data(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    with tarfile.open(GOLDEN / f"kafka-{request.param}" / "cluster_metadata.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def read(data: Path) -> dict[TopicName, KnownTopic]:
    topics = read_topics(data, US)
    assert topics is not None
    return topics


def snapshots(data: Path) -> list[Path]:
    return sorted(data.glob("__cluster_metadata-0/*.checkpoint"))


def log_of(data: Path) -> Path:
    return data / "__cluster_metadata-0" / "00000000000000000000.log"


def test_topics_partitions_and_configs_are_read(data: Path) -> None:
    topics = read(data)
    assert {name: topic.configs for name, topic in topics.items()} == {
        name: DEFAULTS | configs for name, configs in CONFIGS.items()
    }
    assert {name: sorted(topic.epochs) for name, topic in topics.items()} == {
        name: list(range(count)) for name, count in COUNTS.items()
    }
    assert len({topic.id for topic in topics.values()}) == len(topics)
    assert {*topics[TopicName("late")].epochs.values()} == {1}, "the broker has stopped once"
    assert min(topics[TopicName("empty")].epochs.values()) > 0, "each start of the broker elected a leader"


def test_every_snapshot_with_the_following_log_gives_the_same_topics(data: Path) -> None:
    topics = read(data)
    assert len(snapshots(data)) > 10
    for snapshot in reversed(snapshots(data)):
        snapshot.unlink()
        assert read(data) == topics


def test_missing_metadata_log_gives_no_topics(tmp_path: Path) -> None:
    assert read_topics(tmp_path, US) is None


def test_torn_end_is_ignored(data: Path) -> None:
    for snapshot in snapshots(data):
        snapshot.unlink()
    log = log_of(data)
    log.write_bytes(log.read_bytes()[:-100])
    assert set(read(data)) <= set(CONFIGS)


@pytest.mark.parametrize("damage", ["checksum", "snapshot", "torn snapshot", "beginning"])
def test_damaged_metadata_log_is_reported(data: Path, damage: str) -> None:
    if damage == "torn snapshot":
        path = snapshots(data)[-1]
        path.write_bytes(path.read_bytes()[:-100])
    elif damage == "snapshot":
        path = snapshots(data)[-1]
        path.write_bytes(path.read_bytes()[:300] + b"\xff" + path.read_bytes()[301:])
    else:
        for snapshot in snapshots(data):
            snapshot.unlink()
    if damage == "checksum":
        path = log_of(data)
        path.write_bytes(path.read_bytes()[:3000] + b"\xff\xff" + path.read_bytes()[3002:])
    if damage == "beginning":
        shutil.move(log_of(data), log_of(data).with_name("00000000000000000050.log"))
    with pytest.raises(UnreadableMetadata, match="__cluster_metadata-0"):
        read(data)
