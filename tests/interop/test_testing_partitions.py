"""Network partitions in a test's cluster: brokers isolated from each other, and from the tree that they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec
from test_testing_cluster import (
    NO_LEADER,
    SECONDS_MAX,
    BackgroundProducer,
    admin,
    alter,
    consume,
    described,
    everything,
    folders,
    number,
    produce,
    registered,
)

from odradek.base.errors import ErrorCode, Refused
from odradek.testing import Cluster
from odradek.testing.embedded_member import Member
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.asking import leaders
from support.raw_client import RawClient, frame
from support.waiting import until

TRANSACTION = 1  # A coordinator's kind.


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Start a cluster whose sessions outlast a partition, unless a test needs them to end."""
    with Cluster(**getattr(request, "param", {})) as cluster:
        yield cluster


sessions_end = pytest.mark.parametrize("cluster", [{"zookeeper_session_timeout_ms": 5_000}], indirect=True, ids=[""])


def others(cluster: Cluster, *brokers: Member) -> list[Member]:
    return [broker for broker in cluster if broker not in brokers]


def led_by(cluster: Cluster, broker: Member, topic: str) -> int:
    """Return a partition that the broker leads."""
    return next(index for index, leader in leaders(cluster.controller.address, topic).items() if leader == broker.id)


# Isolated from the tree.


@sessions_end
def test_a_broker_without_the_tree_is_unregistered(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=3)
    lost = others(cluster, cluster.controller)[0]
    its_own = led_by(cluster, lost, "orders")
    produce(cluster.address, "orders", b"before", partition=its_own)
    before = registered(cluster, lost)
    with cluster.partition(lost, cluster.tree):
        for broker in others(cluster, lost):
            until(lambda broker=broker: broker.leaders("orders")[its_own] == NO_LEADER)
        assert lost.leaders("orders")[its_own] == lost.id
        assert registered(cluster, lost) == -1
        assert lost.broker_epoch() == before, "it can't know"
        cluster.create_topic("later", partitions=4)
        assert lost.id not in leaders(cluster.controller.address, "later").values()
    assert registered(cluster, lost) == lost.broker_epoch() > before
    for broker in cluster:
        assert broker.leaders("orders")[its_own] == lost.id
        assert broker.topics() == ["later", "orders"]
    produce(cluster.address, "orders", b"after", partition=its_own)
    assert consume(cluster.address, "orders", 2) == [b"before", b"after"]


@sessions_end
def test_a_controller_without_the_tree_changes_nothing(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=3)
    deposed = cluster.controller
    with cluster.partition(deposed, cluster.tree):
        elected = cluster.controller
        assert elected is not deposed
        with pytest.raises(Refused):
            deposed.create_topic("by-deposed")
        assert create_topic(deposed, "by-deposed") != ErrorCode.NONE
        cluster.create_topic("by-elected")
        assert all(broker.topics() == ["by-elected", "orders"] for broker in others(cluster, deposed))
        assert all(broker.query_view(lambda view: view.controller) == elected.id for broker in others(cluster, deposed))
    assert cluster.controller is elected
    assert [broker.topics() for broker in cluster] == [["by-elected", "orders"]] * 3
    assert create_topic(deposed, "by-deposed") == ErrorCode.NOT_CONTROLLER


@sessions_end
def test_requests_of_a_deposed_controller_are_refused(cluster: Cluster) -> None:
    deposed = cluster.controller
    other = others(cluster, deposed)[0]
    cluster.partition(deposed, other)
    cluster.create_topic("unheard", partitions=3)
    assert other.topics() == []
    cluster.partition(deposed, [*others(cluster, deposed), cluster.tree])
    elected = cluster.controller
    assert elected is not deposed
    cluster.create_topic("later", partitions=3)
    known = leaders(elected.address, "unheard")
    assert known == leaders(other.address, "unheard")
    assert NO_LEADER in known.values()
    cluster.heal()
    assert [broker.query_view(lambda view: view.controller) for broker in cluster] == [elected.id] * 3
    assert [broker.topics() for broker in cluster] == [["later", "unheard"]] * 3
    assert leaders(other.address, "unheard") == leaders(deposed.address, "unheard")


def test_a_topic_is_deleted_while_a_broker_lacks_the_tree() -> None:
    with Cluster(zookeeper_session_timeout_ms=5_000, log_segment_delete_delay_ms=1) as cluster:
        cluster.create_topic("orders", partitions=3)
        lost = others(cluster, cluster.controller)[0]
        its_own = led_by(cluster, lost, "orders")
        with cluster.partition(lost):
            until(lambda: registered(cluster, lost) == -1)
            cluster.delete_topic("orders")
            assert all(broker.topics() == [] for broker in others(cluster, lost))
            assert lost.topics() == ["orders"], "it can't know"
            assert f"broker{lost.id}/orders-{its_own}" in folders(cluster, "orders")
        until(lambda: not folders(cluster, "orders"))
        assert cluster.topics() == lost.topics() == []


def create_topic(broker: Member, name: str) -> int:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    with RawClient(broker.port) as client:
        request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False)
        return client.request(request, 4, CreateTopicsResponse).topics[0].error_code


def test_changes_of_the_controller_wait_for_the_tree(cluster: Cluster) -> None:
    controller = cluster.controller
    partition = cluster.partition(controller, cluster.tree)
    client = admin(cluster)
    made = client.create_topics([NewTopic("orders", 1, 1)])["orders"]
    assert not made.done()
    partition.heal()
    made.result(SECONDS_MAX)
    assert cluster.controller is controller
    assert cluster.topics() == ["orders"]


@sessions_end
def test_all_brokers_register_again_after_losing_the_tree(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=3)
    epochs = [broker.broker_epoch() for broker in cluster]
    with cluster.partition(cluster.tree):
        until(lambda: [registered(cluster, broker) for broker in cluster] == [-1] * 3)
        for partition in range(3):  # Clients still know their leaders.
            produce(cluster.address, "orders", b"%d" % partition, partition=partition)
    assert all(broker.broker_epoch() > epoch for broker, epoch in zip(cluster, epochs, strict=True))
    assert sorted(consume(cluster.address, "orders", 3)) == [b"0", b"1", b"2"]


# Isolated from other brokers.


def test_controller_requests_wait_and_arrive_in_order(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=3)
    controller = cluster.controller
    deaf = others(cluster, controller)[0]
    with cluster.partition(controller, deaf):
        cluster.create_topic("kept", partitions=3)
        cluster.create_topic("again", partitions=6)
        before = identity(controller, "again")
        cluster.delete_topic("again")
        alter(cluster, "orders", "1000")
        client = admin(cluster)
        with pytest.raises(Exception, match="TOPIC_ALREADY_EXISTS"):
            client.create_topics([NewTopic("again", 1, 1)])["again"].result(SECONDS_MAX)
        assert deaf.topics() == ["orders"], "nothing of it reaches who is cut off"
        assert registered(cluster, deaf) == deaf.broker_epoch(), "which is not gone"
    until(lambda: is_made(cluster, "again"))
    assert identity(deaf, "again") == identity(controller, "again") != before
    assert [broker.topics() for broker in cluster] == [["again", "kept", "orders"]] * 3
    assert leaders(deaf.address, "kept") == leaders(controller.address, "kept")
    until(lambda: described(cluster, "orders") == ["1000"] * 3)
    for partition in range(3):
        produce(deaf.address, "kept", b"%d" % partition, partition=partition)
    assert sorted(consume(cluster.address, "kept", 3)) == [b"0", b"1", b"2"]


def is_made(cluster: Cluster, topic: str) -> bool:
    try:
        cluster.create_topic(topic)
    except Refused as refused:
        assert refused.code == ErrorCode.TOPIC_ALREADY_EXISTS
        return False
    return True


def identity(broker: Member, topic: str) -> object:
    return broker.query_view(lambda view: next(one.id for one in view.topics.values() if one.name == topic))


def test_a_one_way_partition_drops_one_direction(cluster: Cluster) -> None:
    controller = cluster.controller
    other = others(cluster, controller)[0]
    with cluster.partition(controller, other, one_way=True):
        cluster.create_topic("unheard")
        assert other.topics() == []
    assert other.topics() == ["unheard"]
    with cluster.partition(other, controller, one_way=True):  # It receives one request, and cannot answer it.
        cluster.create_topic("first")
        cluster.create_topic("next")
        assert "next" not in other.topics(), "its controller waits for an answer"
    assert [broker.topics() for broker in cluster] == [["first", "next", "unheard"]] * 3


def test_auto_creation_of_a_topic_waits_for_the_controller(cluster: Cluster) -> None:
    controller = cluster.controller
    other = others(cluster, controller)[0]
    request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")], allow_auto_topic_creation=True)
    seen = other.faults.delay("Metadata", seconds=0)
    with RawClient(other.port) as client:  # A smarter client would try another broker.
        with cluster.partition(controller, other):
            client.send(frame(request, 4, 1))
            seen.wait()
            assert cluster.topics() == []
        until(lambda: cluster.topics() == ["orders"])
        client.read_frame()
    produce(cluster.address, "orders", b"one")
    assert consume(cluster.address, "orders", 1) == [b"one"]


@pytest.mark.parametrize("cluster", [{"transaction_state_log_replication_factor": 1}], indirect=True, ids=[""])
def test_markers_of_a_transaction_wait_for_their_leader(cluster: Cluster) -> None:
    """The decision has no followers, which would have to reach the coordinator, too."""
    cluster.create_topic("orders", partitions=3)
    producer = Producer({"bootstrap.servers": cluster.address, "transactional.id": "orders"})
    producer.init_transactions(SECONDS_MAX)
    coordinator = coordinator_of(cluster, "orders")
    leader = others(cluster, coordinator)[0]
    apart, together = led_by(cluster, leader, "orders"), led_by(cluster, coordinator, "orders")
    producer.begin_transaction()
    for partition in (apart, together):
        producer.produce("orders", b"one", partition=partition)
    assert producer.flush(SECONDS_MAX) == 0
    with cluster.partition(coordinator, leader):
        with pytest.raises(KafkaException) as failed:
            producer.commit_transaction(1)
        assert failed.value.args[0].retriable()
        until(lambda: stable(cluster, together) == 2)
        assert stable(cluster, apart) == 0, "where no marker can be"
    producer.commit_transaction(SECONDS_MAX)
    assert stable(cluster, apart) == 2
    producer.begin_transaction()
    producer.produce("orders", b"two", partition=apart)
    producer.commit_transaction(SECONDS_MAX)
    assert sorted(consume(cluster.address, "orders", 3)) == [b"one", b"one", b"two"]


def test_a_transactional_produce_waits_for_its_coordinator(cluster: Cluster) -> None:
    """The leader has to verify it with the coordinator, and cannot."""
    cluster.create_topic("orders", partitions=3)
    producer = Producer({"bootstrap.servers": cluster.address, "transactional.id": "orders"})
    producer.init_transactions(SECONDS_MAX)
    coordinator = coordinator_of(cluster, "orders")
    leader = others(cluster, coordinator)[0]
    producer.begin_transaction()
    with cluster.partition(coordinator, leader):
        producer.produce("orders", b"one", partition=led_by(cluster, leader, "orders"))
        assert producer.flush(1) == 1
    assert producer.flush(SECONDS_MAX) == 0
    producer.commit_transaction(SECONDS_MAX)
    assert consume(cluster.address, "orders", 1) == [b"one"]


def coordinator_of(cluster: Cluster, transactional_id: str) -> Member:
    with RawClient(cluster[1].port) as client:
        request = FindCoordinatorRequest(key=transactional_id, key_type=TRANSACTION)
        return cluster[client.request(request, 3, FindCoordinatorResponse).node_id]


def stable(cluster: Cluster, partition: int) -> int:
    """Return the last stable offset of a partition of orders."""
    place = TopicPartition("orders", partition)
    client = admin(cluster)
    offsets = client.list_offsets({place: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED)
    return offsets[place].result(SECONDS_MAX).offset


# Under load, and with starts and stops.


@sessions_end
def test_isolating_each_broker_keeps_acknowledged_records_once(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=6)
    writing = BackgroundProducer(cluster.address, "orders")
    for broker in cluster:
        writing.wait_for_progress()
        with cluster.partition(broker):
            until(lambda broker=broker: registered(cluster, broker) == -1)
            writing.wait_for_progress()
    writing.wait_for_progress()
    acknowledged = writing.end()
    found = Counter(map(number, everything(cluster.address, "orders", 6)))
    assert not [value for value in acknowledged if found[value] != 1]


def test_isolated_brokers_stop_and_start() -> None:
    with Cluster() as cluster:  # Its sessions are long, and a stopping broker does not wait for their end.
        cluster.create_topic("orders", partitions=3)
        produce(cluster.address, "orders", b"one", partition=0)
        cluster.partition(1)
        cluster[1].stop()
        cluster.partition(2, 3)
        cluster[2].kill()
        cluster.stop()
        cluster.heal()  # There is no broker to wait for.
        cluster.start()
        assert consume(cluster.address, "orders", 1) == [b"one"]
        cluster.partition(cluster.controller)
    with pytest.raises(RuntimeError, match="has not been started"):
        cluster.heal()


def test_partitions_add_up(cluster: Cluster) -> None:
    first = cluster.partition(1, 2)
    second = cluster.partition([1, 2], [3], one_way=True)
    first.heal()
    first.heal()
    assert second.cuts == {(1, 3), (2, 3)} == cluster._network.cuts
    with pytest.raises(KeyError), cluster.partition(1):
        raise KeyError
    assert second.cuts == cluster._network.cuts
    cluster.heal()
    assert not cluster._network.cuts
    second.heal()


def test_invalid_partitions_are_refused() -> None:
    cluster = Cluster(brokers=2)
    for sides in ((), ([1, 2, cluster.tree],), (1, []), (1, [1, 2]), (3,), (0, 1)):
        with pytest.raises(ValueError, match=r"."):
            cluster.partition(*sides)
    with cluster:
        cluster.partition(1)
    assert not cluster._network.cuts, "the next start is of one that is whole"
