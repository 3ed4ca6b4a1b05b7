"""Brokers of Odradek and of Apache Kafka on one ZooKeeper, each at its own place: an id, a port and a folder.

A place keeps its address and data when a broker of the other kind takes it over, as in a migration.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from contents import MOST
from kafka_zookeeper import V0, V3, OldKafka, ZooKeeper

from checker.anomaly import Anomaly
from checker.verdict import NOT_PROMISED
from odradek.base.units import TopicName, TopicPartition
from odradek.coordination import tree_layout as layout
from odradek.coordination.tree import NoNode, Tree
from odradek.coordination.zookeeper import open_zookeeper
from support.ports import free_port
from support.serving import Serving
from support.tree_controller import controller_in
from support.waiting import SECONDS_MAX, until

LEVELS = {V3: "3.9", V0: "0.11.0"}  # inter.broker.protocol.version, of a release and of ours beside it.
OURS, THEIRS = "ours", "theirs"
# Before KIP-447, in 2.5, the response to EndTxn precedes the visibility of the transaction's offsets, and clients
# cannot wait for it: a member that joins in between starts at the former offsets, and commits lower ones.
KIP_447 = frozenset((Anomaly.COMMITTED_LATE, Anomaly.COMMITTED_AGAIN, Anomaly.CONSUMED_TWICE))
NOT_PROMISED_BY = {V3: NOT_PROMISED, V0: NOT_PROMISED | KIP_447}
IN_FLIGHT = {V3: 5, V0: 1}  # In-flight requests of an idempotent producer, whose batches the brokers remember.
COMPACTED = frozenset(MOST)  # Each replica's cleaner has its own times.
SESSION_MS = "10000"  # ZooKeeper's maximum here: Kafka does not start if its session expires during the start.
SETTINGS = {
    "zookeeper.session.timeout.ms": SESSION_MS,
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.enable": "false",  # The files of all replicas are compared.
    "auto.leader.rebalance.enable": "false",
    "delete.topic.enable": "true",  # Not the default before 1.0.
    "controlled.shutdown.retry.backoff.ms": "500",
}


class Place:
    """One broker of the cluster, of either kind."""

    def __init__(self, folder: Path, number: int, version: str, connect: str, settings: Mapping[str, str]) -> None:
        folder.mkdir(parents=True)
        own = {"broker.id": str(number), "inter.broker.protocol.version": LEVELS[version], **SETTINGS, **settings}
        self.number = number
        self.port = free_port()
        self.folder = folder
        self.data = folder / "data"
        self._kafka = OldKafka(folder, version, own, zookeeper=connect, awaits_controller=False)
        self._kafka.port = self.port
        self.ours = Serving(folder, **own, **{"zookeeper.connect": connect})
        self.ours.port = self.port
        self.kind = ""  # Of the running or the last broker.

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, kind: str = "") -> None:
        self.kind = kind or self.kind
        self._running.start()

    def stop(self) -> None:
        """Stop with SIGTERM; other brokers lead before it has ended."""
        self._running.stop()

    def kill(self) -> None:
        self._running.kill()

    @property
    def _running(self) -> Serving | OldKafka:
        return self.ours if self.kind == OURS else self._kafka

    def empty(self) -> None:
        """Remove the data, as on a new machine."""
        shutil.rmtree(self.data)


class MixedCluster:
    """The places 1, 2, ..., and a session of their ZooKeeper."""

    def __init__(
        self, stack: ExitStack, folder: Path, version: str, kinds: Sequence[str], settings: Mapping[str, str]
    ) -> None:
        """Start a broker of each kind, one after the other: the first is the controller."""
        self.version = version
        zookeeper = stack.enter_context(ZooKeeper(folder / "zookeeper"))
        self.connect = f"127.0.0.1:{zookeeper.port}/kafka"
        self.places = {
            number: Place(folder / str(number), number, version, self.connect, settings)
            for number, _ in enumerate(kinds, 1)
        }
        for place, kind in zip(self.places.values(), kinds, strict=True):
            stack.callback(place.kill)
            place.start(kind)
            if place.number == 1:
                self.tree: Tree = open_zookeeper(self.connect)
                stack.callback(self.tree.close)
                until(lambda: self.controller() == 1)
        until(lambda: len(self.registered()) == len(kinds))
        self.wait_for_metadata(1)  # librdkafka waits a minute if its first metadata contains no controller.
        self.admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    @property
    def address(self) -> str:
        return ",".join(place.address for place in self.places.values())

    def registered(self) -> set[int]:
        return set(map(int, self.tree.children(layout.BROKER_IDS)))

    def controller(self) -> int:
        """Return the id of the controller, or -1."""
        return controller_in(self.tree)

    def make_controller(self, number: int) -> None:
        """Force elections until this broker wins one, as administrators do: by deleting the znode."""

        def has_won() -> bool:
            if (found := self.controller()) not in (number, -1):
                with suppress(NoNode):
                    self.tree.delete(layout.CONTROLLER)
            return found == number

        until(has_won)
        self.wait_for_metadata(number)

    def wait_for_metadata(self, controller: int) -> None:
        """Wait until the metadata of every live broker contains the controller."""
        for number in self.registered():
            until(lambda at=self.places[number].address: _controller_at(at) == controller)  # type: ignore[misc]

    def kill(self, number: int) -> None:
        """Kill with kill -9; return when the session has expired."""
        self.places[number].kill()
        until(lambda: number not in self.registered())

    def create(self, name: str, replicas: list[list[int]], **configs: str) -> None:
        """Create a topic. Config keys have '_' for '.'."""
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        new = NewTopic(name, len(replicas), replica_assignment=replicas, config=dotted)
        self.admin.create_topics([new])[name].result(SECONDS_MAX)

    def topics(self) -> set[str]:
        return set(self.tree.children(layout.TOPICS))

    def configs(self, name: str) -> dict[str, str]:
        return layout.decode_config(self.tree.get(layout.config(layout.TOPIC_CONFIGS, name))[0])

    def assigned(self, name: str) -> layout.Replicas:
        return layout.decode_topic(self.tree.get(layout.topic(TopicName(name)))[0]).partitions

    def states(self, name: str) -> list[layout.PartitionState]:
        topic = TopicName(name)
        indexes = sorted(map(int, self.tree.children(layout.partitions(topic))))
        return [
            layout.decode_partition_state(self.tree.get(layout.partition_state(topic, index))[0]) for index in indexes
        ]

    def leaders(self, name: str) -> list[int]:
        return [state.leader for state in self.states(name)]

    def is_in_sync(self) -> bool:
        """Return True if every partition has a leader and all of its replicas in sync."""
        for name in self.topics():
            try:
                assigned = self.assigned(name)
                found = self.states(name)
            except NoNode:  # It is only just made.
                return False
            if len(found) < len(assigned) or any(
                state.leader < 0 or set(state.isr) != set(assigned[index]) for index, state in enumerate(found)
            ):
                return False
        return True

    def await_in_sync(self) -> None:
        until(self.is_in_sync)

    def elect_preferred(self) -> None:
        """Elect preferred leaders, as old tools request it: through a znode."""
        preferred = {
            TopicPartition(TopicName(name), index): replicas[0]
            for name in self.topics()
            for index, replicas in layout.decode_topic(
                self.tree.get(layout.topic(TopicName(name)))[0]
            ).partitions.items()
        }
        self.tree.create(layout.PREFERRED_REPLICA_ELECTION, layout.encode_partitions(list(preferred)))
        until(lambda: all(self.leaders(one.topic)[one.partition] == leader for one, leader in preferred.items()))

    def status(self) -> int:
        """Return the exit status of `odradek cluster status`."""
        command = [sys.executable, "-m", "odradek", "cluster", "status", "--bootstrap-server", self.address]
        return subprocess.run(command, check=False, capture_output=True, timeout=SECONDS_MAX).returncode

    def errors(self) -> str:
        """Return the error output of the Odradek brokers."""
        paths = [place.folder / "stderr.txt" for place in self.places.values()]
        return "".join(path.read_text() for path in paths if path.exists())

    # The files that must be equal on all replicas.

    def write_to_all(self) -> None:
        """Write a record to every partition of user topics, so that each has one of its current epoch."""
        producer = Producer({"bootstrap.servers": self.address, "acks": "all", "log_level": 0})
        failed: list[object] = []
        for name in self.topics():
            if not name.startswith("__"):
                for index, _ in enumerate(self.states(name)):
                    producer.produce(
                        name, b"0", b"k", partition=index, on_delivery=lambda error, _: failed.append(error)
                    )
        assert producer.flush(SECONDS_MAX) == 0
        assert not any(failed)

    def different(self) -> list[str]:
        """Return the files that differ between equal replicas; compacted ones always may."""
        found: list[str] = []

        def is_equal() -> bool:
            found[:] = [name for name, contents in self._files().items() if len(set(contents)) > 1]
            return not found

        with suppress(AssertionError):
            until(is_equal)
        return found

    def _files(self) -> dict[str, list[bytes]]:
        files: dict[str, list[bytes]] = {}
        for name in self.topics():
            for index, brokers in self.assigned(name).items():
                folders = [self.places[broker].data / f"{name}-{index}" for broker in brokers]
                names = {path.name for folder in folders for path in folder.glob("*.log")}
                if name in COMPACTED:
                    names.clear()
                names.add("leader-epoch-checkpoint")
                for one in names:
                    paths = [folder / one for folder in folders]
                    files[f"{name}-{index}/{one}"] = [path.read_bytes() if path.exists() else b"" for path in paths]
        return files


def _controller_at(address: str) -> int:
    try:
        return AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=5).controller_id
    except KafkaException:  # The broker has just started.
        return -1


@contextmanager
def mixed_cluster(
    folder: Path, version: str, kinds: Sequence[str], settings: Mapping[str, str] = {}
) -> Iterator[MixedCluster]:
    with ExitStack() as stack:
        yield MixedCluster(stack, folder, version, kinds, settings)
