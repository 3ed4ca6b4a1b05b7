"""Odradek and Apache Kafka in one cluster, killed in turn as controllers, leaders and coordinators of the other.

Clients with Jepsen's workload continue all along, and its checker examines their history. No acknowledged record is
lost or duplicated, no committed offset goes back, and no aborted record is read. Then all replicas have the same files.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewPartitions,  # type: ignore[attr-defined]
)
from kafka_peer import printed
from kafka_zookeeper import OLD_KAFKA, V0, V3, old_java
from mixed_cluster import IN_FLIGHT, NOT_PROMISED_BY, OURS, THEIRS, MixedCluster, mixed_cluster
from test_jepsen import TOPICS, check_history, workload
from workload.settings import BROKER_SETTINGS

from support.waiting import SECONDS_MAX, until

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("shares a ZooKeeper with brokers of Apache Kafka")]

ORDERS = ([1, 2, 3], [2, 3, 1], [3, 1, 2])  # Each leads a partition.
SECONDS = 5  # Of the workload alone, before its end.
ONE, TWO = "one-of-kafka", "two-of-kafka"
KINDS = {ONE: (OURS, THEIRS, OURS), TWO: (THEIRS, OURS, THEIRS)}


def grown(cluster: MixedCluster, name: str, count: int) -> None:
    """Add partitions: 0.11 has no CreatePartitions, so its tool writes to the tree."""
    if cluster.version == V0 and cluster.places[cluster.controller()].kind == THEIRS:
        options = ["--alter", "--topic", name, "--partitions", str(count), "--zookeeper", cluster.connect]
        folder = cluster.places[1].folder
        printed(old_java(V0, "kafka.admin.TopicCommand", *options, level="WARN", folder=folder))
    else:
        cluster.admin.create_partitions([NewPartitions(name, count)])[name].result(SECONDS_MAX)


def check_topics(cluster: MixedCluster, deleted: str, alive: list[int]) -> None:
    """Create, alter, grow and delete topics through the present controller."""
    number = cluster.controller()
    name, left = f"made-by-{number}", f"left-by-{number}"
    admin = cluster.admin = AdminClient({"bootstrap.servers": cluster.address, "log_level": 0})
    for one in (name, left):
        cluster.create(one, [alive], min_insync_replicas="1")
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, set_config={"retention.ms": str(10**10 + number)})
    (altered,) = admin.alter_configs([resource]).values()
    altered.result(SECONDS_MAX)
    grown(cluster, name, 2)
    until(lambda: -1 not in cluster.leaders(name) and len(cluster.leaders(name)) == 2)
    assert cluster.configs(name)["retention.ms"] == str(10**10 + number)
    admin.delete_topics([deleted])[deleted].result(SECONDS_MAX)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("version", "mix"),
    [
        (V3, ONE),
        (V0, TWO),
        pytest.param(V3, TWO, marks=pytest.mark.soak),
        pytest.param(V0, ONE, marks=pytest.mark.soak),
    ],
)
def test_kills_of_either_side_in_any_role_lose_nothing(tmp_path: Path, version: str, mix: str) -> None:
    history = tmp_path / "history.jsonl"
    with mixed_cluster(tmp_path, version, KINDS[mix], BROKER_SETTINGS) as cluster:
        for name, count in TOPICS.items():
            cluster.create(name, [ORDERS[index] for index in range(count)], min_insync_replicas="2")
        cluster.create("gone", [*ORDERS], min_insync_replicas="2")
        with workload(cluster.address, history, SECONDS, 51, newest="classic", in_flight=IN_FLIGHT[version]):
            cluster.await_in_sync()
            for controller, other, topic in ((1, 2, "gone"), (2, 3, "left-by-2")):
                cluster.make_controller(controller)
                cluster.kill(controller)
                cluster.make_controller(other)
                check_topics(cluster, topic, [one for one in cluster.places if one != controller])
                cluster.places[controller].start()
                until(lambda name=topic: name not in cluster.topics())  # type: ignore[misc]
                cluster.await_in_sync()
        check_history(history, 2, SECONDS, NOT_PROMISED_BY[version])
        cluster.write_to_all()
        assert cluster.different() == []
        until(lambda: cluster.status() == 0)  # Kafka's leaders report a larger ISR some seconds later.
        assert "Traceback" not in cluster.errors()
