"""Migration of an Apache Kafka cluster under ZooKeeper to Odradek and back, broker by broker (docs/MIGRATION.md).

Each broker is stopped, and one of the other kind is started in its place, on its log directory or an empty one. Clients
with Jepsen's workload continue in the meantime, and the checker examines their history. Clients find all former
records, and the tree has all former nodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from clients.registry import parameter
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,  # type: ignore[attr-defined]
)
from contents import CLEANER, CODECS, OPEN, await_compaction, configs_for, fill, found, read, transactional
from kafka_peer import printed
from kafka_zookeeper import OLD_KAFKA, V0, V3, old_java
from mixed_cluster import IN_FLIGHT, NOT_PROMISED_BY, OURS, THEIRS, MixedCluster, mixed_cluster
from test_jepsen import TOPICS, check_history, workload
from workload.brokers import create_topics
from workload.programs import PROGRAMS, built
from workload.recorder import read_history
from workload.settings import BROKER_SETTINGS

from checker.anomaly import Anomaly
from checker.history import operations
from checker.verdict import check
from odradek.coordination import tree_layout as layout
from odradek.coordination.tree import Tree, children_if_there
from support.waiting import SECONDS_MAX, until

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("shares a ZooKeeper with brokers of Apache Kafka")]

SECONDS = 5  # Of the clients, if the moves take less.
SETTINGS = BROKER_SETTINGS | CLEANER | {"log.cleaner.enable": "true"}
CODECS_OF = {V3: CODECS, V0: CODECS[:4]}
DYNAMIC = "message.max.bytes", "2000000"  # Of broker 2, set while it runs.
QUOTA = "producer_byte_rate=1000000"
# Nodes that exist for a while after a change; and fields that count changes and name their author.
PASSING = ("/isr_change_notification/", "/log_dir_event_notification/", "/config/changes/")
COUNTING = ("/controller", "/controller_epoch", "/latest_producer_id_block")
# Nodes that Kafka 3.9 creates at its start.
STARTUP = {path: None for path in layout.STARTUP_PATHS if path not in COUNTING}
OWN = {"timestamp", "leader_epoch", "controller_epoch"}  # Fields that count as well.


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("version", "client", "has_new_disks"),
    [
        pytest.param(V3, "librdkafka", False),
        pytest.param(V0, "librdkafka", False, marks=pytest.mark.soak),
        pytest.param(V3, "java-3.9.1", True, marks=[*parameter("java-4.4.0").marks, pytest.mark.soak]),
    ],
)
def test_a_cluster_migrates_to_odradek_and_back(tmp_path: Path, version: str, client: str, has_new_disks: bool) -> None:
    history = tmp_path / "history.jsonl"
    program = built(client) if client in PROGRAMS else []
    with mixed_cluster(tmp_path, version, (THEIRS,) * 3, SETTINGS) as cluster:
        create_topics(cluster.address, TOPICS, 3)
        opened = filled(cluster)
        before, tree = found(cluster.address), nodes(cluster.tree)
        with workload(cluster.address, history, SECONDS, 61, program, newest="classic", in_flight=IN_FLIGHT[version]):
            for kind in (OURS, THEIRS):
                move(cluster, kind, has_new_disks=has_new_disks)
                assert found(cluster.address) == before
                assert nodes(cluster.tree) == STARTUP | tree
                if kind == OURS:
                    check_configs(cluster)
        del opened
        check_history(history, 2 * len(cluster.places), SECONDS, NOT_PROMISED_BY[version])
        go_on(cluster)
        cluster.write_to_all()
        assert cluster.different() == []
        assert "Traceback" not in cluster.errors()
        assert "stray" not in "".join(str(path) for path in tmp_path.glob("*/data/*"))


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_old_kafka_alone_shows_the_excused_anomalies(tmp_path: Path) -> None:
    """Three brokers of 0.11.0.3, without Odradek, are restarted one after the other, twice."""
    history = tmp_path / "history.jsonl"
    with mixed_cluster(tmp_path, V0, (THEIRS,) * 3, SETTINGS) as cluster:
        create_topics(cluster.address, TOPICS, 3)
        cluster.await_in_sync()
        with workload(cluster.address, history, SECONDS, 73, newest="classic", in_flight=IN_FLIGHT[V0]):
            for _ in range(2):
                move(cluster, THEIRS, has_new_disks=False)
    check_history(history, 2 * len(cluster.places), SECONDS, NOT_PROMISED_BY[V0])
    not_by_newer = {found.anomaly for found in check(operations(read_history(history)), NOT_PROMISED_BY[V3]).broken}
    assert Anomaly.COMMITTED_LATE in not_by_newer


def filled(cluster: MixedCluster) -> object:
    """Create everything that a cluster may contain; return the producer of the open transaction."""
    admin = cluster.admin
    new = [NewTopic(name, count, 3, config=dict(configs)) for name, (count, configs) in configs_for(V3).items()]
    for made in admin.create_topics(new).values():
        made.result(SECONDS_MAX)
    opened = fill(cluster.address, codecs=CODECS_OF[cluster.version])
    await_compaction(cluster.places[1].data, cluster.address)
    where = ["--bootstrap-server", cluster.address] if cluster.version == V3 else ["--zookeeper", cluster.connect]
    change = ["--entity-type", "clients", "--entity-name", "app", "--alter", "--add-config", QUOTA]
    folder = cluster.places[1].folder
    printed(old_java(cluster.version, "kafka.admin.ConfigCommand", *where, *change, level="ERROR", folder=folder))
    if cluster.version == V3:
        entry = ConfigEntry(*DYNAMIC, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.BROKER, "2", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(SECONDS_MAX)
    return opened


def move(cluster: MixedCluster, kind: str, *, has_new_disks: bool) -> None:
    """Replace the brokers one by one, the controller last, each when all are in sync; then check preferred leaders."""
    last = cluster.controller()
    for number in sorted(cluster.places, key=lambda one: one == last):
        place = cluster.places[number]
        until(lambda: cluster.status() == 0)
        place.stop()
        if has_new_disks:
            place.empty()
        place.start(kind)
    until(lambda: cluster.status() == 0)
    cluster.elect_preferred()
    assert {place.kind for place in cluster.places.values()} == {kind}


def nodes(tree: Tree) -> dict[str, object]:
    """Return the contents of persistent nodes without event counters and timestamps."""
    return {path: value for path, value in _nodes(tree, "") if not path.startswith(PASSING) and path not in COUNTING}


def _nodes(tree: Tree, path: str) -> Iterator[tuple[str, object]]:
    (read,) = tree.get_all([path or "/"])
    if read is None:  # These nodes come and go.
        return
    data, _ = read
    value = json.loads(data) if data else None
    if isinstance(value, dict):  # In Kafka's, fields have the order of a hash table.
        value = {name: one for name, one in value.items() if name not in OWN}
        if path.endswith("/state"):
            value["isr"].sort()
    yield path, value
    for name in children_if_there(tree, path or "/"):
        yield from _nodes(tree, f"{path}/{name}")


def check_configs(cluster: MixedCluster) -> None:
    """Check that Odradek brokers use the configurations set before."""
    client = AdminClient({"bootstrap.servers": cluster.address, "log_level": 0})
    expected = configs_for(V3)
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in expected]
    for resource, future in client.describe_configs(resources).items():
        described = {name: entry.value for name, entry in future.result(SECONDS_MAX).items()}
        configs = expected[resource.name][1]
        assert {name: described[name] for name in configs} == configs
    if cluster.version == V3:
        resource = ConfigResource(ConfigResource.Type.BROKER, "2")
        entry = client.describe_configs([resource])[resource].result(SECONDS_MAX)[DYNAMIC[0]]
        assert (entry.value, entry.source) == (DYNAMIC[1], ConfigSource.DYNAMIC_BROKER_CONFIG.value)


def go_on(cluster: MixedCluster) -> None:
    """End the transaction that was open all along, with its transactional id."""
    producer = transactional(cluster.address, OPEN)
    producer.begin_transaction()
    producer.produce("transactions", b"next", partition=0)
    producer.commit_transaction(SECONDS_MAX)
    until(lambda: committed(cluster.address)[-1:] == [b"next"])


def committed(address: str) -> list[bytes | None]:
    (records,) = read(address, [TopicPartition("transactions", 0)], "read_committed").values()
    return [record[4] for record in records]
