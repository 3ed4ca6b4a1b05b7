"""Three brokers and a ZooKeeper, each on its own host, in a network that a test cuts; clients are on another host.

The state of the cluster is read from the tree, as brokers may be cut off.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka_zookeeper import ZooKeeper
from test_jepsen import TOPICS, check_history, workload
from workload.brokers import create_topics
from workload.settings import BROKER_SETTINGS, STATE_REPLICAS, GroupProtocol
from workload.tried import Acknowledged

from odradek.base.units import TopicName
from odradek.coordination import tree_layout as layout
from odradek.coordination.tree import NoNode, Tree
from odradek.coordination.zookeeper import open_zookeeper
from support.asking import leaders
from support.network_namespaces import Host, Network
from support.serving import Serving
from support.tree_controller import controller_in
from support.waiting import SECONDS_MAX, until

BROKERS = (1, 2, 3)
PORT = 9092
NEWEST: GroupProtocol = "classic"  # Nothing is finalized on an ensemble.
SECONDS = 6.0  # The minimum duration of the clients' work.
ASSIGNMENT = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
BUSY = ("a", 0)  # A partition that they write to.
VAIN = "vain"  # A topic of which each broker leads a partition, and which only `sent_in_vain` writes to.
# Cut-off brokers expire soon, and return soon.
SETTINGS = {
    **BROKER_SETTINGS,
    **dict.fromkeys(STATE_REPLICAS, "3"),
    "zookeeper.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "2000",
}
# Prints the response to each of some records that a broker is sent with acks=all, for a while. A librdkafka client
# would look up the leader at any known broker, and send them there.
_SEND = """
import sys, time
from support.asking import produce
from support.raw_client import RawClient
host, port, topic, *partitions = sys.argv[1:]
until = time.monotonic() + 4
with RawClient(int(port), host=host) as client:
    while time.monotonic() < until:
        for partition in partitions:
            error, _ = produce(client, topic, b"in vain", partition=int(partition), timeout_ms=4000)
            print(error.name if error else "acknowledged", flush=True)
        time.sleep(0.1)
"""


class PartedCluster:
    """The cluster, for `with`; its brokers are 1, 2, 3."""

    def __init__(self, folder: Path, settings: Mapping[str, str] = {}) -> None:
        self._folder = folder
        self._settings = {**SETTINGS, **settings}
        self._ends = ExitStack()
        self.brokers: dict[int, Serving] = {}
        self.hosts: dict[int, Host] = {}

    def __enter__(self) -> PartedCluster:
        try:
            self.network = self._ends.enter_context(Network(len(BROKERS) + 1))
            self.keeper, *hosts = self.network.hosts
            address, within = self.keeper.address, self.keeper.within
            self.ensemble = ZooKeeper(self._folder / "zookeeper", host=address, within=within)
            self._ends.enter_context(self.ensemble)
            self.hosts = dict(zip(BROKERS, hosts, strict=True))
            for number, host in self.hosts.items():
                self.brokers[number] = self._ends.enter_context(self._broker(number, host))
            # All are stopped together, so that none waits for a controller that is cut off.
            self._ends.callback(self.network.heal)
        except BaseException:
            self._ends.close()
            raise
        return self

    @property
    def _connect(self) -> str:
        return f"{self.keeper.address}:{self.ensemble.port}/kafka"

    def _broker(self, number: int, host: Host) -> Serving:
        folder = self._folder / str(number)
        folder.mkdir()
        settings = {
            "broker.id": str(number),
            "listeners": f"PLAINTEXT://{host.address}:{PORT}",
            "zookeeper.connect": self._connect,
            **self._settings,
        }
        made = Serving(folder, "--insecure", **settings)
        made.host, made.within = host.address, host.within
        return made

    @property
    def address(self) -> str:
        return ",".join(one.address for one in self.brokers.values())

    @contextmanager
    def tree(self) -> Iterator[Tree]:
        """Open a separate session, since an earlier one may have expired."""
        opened = open_zookeeper(self._connect)
        try:
            yield opened
        finally:
            opened.close()

    def controller(self) -> int:
        """Return the controller's id, or -1."""
        with self.tree() as tree:
            return controller_in(tree)

    def registered(self) -> set[int]:
        with self.tree() as tree:
            return {int(number) for number in tree.children(layout.BROKER_IDS)}

    def topics(self) -> list[str]:
        with self.tree() as tree:
            return tree.children(layout.TOPICS)

    def states(self) -> dict[tuple[str, int], layout.PartitionState]:
        """Return the state of each partition that has one, by topic and index."""
        found = {}
        with self.tree() as tree:
            for topic in tree.children(layout.TOPICS):
                with suppress(NoNode):  # It is being created or deleted.
                    for number in tree.children(layout.partitions(TopicName(topic))):
                        found[topic, int(number)] = _state(tree, topic, int(number))
        return found

    def state(self, topic: str, partition: int) -> layout.PartitionState:
        with self.tree() as tree:
            return _state(tree, topic, partition)

    def led_by(self, broker: int, topic: str) -> list[int]:
        """Return the partitions of a topic that a broker leads."""
        return sorted(number for (name, number), one in self.states().items() if (name, one.leader) == (topic, broker))

    def until_deposed(self, broker: int) -> None:
        """Wait until other brokers lead a broker's former partitions, and know it; it may still follow for a while."""
        # A leader replaced in the tree may still acknowledge records, and nothing is lost: until the new leader
        # learns of its election, it follows and has the record.
        until(lambda: broker not in {state.leader for state in self.states().values()})
        for number in BROKERS:
            if number != broker:
                address = self.brokers[number].address
                until(lambda: broker not in leaders(address, VAIN).values())  # noqa: B023  # It is called here alone.

    def until_whole(self) -> None:
        """Wait until each broker is registered and all of its replicas are in sync."""
        until(lambda: self.registered() == set(BROKERS) and self.controller() in BROKERS)
        until(lambda: all(set(state.isr) == set(BROKERS) for state in self.states().values()))

    def create_topic(self, name: str) -> None:
        """Create a topic of which each broker leads one partition: the first one 0, and so on."""
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        topic = NewTopic(name, len(BROKERS), replica_assignment=ASSIGNMENT, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])[name].result(SECONDS_MAX)

    def sent_in_vain(self, broker: int, topic: str, partitions: Iterable[int]) -> list[str]:
        """Return the responses to a client on the broker's own host that sends it a record for each partition."""
        host = self.hosts[broker]
        done = subprocess.run(
            [*host.within, sys.executable, "-c", _SEND, host.address, str(PORT), topic, *map(str, partitions)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        assert done.stdout, "it was sent something"
        return done.stdout.split()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.close()


def _state(tree: Tree, topic: str, partition: int) -> layout.PartitionState:
    data, _ = tree.get(layout.partition_state(TopicName(topic), partition))
    return layout.decode_partition_state(data)


class Case:
    """A cluster and its clients."""

    def __init__(self, cluster: PartedCluster, history: Path) -> None:
        self.cluster = cluster
        self.network = cluster.network
        self._acknowledged = Acknowledged(history)

    def wait_for_progress(self, count: int = 20) -> None:
        """Wait until this number of further sends with acks=all is acknowledged."""
        target = self._acknowledged.count() + count
        until(lambda: self._acknowledged.count() >= target)


@contextmanager
def under_load(folder: Path, seed: int, *, deposes: bool = True) -> Iterator[Case]:
    """Run a cluster with the clients of `workload`; at the end, heal it and check their history.

    A deposed broker that cannot learn of it may return outdated committed offsets until it has recovered
    (docs/CLUSTER.md; Apache Kafka on ZooKeeper does the same).
    """
    history = folder / "history.jsonl"
    with PartedCluster(folder) as cluster:
        create_topics(cluster.address, TOPICS, len(BROKERS))
        cluster.create_topic(VAIN)
        case = Case(cluster, history)
        with workload(cluster.address, history, SECONDS, seed, newest=NEWEST):
            case.wait_for_progress()
            begun = time.monotonic_ns()
            yield case
            cluster.network.heal()
            case.wait_for_progress()
            cluster.until_whole()
            unheard = (begun, time.monotonic_ns()) if deposes else None
        assert [_end(cluster, number) for number in range(len(BROKERS))] == [0] * len(BROKERS), "it was in vain"
        assert not [number for number, one in cluster.brokers.items() if one.has_ended]
    check_history(history, 1, SECONDS, unheard=unheard)
    for one in cluster.brokers.values():
        assert "Traceback" not in one.errors()
        assert " ERROR " not in one.errors()


def _end(cluster: PartedCluster, partition: int) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.address, "group.id": "ends", "log_level": 0})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(VAIN, partition), timeout=SECONDS_MAX)
        return end
    finally:
        consumer.close()
