"""Cluster metadata in a real tree: registration, contents, and producer ids, which are given out once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import INT64_MAX, BrokerId, LeaderEpoch, ProducerId, TimestampMs
from odradek.base.uuids import Uuid
from odradek.coordination import tree_layout as layout
from odradek.coordination.sqlite import SqliteTree
from odradek.coordination.tree import Stat, Tree
from odradek.core.broker.effects import AllocateProducerIds, CreateTopics
from odradek.core.kernel.cluster_view import BrokerInfo, Endpoint, PartitionInfo, TopicInfo
from odradek.net.cluster.single_broker_metadata import SingleBrokerMetadata
from odradek.net.cluster.tree_metadata import AnotherBroker, Metadata
from support.tree_members import US, T, TreeMember, topic

OTHER = BrokerId(2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.sqlite"


@pytest.fixture
def us(path: Path) -> Iterator[TreeMember]:
    member = TreeMember(path)
    yield member
    member.tree.close()


@pytest.fixture
def other(path: Path) -> Iterator[TreeMember]:
    member = TreeMember(path, OTHER)
    yield member
    member.tree.close()


def refusal(refused: Refused) -> ErrorCode:
    return refused.code


# Registration.


def test_brokers_share_one_cluster_id(us: TreeMember, other: TreeMember) -> None:
    assert us.metadata.prepare(US, 1000, "late") == (US, "cluster-of-1")
    assert other.metadata.prepare(OTHER, 1000, "late") == (OTHER, "cluster-of-1")


def test_unprepared_tree_has_no_topics(path: Path) -> None:
    tree = SqliteTree(path)
    assert Metadata(tree).topics() == {}
    tree.close()


def test_each_broker_is_registered_with_a_rising_epoch(us: TreeMember, other: TreeMember) -> None:
    ours, theirs = us.register_broker(), other.register_broker()
    stat = other.tree.exists(layout.broker(US))
    assert stat is not None
    assert stat.czxid == ours < theirs
    assert sorted(other.tree.children(layout.BROKER_IDS)) == ["1", "2"]
    us.tree.close()
    assert other.tree.children(layout.BROKER_IDS) == ["2"]


def test_repeated_registration_in_one_session_returns_the_same_epoch(us: TreeMember) -> None:
    assert us.register_broker() == us.register_broker()


def test_registration_waits_for_the_previous_process(us: TreeMember, path: Path) -> None:
    before = us.register_broker()
    again = TreeMember(path)
    epochs: list[int] = []
    registering = threading.Thread(target=lambda: epochs.append(again.register_broker()))
    registering.start()
    assert not epochs
    us.tree.close()
    registering.join()
    assert epochs[0] > before
    again.tree.close()


def test_registration_does_not_wait_for_a_killed_process(us: TreeMember, path: Path) -> None:
    before = us.register_broker()
    us.tree.abandon()
    again = TreeMember(path)
    assert again.register_broker(timeout_ms=0) > before
    again.tree.close()


def test_registration_fails_while_another_broker_has_the_id(us: TreeMember, path: Path) -> None:
    us.register_broker()
    again = TreeMember(path)
    with pytest.raises(AnotherBroker) as raised:
        again.register_broker(timeout_ms=0)
    assert str(raised.value) == "Broker 1 at 127.0.0.1:9091 is already using the metadata in the folder."
    again.tree.close()


def test_id_registered_at_another_address_is_awaited(us: TreeMember, path: Path) -> None:
    metadata, info = us.metadata, BrokerInfo(US, (Endpoint("PLAINTEXT", "127.0.0.1", 9091),))
    metadata.check_id_is_free(info, 0)
    us.register_broker()
    metadata.check_id_is_free(info, 0)  # It is registered at our own address.
    moved = info._replace(endpoints=(Endpoint("PLAINTEXT", "127.0.0.1", 1),))
    with pytest.raises(AnotherBroker, match=r"Broker 1 at 127\.0\.0\.1:9091 is already using the metadata"):
        metadata.check_id_is_free(moved, 0)
    again = TreeMember(path)
    waiting = threading.Thread(target=lambda: again.metadata.check_id_is_free(moved, 60_000))
    waiting.start()
    us.tree.close()
    waiting.join()
    again.tree.close()


def test_broker_without_an_id_gets_an_unused_one(tmp_path: Path) -> None:
    tree = SqliteTree(tmp_path / "metadata.sqlite")
    metadata = Metadata(tree)
    first = metadata.prepare(None, 1000, "cluster")
    second = metadata.prepare(None, 1000, "another")
    assert (first.broker_id, second.broker_id) == (1001, 1002)
    assert second.cluster_id == "cluster"
    tree.close()


# A lone broker.


@pytest.fixture
def lone(path: Path) -> Iterator[SingleBrokerMetadata]:
    tree = SqliteTree(path)
    metadata = SingleBrokerMetadata(tree, "the folder")
    metadata.prepare(US, 1000, "cluster")
    yield metadata
    tree.close()


def register_broker(metadata: SingleBrokerMetadata, broker: BrokerId = US) -> int:
    info = BrokerInfo(broker, (Endpoint("PLAINTEXT", "127.0.0.1", 9092),))
    return metadata.register_broker(info, lambda: TimestampMs(1), 0)


def test_lone_broker_is_the_controller_immediately(lone: SingleBrokerMetadata, us: TreeMember) -> None:
    epoch = register_broker(lone)
    registered = us.tree.exists(layout.broker(US))
    assert registered is not None and registered.czxid == epoch
    assert lone.check_controller() == 1
    assert not us.is_elected()


def test_lone_broker_refuses_other_brokers(lone: SingleBrokerMetadata, path: Path) -> None:
    register_broker(lone)
    with pytest.raises(AnotherBroker, match=r"Broker 1 at 127\.0\.0\.1:9092 is already using the metadata"):
        TreeMember(path, OTHER)


def test_lone_broker_does_not_join_other_brokers(us: TreeMember, lone: SingleBrokerMetadata) -> None:
    us.register_broker()
    sentence = "Broker 1 at 127.0.0.1:9091 is already using the metadata in the folder, which only one broker can use"
    for join in (lambda: lone.prepare(OTHER, 1000, "cluster"), lambda: register_broker(lone, OTHER)):
        with pytest.raises(AnotherBroker, match=sentence):
            join()


def test_existing_logs_are_adopted_once(lone: SingleBrokerMetadata, us: TreeMember) -> None:
    """Only by a tree that never had a topic; otherwise a deleted last topic could return."""
    assert not lone.had_topics
    led = PartitionInfo(US, LeaderEpoch(7), (US,), (US,))
    adopted = TopicInfo(T, Uuid(b"\1" * 16), (led, led), {"retention.ms": "1"})
    lone.adopt([adopted])
    assert (lone.topics()[T].id, lone.overrides(T)) == (adopted.id, adopted.configs)
    state = layout.decode_partition_state(us.tree.get(layout.partition_state(T, 1))[0])
    assert (state.leader, state.leader_epoch, state.isr) == (US, 7, (US,))
    for path in (f"{layout.topic(T)}/{node}" for node in ("partitions/0/state", "partitions/1/state")):
        us.tree.delete(path)
    for path in ("partitions/0", "partitions/1", "partitions"):
        us.tree.delete(f"{layout.topic(T)}/{path}")
    us.tree.delete(layout.topic(T))
    assert lone.had_topics and not lone.topics()


def test_partition_states_are_not_read(us: TreeMember, path: Path) -> None:
    assert us.is_elected()
    us.change(CreateTopics(1, [topic()]))
    for node in (layout.partitions(T), layout.partition(T, 0), layout.partition_state(T, 0)):
        us.tree.create(node, b"not a state")
    view = us.metadata.view()
    assert not view.unreadable
    assert [partition.replicas for partition in view.topics[T].partitions] == [(US,), (US,)]


# Controller epochs.


def test_controller_epoch_without_an_election_is_refused(us: TreeMember, other: TreeMember) -> None:
    for epoch in (1, INT64_MAX):
        with pytest.raises(Refused) as refused:
            other.metadata.check_controller_epoch(epoch)
        assert refusal(refused.value) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert us.is_elected()
    other.metadata.check_controller_epoch(1)
    with pytest.raises(Refused):
        other.metadata.check_controller_epoch(2)


def test_lagging_server_is_read_again(us: TreeMember, other: TreeMember) -> None:
    assert us.is_elected()
    get = other.tree.get
    reads: list[str] = []

    class Lagging:
        """A server whose first read returns the state before the election."""

        def __getattr__(self, name: str) -> object:
            return getattr(other.tree, name)

        def get(self, path: str) -> tuple[bytes, Stat]:
            reads.append(path)
            data, stat = get(path)
            return (b"", stat._replace(version=stat.version - 1)) if len(reads) == 1 else (data, stat)

    Metadata(cast(Tree, Lagging())).check_controller_epoch(1)
    assert reads == [layout.CONTROLLER_EPOCH] * 2


# Producer ids.


def test_controller_allocates_producer_ids(us: TreeMember, other: TreeMember) -> None:
    epoch = other.register_broker()
    with pytest.raises(Refused) as refused:
        us.metadata.allocate_producer_ids(OTHER, epoch)
    assert refusal(refused.value) == ErrorCode.NOT_CONTROLLER
    assert us.is_elected()
    blocks = [us.metadata.allocate_producer_ids(OTHER, epoch) for _ in range(3)]
    assert [block.first for block in blocks] == [0, 1000, 2000]
    assert blocks[0].last == 999
    with pytest.raises(Refused) as refused:
        us.metadata.allocate_producer_ids(OTHER, epoch - 1)
    assert refusal(refused.value) == ErrorCode.STALE_BROKER_EPOCH
    with pytest.raises(Refused) as refused:
        us.metadata.allocate_producer_ids(BrokerId(7), epoch)
    assert refusal(refused.value) == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_producer_ids_start_above_used_ones(us: TreeMember) -> None:
    used = [0, 0, 1001, 2000, INT64_MAX, INT64_MAX]  # The last ones were invented by a producer.
    blocks = [us.metadata.take_producer_ids(US, AllocateProducerIds(ProducerId(at_least))) for at_least in used]
    first = [0, 1000, 2000, 3000, 4000, 5000]
    assert blocks == [(one, one + 999) for one in first]
