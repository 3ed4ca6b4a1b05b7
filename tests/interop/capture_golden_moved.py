"""Generator of tests/golden/kafka-3.9.1 and kafka-0.11.0.3: whole data directories, as seen by clients.

    PYTHONPATH=tests:tests/interop python tests/interop/capture_golden_moved.py

Run once; the results are kept in the repository, so that tests need no java. It also writes, to
tests/golden/kafka-4.4.0, the metadata log of a 4.4.0 cluster with the same topics, some of which were altered, extended
and deleted.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path

from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
)
from contents import CLEANER, CODECS, SECONDS_MAX, admin, await_compaction, configs_for, create_topics, fill, found
from kafka_peer import VERSION, KafkaBroker
from kafka_tools import CONFIGS, ran
from kafka_zookeeper import V0, V3, OldKafka

from support.golden import GOLDEN, keep


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    for version in (V3, V0):
        with OldKafka(folder / version, version, CLEANER) as kafka:
            create_topics(kafka.address, configs_for(version))
            opened = fill(kafka.address, codecs=CODECS[:4] if version == V0 else CODECS)
            await_compaction(kafka.data, kafka.address)
            contents = found(kafka.address)
            kafka.stop()
            del opened
            keep(version, kafka.data, contents)
    capture_metadata(folder / VERSION)
    shutil.rmtree(folder)


def capture_metadata(folder: Path) -> None:
    """Capture the metadata log before and after a snapshot; for that, so short a log is cut into segments."""
    snapshots = {"metadata.log.max.record.bytes.between.snapshots": "100", "metadata.log.max.snapshot.interval.ms": "0"}
    with KafkaBroker(folder, settings=snapshots) as kafka:
        create_topics(kafka.address, configs_for(VERSION))
        change_topics(kafka.address)
        kafka.stop()
        kafka.start()
        create_topics(kafka.address, {"late": (2, {"max.message.bytes": "3000000"})})
    with tarfile.open(GOLDEN / f"kafka-{VERSION}" / "cluster_metadata.tar.xz", "w:xz") as archive:
        archive.add(kafka.data / "__cluster_metadata-0", "__cluster_metadata-0")


def change_topics(address: str) -> None:
    client = admin(address)
    for deleted in client.delete_topics(["cut"]).values():
        deleted.result(SECONDS_MAX)
    for grown in client.create_partitions([NewPartitions("segments", 4)]).values():
        grown.result(SECONDS_MAX)
    changes = [
        (ConfigResource.Type.TOPIC, "stamped", "retention.ms", None),
        (ConfigResource.Type.TOPIC, "both", "segment.ms", "5000"),
        (ConfigResource.Type.BROKER, "1", "message.max.bytes", "2000000"),
    ]
    for kind, name, key, value in changes:
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(key, value, incremental_operation=operation)
        resource = ConfigResource(kind, name, incremental_configs=[entry])
        for altered in client.incremental_alter_configs([resource]).values():
            altered.result(SECONDS_MAX)
    defaults = ["--entity-type", "brokers", "--entity-default", "--alter", "--add-config", "log.retention.ms=77"]
    ran(CONFIGS, "--bootstrap-server", address, *defaults)


if __name__ == "__main__":
    main()
