"""Replicas of a test's cluster: a slow network between them, leaders that are moved, followers that go and are back."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from test_testing_cluster import SECONDS_MAX, Going, everything, number, produce
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
    """What the logs of the one partition hold, of which there should be one."""
    return {path.read_bytes() for path in cluster.directory.glob("broker*/orders-0/*.log")}


def produced_in(cluster: Cluster, value: bytes) -> float:
    began = time.monotonic()
    produce(cluster.address, "orders", value)
    return time.monotonic() - began


def test_what_is_sent_to_slow_brokers_arrives_later_and_whole(cluster: Cluster) -> None:
    leading = cluster[leader(cluster)]
    produce(cluster.address, "orders", b"warm")
    with cluster.slow(leading, seconds=SLOW_SECONDS):
        # Its followers' fetch was there already: the answer takes a way, and what they have is heard by the next one.
        assert produced_in(cluster, b"slow") >= 2 * SLOW_SECONDS
        produce(cluster.address, "orders", *(bytes([n]) * (MIB // 2) for n in range(10)))
    with cluster.slow(others(cluster, leading), [leading], seconds=SLOW_SECONDS, one_way=True):
        assert produced_in(cluster, b"one way") >= SLOW_SECONDS
    cluster.await_in_sync()
    assert len(replicas(cluster)) == 1


def test_slow_networks_add_up_and_others_are_as_fast_as_before(cluster: Cluster) -> None:
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


def test_a_slow_network_that_is_cut_and_mended(cluster: Cluster) -> None:
    """What is under way when it is cut arrives after it is mended."""
    leading = leader(cluster)
    other = others(cluster, cluster[leading])[0]
    cluster.slow(leading, seconds=0.1)
    producer = Producer({"bootstrap.servers": cluster.address, "acks": 1})  # Who is cut off is waited for by no other.
    for value in range(5):
        with cluster.partition(leading, other):
            producer.produce("orders", b"%d" % value, partition=0)
            assert producer.flush(SECONDS_MAX) == 0
    cluster.heal()
    produce(cluster.address, "orders", b"5")
    cluster.await_in_sync()
    assert len(replicas(cluster)) == 1


def test_a_leader_is_moved_to_each_of_its_replicas_under_load(cluster: Cluster) -> None:
    going = Going(cluster.address, "orders")
    for broker in (*cluster, cluster[1], cluster[1]):
        going.until_more()
        cluster.move_leader("orders", 0, broker)
        assert leaders(cluster[2].address, "orders") == {0: broker.id}
    acknowledged = going.end()
    found = Counter(map(number, everything(cluster.address, "orders", 1)))
    assert not [value for value in acknowledged if found[value] != 1]


def test_who_can_be_made_leader(cluster: Cluster) -> None:
    for topic, partition in (("orders", 1), ("unknown", 0)):
        with pytest.raises(ValueError, match="its replicas are"):
            cluster.move_leader(topic, partition, 1)
    with pytest.raises(IndexError):
        cluster.move_leader("orders", 0, 4)
    cluster[3].stop()
    with pytest.raises(ValueError, match="broker 3 cannot lead"):
        cluster.move_leader("orders", 0, 3)


@pytest.mark.parametrize("kill", [False, True])
def test_a_follower_goes_and_comes_back(cluster: Cluster, kill: bool) -> None:
    follower = others(cluster, cluster[leader(cluster)])[0]
    with cluster.away(follower, kill=kill) as gone:
        assert gone is follower
        assert not follower.is_running
        produce(cluster.address, "orders", b"without it")
        assert len(replicas(cluster)) == 2
    assert len(replicas(cluster)) == 1, "it has all by now"
    with pytest.raises(KeyError), cluster.away(follower.id):
        raise KeyError
    assert follower.is_running
