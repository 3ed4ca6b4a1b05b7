"""Three Apache Kafka nodes that form one cluster (KRaft), each a broker and a controller.

    with KafkaCluster(folder) as kafka:
        kafka[2].kill()                # The other two continue.
        kafka.start(2)

The session of a killed node expires after SESSION_MS; until then, metadata still contains the node.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from confluent_kafka.admin import AdminClient
from kafka_peer import KafkaBroker, free_port

from support.waiting import until

NODES = (1, 2, 3)
SESSION_MS = 3_000
SETTINGS = {
    "broker.session.timeout.ms": str(SESSION_MS),
    "broker.heartbeat.interval.ms": "500",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "6",  # So that every node coordinates some groups...
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "6",  # ... and some transactions.
    "transaction.partition.verification.enable": "false",  # So that a test can leave a transaction hanging.
    "replica.lag.time.max.ms": "5000",
    "leader.imbalance.check.interval.seconds": "3600",  # Leaders stay where tests have moved them.
}


class KafkaCluster:
    """The cluster, for `with`; cluster[1] to cluster[3] are its nodes."""

    def __init__(self, folder: Path) -> None:
        ports = {node: free_port() for node in NODES}
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in ports.items())
        self._nodes = {node: _node(folder / str(node), node, ports[node], voters) for node in NODES}

    def __getitem__(self, node: int) -> KafkaBroker:
        return self._nodes[node]

    @property
    def addresses(self) -> str:
        """Return all nodes, as bootstrap servers."""
        return ",".join(node.address for node in self._nodes.values())

    def __enter__(self) -> KafkaCluster:
        self.start(*NODES)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self._nodes.values():
            node.kill()

    def start(self, *nodes: int) -> None:
        """Start nodes, and wait until every running node knows them and all replicas are in sync."""
        for node in nodes:
            self._nodes[node].launch()
        for node in nodes:
            self._nodes[node].await_started()
        self.await_brokers(NODES)

    def await_brokers(self, nodes: Iterable[int]) -> None:
        """Wait until each of these nodes sees exactly them in the cluster, with replicas in sync."""
        expected = set(nodes)
        for node in expected:
            client = AdminClient({"bootstrap.servers": self._nodes[node].address, "log_level": 0})
            until(lambda client=client: _is_whole(client, expected))


def _is_whole(client: AdminClient, expected: set[int]) -> bool:
    seen = client.list_topics(timeout=60)
    partitions = [part for topic in seen.topics.values() for part in topic.partitions.values()]
    return set(seen.brokers) == expected and all(set(part.isrs) == set(part.replicas) & expected for part in partitions)


def _node(folder: Path, node: int, controller_port: int, voters: str) -> KafkaBroker:
    port = free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}"
    own = {"node.id": str(node), "controller.quorum.voters": voters, "listeners": listeners}
    return KafkaBroker(folder, settings=SETTINGS | own, port=port)
