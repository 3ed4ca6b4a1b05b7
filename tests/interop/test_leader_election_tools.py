"""Elections of preferred leaders with Apache Kafka's tools, new and old, other clients, and our command line.

Two Odradek brokers on a ZooKeeper; one was down, so that the other one leads all partitions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaError, TopicPartition  # type: ignore[attr-defined]
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]
from kafka.admin import KafkaAdminClient
from kafka_peer import printed
from kafka_tools import ran
from kafka_zookeeper import OLD_KAFKA, V0, ZooKeeper, old_java

from odradek.app.main import main
from odradek.base.units import BrokerId, TopicName
from odradek.base.uuids import Uuid
from odradek.coordination import tree_layout as layout
from odradek.coordination.tree import Create, Tree, ensure_paths
from odradek.coordination.zookeeper import open_zookeeper
from odradek.core.kernel.cluster_view import TopicAssignment
from odradek.testing import Broker
from support.serving import Serving
from support.terminals import own
from support.waiting import SECONDS_MAX, until

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("shares a ZooKeeper with brokers of Apache Kafka")]

TOPIC = TopicName("flights")
PARTITIONS = 7
LEADER_ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
OLD_LEADER_ELECTION = "kafka.admin.PreferredReplicaLeaderElectionCommand"


class Cluster:
    def __init__(self, tree: Tree, connect: str, brokers: dict[int, Serving]) -> None:
        self.tree = tree
        self.connect = connect
        self.brokers = brokers
        self.address = ",".join(broker.address for broker in brokers.values())

    def create(self) -> None:
        replicas = (BrokerId(2), BrokerId(1))
        assignment = TopicAssignment(dict.fromkeys(range(PARTITIONS), replicas), Uuid(b"flights---------"))
        ensure_paths(self.tree, [layout.config(layout.TOPIC_CONFIGS, TOPIC)])
        self.tree.multi([Create(layout.topic(TOPIC), layout.encode_topic(assignment))])

    def states(self) -> list[tuple[int, list[int]]]:
        """Return leader and ISR of each partition, or none while one has no state."""
        paths = [layout.partition_state(TOPIC, index) for index in range(PARTITIONS)]
        found = [layout.decode_partition_state(node[0]) for node in self.tree.get_all(paths) if node is not None]
        return [(state.leader, sorted(state.isr)) for state in found]

    def leaders(self) -> list[int]:
        return [leader for leader, _ in self.states()]

    def one_leads_all(self) -> None:
        """Make one broker lead all partitions while the preferred replica is in sync again."""
        self.brokers[2].kill()
        until(lambda: self.states() == [(1, [1])] * PARTITIONS)
        self.brokers[2].start()
        until(lambda: self.states() == [(1, [1, 2])] * PARTITIONS)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        ensemble = stack.enter_context(ZooKeeper(tmp_path / "zookeeper"))
        connect = f"127.0.0.1:{ensemble.port}/odradek"
        brokers = {}
        for number in (1, 2):
            directory = tmp_path / str(number)
            directory.mkdir()
            own_settings = {"broker.id": str(number), "listeners": "PLAINTEXT://127.0.0.1:0"}
            shared = {"zookeeper.connect": connect, "zookeeper.session.timeout.ms": "2000"}
            never = {"auto.leader.rebalance.enable": "false"}
            brokers[number] = stack.enter_context(Serving(directory, **own_settings, **shared, **never))
        tree = open_zookeeper(connect)
        stack.callback(tree.close)
        made = Cluster(tree, connect, brokers)
        made.create()
        until(lambda: made.states() == [(2, [1, 2])] * PARTITIONS)
        yield made
        assert not any("Traceback" in broker.errors() for broker in brokers.values())


def test_each_tool_elects_the_preferred_leader(
    cluster: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cluster.one_leads_all()

    output = ran(
        LEADER_ELECTION,
        *("--bootstrap-server", cluster.address, "--election-type", "PREFERRED", "--topic", TOPIC, "--partition", "0"),
    )
    assert "Successfully completed leader election (PREFERRED) for partitions flights-0" in output
    assert cluster.leaders() == [2] + [1] * 6

    named = tmp_path / "partitions.json"
    named.write_text(json.dumps({"partitions": [{"topic": TOPIC, "partition": 1}, {"topic": "never", "partition": 3}]}))
    options = ("--zookeeper", cluster.connect, "--path-to-json-file", str(named))
    printed(old_java(V0, OLD_LEADER_ELECTION, *options, level="WARN", folder=tmp_path))
    until(lambda: cluster.leaders() == [2] * 2 + [1] * 5)
    until(lambda: cluster.tree.exists(layout.PREFERRED_REPLICA_ELECTION) is None)

    admin = AdminClient({"bootstrap.servers": cluster.address, "log_level": 0})
    partitions = [TopicPartition(TOPIC, 2), TopicPartition(TOPIC, 0), TopicPartition("never", 0)]
    elected = admin.elect_leaders(ElectionType.PREFERRED, partitions).result(SECONDS_MAX)
    errors = {(each.topic, each.partition): error and error.code() for each, error in elected.items()}
    assert errors == {
        (TOPIC, 2): None,
        (TOPIC, 0): KafkaError.ELECTION_NOT_NEEDED,
        ("never", 0): KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
    assert cluster.leaders() == [2] * 3 + [1] * 4

    python = KafkaAdminClient(bootstrap_servers=cluster.address.split(","))
    python.elect_leaders(0, {TOPIC: [3]})
    python.close()
    assert cluster.leaders() == [2] * 4 + [1] * 3

    rows = shown(cluster, capfd, TOPIC, "--partition", "4", "--partition", "0")
    assert rows == [(0, 2, "ELECTION_NOT_NEEDED"), (4, 2, "elected")]
    assert cluster.leaders() == [2] * 5 + [1] * 2

    assert shown(cluster, capfd, "--all") == [(5, 2, "elected"), (6, 2, "elected")]
    assert cluster.leaders() == [2] * PARTITIONS
    assert "Valid replica already elected" in ran(
        LEADER_ELECTION,
        *("--bootstrap-server", cluster.address, "--election-type", "UNCLEAN", "--topic", TOPIC, "--partition", "0"),
    )
    assert admin.describe_configs([ConfigResource(ResourceType.TOPIC, TOPIC)])  # It still serves other requests.


def shown(cluster: Cluster, capfd: pytest.CaptureFixture[str], *arguments: str) -> list[tuple[int, int, str]]:
    capfd.readouterr()
    assert main(["topic", "elect-leaders", *arguments, "-b", cluster.address, "--json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capfd.readouterr().out)
    assert all(row["topic"] == TOPIC for row in rows)
    return [(row["partition"], row["leader"], row["election"]) for row in rows]


def test_the_elect_leaders_command_reports_its_results(capfd: pytest.CaptureFixture[str]) -> None:
    with Broker({"broker.id": "1"}) as broker:
        at = ("-b", broker.bootstrap_servers)
        assert main(["topic", "create", "t", "-p", "2", *at]) == 0
        capfd.readouterr()
        assert main(["topic", "elect-leaders", "t", *at]) == 0
        assert [line.split() for line in capfd.readouterr().out.splitlines()[2:]] == [
            ["t", "0", "1", "not", "needed"],
            ["t", "1", "1", "not", "needed"],
        ]
        assert main(["topic", "elect-leaders", "--all", "--election-type", "unclean", *at]) == 0
        assert own(capfd.readouterr().err) == "odradek: no partition needs an election\n"
        assert main(["topic", "elect-leaders", "t", "--partition", "2", *at]) == 1
        assert "partition 2 does not exist" in own(capfd.readouterr().err)
        for arguments in ([], ["t", "--all"]):
            assert main(["topic", "elect-leaders", *arguments, *at]) == 2
            assert "name at least one topic" in own(capfd.readouterr().err)
