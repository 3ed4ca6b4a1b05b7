"""Brokers that start with another broker's data, another cluster's, or an id that is in use.

Each is refused in one sentence, as by Apache Kafka 3.9.1, and changes nothing in its folder or in the tree.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka_zookeeper import OLD_KAFKA, V3, ZooKeeper, old_java
from test_cluster_zookeeper import BROKERS, broker, servers

from odradek.coordination import tree_layout as layout
from odradek.coordination.tree import NoNode
from odradek.coordination.zookeeper import open_zookeeper
from support.serving import READY_SECONDS_MAX, Serving, outcome_of_serve
from support.waiting import SECONDS_MAX, until

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("kills brokers on a ZooKeeper of its own")]

SESSION_MS = 2_000
TOPIC = "t"
Tree = dict[str, tuple[bytes, int]]


class Cluster:
    """Brokers 1 to 3, and the folder of broker 4 of another cluster; both have a topic of the same name."""

    def __init__(self, folder: Path, port: int, brokers: dict[int, Serving]) -> None:
        self.connect = f"127.0.0.1:{port}/ours"
        self.folder = folder
        self.brokers = brokers
        self._produced = 0
        self._create(servers(brokers), 3)
        self.write()

    def _create(self, address: str, replicas: int) -> None:
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, 3, replicas)])[TOPIC].result(SECONDS_MAX)

    def write(self) -> None:
        """Write with acks=all to check that the cluster works."""
        producer = Producer({"bootstrap.servers": servers(self.brokers), "acks": "all", "log_level": 0})
        failures: list[object] = []
        for partition in range(3):
            producer.produce(TOPIC, b"x", partition=partition, on_delivery=lambda error, _: failures.append(error))
        assert producer.flush(SECONDS_MAX) == 0
        assert failures == [None] * 3

    def data_of_another_cluster(self) -> Path:
        directory = self.folder / "elsewhere"
        directory.mkdir()
        settings = {"broker.id": "4", "listeners": "PLAINTEXT://127.0.0.1:0", "zookeeper.connect": f"{self.connect}2"}
        with Serving(directory, **settings) as other:
            self._create(other.address, 1)
        return directory / "data"

    def data_of(self, number: int) -> Path:
        """Return a copy of the data, like a backup restored on the wrong machine."""
        copy = self.folder / f"copy-of-{number}"
        shutil.copytree(self.folder / str(number) / "data", copy)
        return copy

    def tree(self) -> Tree:
        tree = open_zookeeper(self.connect)
        found: Tree = {}

        def visit(path: str) -> None:
            with suppress(NoNode):  # These znodes come and go.
                data, stat = tree.get(path)
                found[path] = data, stat.version
                for name in tree.children(path):
                    visit(f"{path.rstrip('/')}/{name}")

        try:
            visit("/")
        finally:
            tree.close()
        return found

    def settings(self, number: int, data: Path) -> dict[str, str]:
        return {
            "broker.id": str(number),
            "log.dirs": str(data),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "zookeeper.connect": self.connect,
            "zookeeper.session.timeout.ms": str(SESSION_MS),
        }

    def refusal_by_us(self, number: int, data: Path) -> str:
        """Return the one sentence of the refusal."""
        arguments = [f"--override={key}={value}" for key, value in self.settings(number, data).items()]
        status, errors = outcome_of_serve(self.folder, *arguments)
        assert status == 1
        (line,) = errors.strip().splitlines()
        assert line.startswith("odradek serve: ")
        return line

    def refusal_by_kafka(self, number: int, data: Path) -> str:
        properties = self.folder / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self.settings(number, data).items()))
        command = old_java(V3, "kafka.Kafka", str(properties), level="ERROR", folder=self.folder)
        ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=READY_SECONDS_MAX)
        assert ended.returncode == 1
        return ended.stderr


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with ExitStack() as stack:
        ensemble = stack.enter_context(ZooKeeper(folder / "zookeeper"))
        connect = f"127.0.0.1:{ensemble.port}/ours"
        made = {number: broker(folder, number, connect) for number in BROKERS}
        brokers = {number: stack.enter_context(one) for number, one in made.items()}
        yield Cluster(folder, ensemble.port, brokers)
        assert not any("Traceback" in one.errors() for one in brokers.values())


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check_nothing_changed(cluster: Cluster, tree: Tree) -> None:
    until(lambda: cluster.tree() == tree)
    assert sorted(cluster.tree()[f"{layout.BROKER_IDS}/{one}"][1] for one in BROKERS) == [0, 0, 0]
    cluster.write()


def test_a_start_with_another_brokers_data_is_refused(cluster: Cluster) -> None:
    data, tree = cluster.data_of(2), cluster.tree()
    before = content(data)
    message = cluster.refusal_by_us(7, data)
    assert f"{data}/meta.properties has broker.id=2, but this broker has broker.id=7" in message
    assert content(data) == before
    assert "Stored node id 2 doesn't match previous node id 7" in cluster.refusal_by_kafka(7, data)
    check_nothing_changed(cluster, tree)


def test_a_start_with_another_clusters_data_is_refused(cluster: Cluster) -> None:
    data, tree = cluster.data_of_another_cluster(), cluster.tree()
    before = content(data)
    message = cluster.refusal_by_us(4, data)
    assert f"{data}/meta.properties has cluster.id=" in message and "correct log.dirs" in message
    assert content(data) == before
    assert "Invalid cluster.id in: " in cluster.refusal_by_kafka(4, data)
    check_nothing_changed(cluster, tree)


@pytest.mark.parametrize("is_copy", [False, True])
def test_a_start_with_an_id_in_use_is_refused(cluster: Cluster, is_copy: bool) -> None:
    """A live broker has the id: the logs are left alone, even if they are a copy of its own."""
    data, tree = cluster.data_of(3) if is_copy else cluster.folder / "new", cluster.tree()
    before = content(data)
    message = cluster.refusal_by_us(3, data)
    assert f"Broker 3 at 127.0.0.1:{cluster.brokers[3].port} is already using the metadata" in message
    assert content(data) == before
    if is_copy:
        assert "KeeperErrorCode = NodeExists" in cluster.refusal_by_kafka(3, data)
    check_nothing_changed(cluster, tree)
