"""ElectLeaders with Apache Kafka 3.9.1 and Odradek: the same story leads to the same responses and states.

Each runs two brokers on one ZooKeeper, without automatic rebalancing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from kafka_zookeeper import OLD_KAFKA, V3, OldKafka, ZooKeeper

from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, TopicName
from odradek.base.uuids import Uuid
from odradek.coordination import tree_layout as layout
from odradek.coordination.tree import Create, Tree, ensure_paths
from odradek.coordination.znodes import PartitionState
from odradek.coordination.zookeeper import open_zookeeper
from odradek.core.controller.partition_leader_election import ElectionType
from odradek.core.kernel.cluster_view import TopicAssignment
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from support.raw_client import RawClient
from support.serving import Serving
from support.tree_controller import controller_in
from support.waiting import SECONDS_MAX, until

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("asks a running Apache Kafka the same as this broker")]

PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN
SETTINGS = {"auto.leader.rebalance.enable": "false", "zookeeper.session.timeout.ms": "2000"}
TOPICS = {"t": [(1, 2), (2, 1)], "u": [(2,)], "lost": [(2, 1)], "altered": [(2, 1)]}

Named = Mapping[str, Sequence[int]]


class Process(Protocol):
    def start(self) -> object: ...

    def kill(self) -> None: ...

    @property
    def port(self) -> int: ...


class Answer(NamedTuple):
    error: str
    partitions: list[tuple[str, int, str, str | None]]


class Cluster:
    """Two brokers, their processes created but not started."""

    def __init__(self, brokers: dict[int, Process], tree: Tree) -> None:
        self.brokers = brokers
        self.tree = tree

    def create(self) -> None:
        for name, replicas in TOPICS.items():
            topic = TopicName(name)
            partitions = {index: tuple(map(BrokerId, brokers)) for index, brokers in enumerate(replicas)}
            ensure_paths(self.tree, [layout.config(layout.TOPIC_CONFIGS, topic)])
            self.tree.set(layout.config(layout.TOPIC_CONFIGS, topic), layout.encode_config({}))
            assignment = TopicAssignment(partitions, Uuid(name.encode().ljust(16, b"-")))
            self.tree.multi([Create(layout.topic(topic), layout.encode_topic(assignment))])

    def state(self, name: str, index: int = 0) -> PartitionState | None:
        path = layout.partition_state(TopicName(name), index)
        return None if self.tree.exists(path) is None else layout.decode_partition_state(self.tree.get(path)[0])

    def until_state(self, leader: int, isr: Sequence[int], name: str, index: int = 0) -> None:
        def condition() -> bool:
            found = self.state(name, index)
            return found is not None and (found.leader, sorted(found.isr)) == (leader, sorted(isr))

        until(condition)

    def controls(self, broker: int) -> bool:
        return controller_in(self.tree) == broker

    def elect(self, broker: int, version: int, kind: int, named: Named | None) -> Answer:
        topics = None
        if named is not None:
            topics = [TopicPartitions(topic=name, partitions=list(indexes)) for name, indexes in named.items()]
        request = ElectLeadersRequest(election_type=kind if version else 0, topic_partitions=topics, timeout_ms=60_000)
        with RawClient(self.brokers[broker].port) as client:
            answer = client.request(request, version, ElectLeadersResponse)
        partitions = [
            (topic.topic, one.partition_id, ErrorCode(one.error_code).name, one.error_message)
            for topic in answer.replica_election_results
            for one in topic.partition_result
        ]
        return Answer(ErrorCode(answer.error_code).name, sorted(partitions))

    def leader(self, broker: int, name: str, index: int) -> int:
        """Return the leader as a broker reports it to clients."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        with RawClient(self.brokers[broker].port) as client:
            (topic,) = client.request(request, 8, MetadataResponse).topics
        return next((one.leader_id for one in topic.partitions if one.partition_index == index), -1)

    def shown(self, broker: int, leader: int, name: str, index: int = 0) -> None:
        until(lambda: self.leader(broker, name, index) == leader)

    def allow_unclean(self, broker: int, name: str) -> None:
        address = f"127.0.0.1:{self.brokers[broker].port}"
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        key = "unclean.leader.election.enable"
        entry = ConfigEntry(key, "true", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(SECONDS_MAX)


def story(cluster: Cluster) -> dict[str, object]:
    """Play the story; return the responses, and the final state of the tree."""
    one, two = cluster.brokers[1], cluster.brokers[2]
    responses: dict[str, object] = {}
    one.start()
    until(lambda: cluster.controls(1))
    two.start()
    cluster.create()
    every = {name: list(range(len(replicas))) for name, replicas in TOPICS.items()}
    for name, replicas in TOPICS.items():
        for index, brokers in enumerate(replicas):
            cluster.until_state(brokers[0], brokers, name, index)
            cluster.shown(1, brokers[0], name, index)
            cluster.shown(2, brokers[0], name, index)

    for version in range(3):
        responses[f"nothing to do, v{version}"] = cluster.elect(1, version, PREFERRED, every)
        responses[f"not the controller, v{version}"] = cluster.elect(2, version, PREFERRED, {"t": [0], "nothing": [3]})
    responses["nothing unclean to do"] = cluster.elect(1, 2, UNCLEAN, every)
    responses["of all, nothing"] = cluster.elect(1, 2, PREFERRED, None)
    responses["of all, not the controller"] = cluster.elect(2, 1, PREFERRED, None)
    responses["of none"] = cluster.elect(1, 2, PREFERRED, {})
    responses["unknown, and twice"] = cluster.elect(1, 2, PREFERRED, {"t": [0, 5, 0, -1], "nothing": [0]})

    two.kill()
    cluster.until_state(1, [1], "t", 1)
    cluster.until_state(-1, [2], "u")
    responses["away"] = cluster.elect(1, 2, PREFERRED, {"t": [0, 1], "u": [0]})
    responses["away, unclean"] = cluster.elect(1, 2, UNCLEAN, {"t": [0, 1], "u": [0]})
    responses["away, of all"] = cluster.elect(1, 1, PREFERRED, None)
    two.start()
    cluster.until_state(1, [1, 2], "t", 1)
    responses["back"] = cluster.elect(1, 0, PREFERRED, {"t": [1]})
    assert cluster.leader(1, "t", 1) == 2, "whoever was answered sees it"
    responses["and again"] = cluster.elect(1, 2, PREFERRED, {"t": [1]})
    for name in ("lost", "altered"):
        cluster.until_state(1, [1, 2], name)
    responses["all that were away"] = cluster.elect(1, 2, PREFERRED, None)

    one.kill()
    until(lambda: cluster.controls(2))
    for name in ("lost", "altered"):
        cluster.until_state(2, [2], name)
    two.kill()
    one.start()
    until(lambda: cluster.controls(1))
    for name in ("lost", "altered"):
        cluster.until_state(-1, [2], name)
    responses["only behind"] = cluster.elect(1, 2, PREFERRED, {"lost": [0]})
    responses["only behind, unclean"] = cluster.elect(1, 2, UNCLEAN, {"lost": [0]})
    assert cluster.leader(1, "lost", 0) == 1
    cluster.allow_unclean(1, "altered")
    cluster.until_state(1, [1], "altered")
    states = {name: cluster.state(name) for name in ("lost", "altered")}
    responses["states"] = {
        name: None if state is None else (state.leader, state.isr, state.leader_epoch, state.recovery)
        for name, state in states.items()
    }
    return responses


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path / "zookeeper") as running:
        yield running


def played(ensemble: ZooKeeper, chroot: str, make: Callable[[int, str], OldKafka | Serving]) -> dict[str, object]:
    connect = f"127.0.0.1:{ensemble.port}/{chroot}"
    made = {number: make(number, connect) for number in (1, 2)}
    with ExitStack() as stack:
        for broker in made.values():
            stack.callback(broker.stop)
        tree = open_zookeeper(connect)
        stack.callback(tree.close)
        return story(Cluster({**made}, tree))


def test_responses_and_states_equal_kafkas(tmp_path: Path, ensemble: ZooKeeper) -> None:
    def theirs(number: int, connect: str) -> OldKafka:
        settings = {"broker.id": str(number), **SETTINGS}
        return OldKafka(tmp_path / f"kafka{number}", V3, settings, zookeeper=connect, awaits_controller=False)

    def ours(number: int, connect: str) -> Serving:
        directory = tmp_path / f"odradek{number}"
        directory.mkdir()
        own = {"broker.id": str(number), "listeners": "PLAINTEXT://127.0.0.1:0", "zookeeper.connect": connect}
        return Serving(directory, **own, **SETTINGS)

    responses = played(ensemble, "odradek", ours)
    expected = played(ensemble, "kafka", theirs)
    assert responses == expected
    assert "Traceback" not in "".join((tmp_path / f"odradek{one}" / "stderr.txt").read_text() for one in (1, 2))
