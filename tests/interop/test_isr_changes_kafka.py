"""ISR changes of an Odradek leader, made as Kafka's leaders make them and learned by Kafka's controller.

Before 2.7 a leader writes them to ZooKeeper. One broker of Kafka 3.9.1 is the controller and follows the other two.
While it is stopped, both leaders remove it from their ISRs, and their notifications stay to be compared.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka_zookeeper import OLD_KAFKA, V0, V3, OldKafka, ZooKeeper

from odradek.base.units import TopicName
from odradek.coordination import tree_layout as layout
from odradek.coordination.tree import Stat, Tree, children_if_there
from odradek.coordination.zookeeper import open_zookeeper
from support.serving import Serving
from support.waiting import SECONDS_MAX, until

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("shares a ZooKeeper with brokers of Apache Kafka")]

CONTROLLER, KAFKA, OURS = 1, 2, 3
LEADERS = {"theirs": KAFKA, "ours": OURS}
FOLLOWED_BY_CONTROLLER = {name: (leader, CONTROLLER) for name, leader in LEADERS.items()}
LAG_MS = {"replica.lag.time.max.ms": "8000"}


class Cluster:
    """Three brokers, and a session of their ZooKeeper."""

    def __init__(self, stack: ExitStack, folder: Path, version: str, protocol: str) -> None:
        # The session of a paused broker stays alive.
        zookeeper = stack.enter_context(ZooKeeper(folder / "zookeeper", {"maxSessionTimeout": "600000"}))
        connect = f"127.0.0.1:{zookeeper.port}/kafka"
        common = {"inter.broker.protocol.version": protocol, "zookeeper.session.timeout.ms": "600000", **LAG_MS}
        settings = {"broker.id": str(CONTROLLER), **common}
        self.controller = stack.enter_context(OldKafka(folder / "controller", V3, settings, zookeeper=connect))
        settings = {"broker.id": str(KAFKA), **common}
        self.kafka = stack.enter_context(OldKafka(folder / "kafka", version, settings, zookeeper=connect))
        (folder / "ours").mkdir()
        listening = {"listeners": "PLAINTEXT://127.0.0.1:0", "zookeeper.connect": connect}
        self.ours = stack.enter_context(Serving(folder / "ours", **{"broker.id": str(OURS)}, **common, **listening))
        self.tree: Tree = open_zookeeper(connect)
        stack.callback(self.tree.close)

    def create_topics(self, replicas: Mapping[str, tuple[int, ...]]) -> None:
        admin = AdminClient({"bootstrap.servers": self.controller.address, "log_level": 0})
        topics = [NewTopic(name, 1, replica_assignment=[list(brokers)]) for name, brokers in replicas.items()]
        for done in admin.create_topics(topics).values():
            done.result(SECONDS_MAX)
        for broker in (self.controller, self.kafka, self.ours):
            until(lambda address=broker.address: isrs(address).keys() >= replicas.keys())  # type: ignore[misc]

    def kill(self) -> None:
        """Kill all brokers: elections of other leaders would only take time."""
        for broker in (self.ours, self.kafka, self.controller):
            broker.kill()

    def produce(self, *topics: str) -> None:
        """Write records that a stopped follower lacks."""
        servers = f"{self.kafka.address},{self.ours.address}"
        producer = Producer({"bootstrap.servers": servers, "acks": 1, "log_level": 0})
        errors: list[object] = []
        for name in topics:
            producer.produce(name, b"LIS", partition=0, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(SECONDS_MAX) == 0
        assert errors == [None] * len(topics)

    def state(self, name: str) -> tuple[dict[str, object], Stat]:
        data, stat = self.tree.get(layout.partition_state(TopicName(name), 0))
        return json.loads(data), stat

    def notifications(self) -> dict[str, tuple[object, Stat]]:
        """Return the controller's notifications, by the topic that they name."""
        names = children_if_there(self.tree, layout.ISR_CHANGES)
        for name in names:
            layout.sequence_of(name, layout.ISR_CHANGE_PREFIX)
        found: dict[str, tuple[object, Stat]] = {}
        for data, stat in filter(None, self.tree.get_all([f"{layout.ISR_CHANGES}/{name}" for name in names])):
            ((topic, _),) = layout.decode_partitions(data)
            found[topic] = json.loads(data.replace(topic.encode(), b"a topic")), stat
        return found


@contextmanager
def stopped(broker: OldKafka) -> Iterator[None]:
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def isrs(address: str) -> dict[str, list[int]]:
    """Return the ISRs that clients of a broker see, by topic."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    topics = admin.list_topics(timeout=SECONDS_MAX).topics
    return {name: list(topic.partitions[0].isrs) for name, topic in topics.items() if 0 in topic.partitions}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("version", "protocol"), [(V3, "2.6"), pytest.param(V0, "0.11.0", marks=pytest.mark.soak)], ids=[V3, V0]
)
def test_a_leader_writes_isr_changes_as_kafka_does(tmp_path: Path, version: str, protocol: str) -> None:
    with ExitStack() as stack:
        cluster = Cluster(stack, tmp_path, version, protocol)
        cluster.create_topics(FOLLOWED_BY_CONTROLLER)
        with stopped(cluster.controller):
            cluster.produce(*LEADERS)
            until(lambda: len(cluster.notifications()) == len(LEADERS))
            notifications = cluster.notifications()
            states = {name: cluster.state(name) for name in LEADERS}
        for name, (state, stat) in states.items():
            assert state["leader"] == LEADERS[name] and state["isr"] == [LEADERS[name]]
            assert (stat.version, stat.ephemeral_owner) == (1, 0)
        ours, theirs = states["ours"][0], states["theirs"][0]
        assert ours == {**theirs, "leader": OURS, "isr": [OURS]}
        assert notifications["ours"][0] == notifications["theirs"][0]
        assert [stat.ephemeral_owner for _, stat in notifications.values()] == [0, 0]
        until(lambda: not cluster.notifications())
        until(lambda: isrs(cluster.controller.address)["ours"] == cluster.state("ours")[0]["isr"])
        cluster.kill()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("protocol", ["3.9", pytest.param("2.8", marks=pytest.mark.soak)])
def test_a_leader_sends_alter_partition_to_kafkas_controller(tmp_path: Path, protocol: str) -> None:
    with ExitStack() as stack:
        cluster = Cluster(stack, tmp_path, V3, protocol)
        cluster.create_topics({"ours": (OURS, KAFKA)})
        with stopped(cluster.kafka):
            cluster.produce("ours")
            until(lambda: cluster.state("ours")[0]["isr"] == [OURS])
            until(lambda: isrs(cluster.ours.address)["ours"] == [OURS])
            assert cluster.state("ours")[1].version == 1
            assert not cluster.notifications()
        cluster.kill()
