"""Replicas of a test's cluster: slow networks, leaders that move, and followers that stop and return."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from test_testing_cluster import SECONDS_MAX, BackgroundProducer, everything, number, produce
from test_testing_partitions import others

from odradek.base.units import MIB
from odradek.testing import Cluster
from support.asking import leaders

SLOW_SECONDS = 0.5


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(default_replication_factor=3, min_insync_replicas=2) as cluster:
        cluster.create_topic("orders", partitions=1)
        yield cluster


def leader(cluster: Cluster) -> int:
    return leaders(cluster.controller.address, "orders")[0]


def replicas(cluster: Cluster) -> set[bytes]:
    """Return the different contents of the partition's logs, of which there should be one."""
    return {path.read_bytes() for path in cluster.directory.glob("broker*/orders-0/*.log")}


def produced_in(cluster: Cluster, value: bytes) -> float:
    began = time.monotonic()
    produce(cluster.address, "orders", value)
    return time.monotonic() - began


def test_a_slow_network_delays_complete_messages(cluster: Cluster) -> None:
    leading = cluster[leader(cluster)]
    produce(cluster.address, "orders", b"warm")
    with cluster.slow(leading, seconds=SLOW_SECONDS):
        # Its followers' fetch is parked: the response takes one way, and the next fetch brings their positions.
        assert produced_in(cluster, b"slow") >= 2 * SLOW_SECONDS
        produce(cluster.address, "orders", *(bytes([n]) * (MIB // 2) for n in range(10)))
    with cluster.slow(others(cluster, leading), [leading], seconds=SLOW_SECONDS, one_way=True):
        assert produced_in(cluster, b"one way") >= SLOW_SECONDS
    cluster.await_in_sync()
    assert len(replicas(cluster)) == 1


def test_delays_of_slow_networks_add_up(cluster: Cluster) -> None:
    first = cluster.slow(1, 2, seconds=1)
    second = cluster.slow(1, seconds=2, one_way=True)
    assert cluster._network.delays == {(1, 2): 3, (2, 1): 1, (1, 3): 2}
    first.heal()
    assert cluster._network.delays == second.delays == {(1, 2): 2, (1, 3): 2}
    cluster.heal()
    assert not cluster._network.delays
    for sides in ((1, cluster.tree), (1, 1), ([1, 2, 3],)):
        with pytest.raises(ValueError, match=r"."):
            cluster.slow(*sides, seconds=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be positive"):
        cluster.slow(1, seconds=0)


def test_delayed_messages_survive_a_partition(cluster: Cluster) -> None:
    """Messages in flight at the cut arrive after it heals."""
    leading = leader(cluster)
    other = others(cluster, cluster[leading])[0]
    cluster.slow(leading, seconds=0.1)
    producer = Producer({"bootstrap.servers": cluster.address, "acks": 1})  # An isolated broker is not waited for.
    for value in range(5):
        with cluster.partition(leading, other):
            producer.produce("orders", b"%d" % value, partition=0)
            assert producer.flush(SECONDS_MAX) == 0
    cluster.heal()
    produce(cluster.address, "orders", b"5")
    cluster.await_in_sync()
    assert len(replicas(cluster)) == 1


def test_a_leader_is_moved_to_each_of_its_replicas_under_load(cluster: Cluster) -> None:
    writing = BackgroundProducer(cluster.address, "orders")
    for broker in (*cluster, cluster[1], cluster[1]):
        writing.wait_for_progress()
        cluster.move_leader("orders", 0, broker)
        assert leaders(cluster[2].address, "orders") == {0: broker.id}
    acknowledged = writing.end()
    found = Counter(map(number, everything(cluster.address, "orders", 1)))
    assert not [value for value in acknowledged if found[value] != 1]


def test_invalid_leaders_are_refused(cluster: Cluster) -> None:
    for topic, partition in (("orders", 1), ("unknown", 0)):
        with pytest.raises(ValueError, match="its replicas are"):
            cluster.move_leader(topic, partition, 1)
    with pytest.raises(IndexError):
        cluster.move_leader("orders", 0, 4)
    cluster[3].stop()
    with pytest.raises(ValueError, match="broker 3 cannot lead"):
        cluster.move_leader("orders", 0, 3)


@pytest.mark.parametrize("kill", [False, True])
def test_a_follower_stops_and_returns(cluster: Cluster, kill: bool) -> None:
    follower = others(cluster, cluster[leader(cluster)])[0]
    with cluster.away(follower, kill=kill) as stopped:
        assert stopped is follower
        assert not follower.is_running
        produce(cluster.address, "orders", b"without it")
        assert len(replicas(cluster)) == 2
    assert len(replicas(cluster)) == 1, "it has all by now"
    with pytest.raises(KeyError), cluster.away(follower.id):
        raise KeyError
    assert follower.is_running
