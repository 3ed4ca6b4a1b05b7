"""Apache Kafka of any generation, and data directories that move between it and an Odradek broker."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from kafka_peer import VERSION, KafkaBroker, dump_log
from kafka_zookeeper import OldKafka, old_dump_log

Kafka = KafkaBroker | OldKafka
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


def made(folder: Path, version: str, settings: Mapping[str, str], zookeeper: str | None = None) -> Kafka:
    if version == VERSION:
        return KafkaBroker(folder, settings=settings)
    return OldKafka(folder, version, settings, zookeeper=zookeeper)


def copy_under(ours: Path, theirs: Path, partitions: str = "*") -> None:
    """Copy our logs to topics with the same names, and give them the topics' ids."""
    for path in ours.glob(partitions):
        if path.is_dir():
            topic_id = (theirs / path.name / "partition.metadata").read_bytes()
            shutil.rmtree(theirs / path.name)
            shutil.copytree(path, theirs / path.name)
            (theirs / path.name / "partition.metadata").write_bytes(topic_id)
    for name in CHECKPOINTS:
        shutil.copy(ours / name, theirs / name)


def dump_log_of(version: str, folder: Path, *files: Path, options: tuple[str, ...] = ()) -> str:
    """Return the output of kafka-dump-log of a version, both streams; it must not fail."""
    if version == VERSION:
        return dump_log(folder, *files, options=options)
    return old_dump_log(version, folder, *files, options=options)
