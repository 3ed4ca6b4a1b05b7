"""file.delete.delay.ms: files of deleted segments and topics stay on disk for that time, under other names."""

from __future__ import annotations

from pathlib import Path

from test_retention import ANY_TIME, MIB, OLD, alter, start_of, write

from odradek.client.admin import admin
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_config import ClientConfig
from support.asking import delete
from support.raw_client import RawClient
from support.serving import Serving
from support.waiting import until

OFTEN = {"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "0"}
HOUR_MS = "3600000"


def files(folder: Path, pattern: str) -> list[str]:
    return sorted(path.name for path in folder.glob(pattern))


def expired(cluster: Cluster, name: str, delay_ms: str) -> None:
    configs = {"segment.bytes": str(MIB), "retention.ms": "-1", "file.delete.delay.ms": delay_ms} | ANY_TIME
    admin.create_topics(cluster, [admin.NewTopic(name, 1, 1, configs)])
    cluster.topic(name)
    write(cluster, name, [OLD] * 20)
    alter(cluster, name, {"retention.ms": HOUR_MS})
    until(lambda: start_of(cluster, name) == 20)


def test_deleted_segments_and_topics_stay_for_the_delay(tmp_path: Path) -> None:
    data = tmp_path / "data"
    serving = Serving(tmp_path, **OFTEN)
    with serving, Cluster(ClientConfig(serving.address)) as cluster:
        expired(cluster, "stays", HOUR_MS)
        until(lambda: len(files(data / "stays-0", "*.log.deleted")) == 2)
        expired(cluster, "goes", "0")
        until(lambda: files(data / "goes-0", "*.log*") == ["00000000000000000020.log"])
        with RawClient(serving.port) as client:
            for name in ("stays", "goes"):
                assert not delete(client, name)
        until(lambda: not files(data, "goes-0*") and not files(data, "goes.*"))
        (deleted,) = files(data, "stays*")
        assert deleted.endswith("-delete")
        assert len(files(data / deleted, "*.log.deleted")) == 2, "what is deleted is there for an hour"
    with serving:  # They have no readers any more: like Kafka, a start does not wait.
        until(lambda: not files(data, "stays*"))
