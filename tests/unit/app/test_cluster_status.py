"""What `odradek cluster status` makes of what a cluster tells."""

from __future__ import annotations

from odradek.app.commands.cluster import brokers_of, troubles_of
from odradek.client.describe import ClusterDescription
from odradek.client.errors import ConnectionLost
from odradek.client.metadata import Broker, Partition, Topic

ONE, TWO = Broker(1, "a", 9092, "r1"), Broker(2, "b", 9093)


def topic(*partitions: Partition) -> Topic:
    return Topic("t", partitions=partitions)


def whys(there: Topic, *alive: Broker, log_dirs: dict[int, list[str]] | None = None) -> list[tuple[int, str]]:
    brokers = brokers_of(ClusterDescription("c", 1, alive), [there], log_dirs or {})
    return [(one.partition.index, one.why) for one in troubles_of([there], {one.id: one for one in brokers})]


def test_a_broker_that_is_down_is_known_by_its_replicas() -> None:
    there = topic(Partition(0, 1, replicas=(1, 3), isr=(1,), offline=(3,)), Partition(1, -1, replicas=(3,), isr=(3,)))
    first, second = brokers_of(ClusterDescription("c", 1, (ONE,)), [there], {1: []})
    assert (first.id, first.address, first.rack, first.leads, first.replicas) == (1, "a:9092", "r1", 1, 1)
    assert (second.id, second.is_alive, second.leads, second.replicas, second.state) == (3, False, 0, 2, "down")
    assert whys(there, ONE) == [(1, "broker 3 is down"), (0, "broker 3 is down")], "what nobody leads comes first"


def test_a_cluster_in_which_all_is_well() -> None:
    there = topic(Partition(0, 1, replicas=(1, 2), isr=(2, 1)))
    assert whys(there, ONE, TWO) == []
    assert [one.state for one in brokers_of(ClusterDescription("c", 1, (ONE, TWO)), [there], {1: [], 2: []})] == [
        "ok"
    ] * 2


def test_why_a_replica_is_missing() -> None:
    behind = Partition(0, 1, replicas=(1, 2), isr=(1,))
    broken = Partition(1, 1, replicas=(1, 2), isr=(1,), offline=(2,))
    unled = Partition(2, -1, replicas=(1, 2), isr=(2,))
    nobody = Partition(3, -1, replicas=(1,), isr=())
    assert dict(whys(topic(behind, broken, unled, nobody), ONE, TWO, log_dirs={2: ["/x", "/y"]})) == {
        0: "broker 2 is behind",
        1: "broker 2 can't read its log: /x, /y are offline",
        2: "broker 2 is there and was not elected yet",
        3: "broker 1 is there and was not elected yet",
    }


def test_a_leader_is_waited_for_among_those_in_sync() -> None:
    """The others may be there, and would lose records."""
    assert whys(topic(Partition(0, -1, replicas=(1, 2, 3), isr=(3,))), ONE, TWO) == [(0, "broker 3 is down")]


def test_a_broker_that_hangs_is_not_called_well() -> None:
    there = topic(Partition(0, 1, replicas=(1, 2), isr=(1, 2)))
    silent = ConnectionLost("the connection to b:9093 was lost: no answer in time")
    first, second = brokers_of(ClusterDescription("c", 1, (ONE, TWO)), [there], {1: None, 2: silent})
    assert first.state == "ok", "who may not be asked may be well"
    assert (second.is_alive, second.state, second.offline_log_dirs) == (True, str(silent), None)
