"""Cluster status computed from a description of the cluster."""

from __future__ import annotations

from odradek.app.cli.cluster_status import PartitionState, asked_for_ends, brokers_of, troubles_of
from odradek.app.commands.cluster_command import DEGRADED, UNAVAILABLE, exit_status, summary
from odradek.base.units import Offset, TopicName, TopicPartition
from odradek.client.cluster.describe import ClusterDescription
from odradek.client.cluster.topic_metadata import Broker, Partition, Topic
from odradek.client.connection.client_errors import ConnectionLost

ONE, TWO = Broker(1, "a", 9092, "r1"), Broker(2, "b", 9093)


def topic(*partitions: Partition) -> Topic:
    return Topic("t", partitions=partitions)


def reasons_of(there: Topic, *alive: Broker, log_dirs: dict[int, list[str]] | None = None) -> list[tuple[int, str]]:
    brokers = brokers_of(ClusterDescription("c", 1, alive), [there], log_dirs or {})
    return [(one.partition.index, one.why) for one in troubles_of([there], {one.id: one for one in brokers})]


def test_dead_broker_is_known_from_its_replicas() -> None:
    there = topic(Partition(0, 1, replicas=(1, 3), isr=(1,), offline=(3,)), Partition(1, -1, replicas=(3,), isr=(3,)))
    first, second = brokers_of(ClusterDescription("c", 1, (ONE,)), [there], {1: []})
    assert (first.id, first.address, first.rack, first.leads, first.replicas) == (1, "a:9092", "r1", 1, 1)
    assert (second.id, second.is_alive, second.leads, second.replicas, second.state) == (3, False, 0, 2, "down")
    assert reasons_of(there, ONE) == [(1, "broker 3 is down"), (0, "broker 3 is down")], "what nobody leads comes first"


def test_healthy_cluster_has_no_problems() -> None:
    there = topic(Partition(0, 1, replicas=(1, 2), isr=(2, 1)))
    assert reasons_of(there, ONE, TWO) == []
    assert [one.state for one in brokers_of(ClusterDescription("c", 1, (ONE, TWO)), [there], {1: [], 2: []})] == [
        "ok"
    ] * 2


def test_reason_for_a_missing_replica() -> None:
    behind = Partition(0, 1, replicas=(1, 2), isr=(1,))
    broken = Partition(1, 1, replicas=(1, 2), isr=(1,), offline=(2,))
    unled = Partition(2, -1, replicas=(1, 2), isr=(2,))
    no_isr = Partition(3, -1, replicas=(1,), isr=())
    assert dict(reasons_of(topic(behind, broken, unled, no_isr), ONE, TWO, log_dirs={2: ["/x", "/y"]})) == {
        0: "broker 2 is behind",
        1: "broker 2 cannot read its log: /x, /y are offline",
        2: "broker 2 is alive and has not been elected yet",
        3: "broker 1 is alive and has not been elected yet",
    }


def test_partition_without_a_leader_waits_for_in_sync_replicas() -> None:
    """Other replicas may be alive, and would lose records."""
    assert reasons_of(topic(Partition(0, -1, replicas=(1, 2, 3), isr=(3,))), ONE, TWO) == [(0, "broker 3 is down")]


def test_hanging_broker_is_not_ok() -> None:
    there = topic(Partition(0, 1, replicas=(1, 2), isr=(1, 2)))
    silent = ConnectionLost("lost the connection to b:9093: timed out")
    first, second = brokers_of(ClusterDescription("c", 1, (ONE, TWO)), [there], {1: None, 2: silent})
    assert first.state == "ok", "who may not be asked may be well"
    assert (second.is_alive, second.state, second.offline_log_dirs) == (True, str(silent), None)


def test_severity_depends_on_min_isr() -> None:
    """min.insync.replicas, limited to the number of replicas."""
    isrs = ((), (1,), (1, 2))
    there = topic(*(Partition(n, 1 if isr else -1, replicas=(1, 2, 3), isr=isr) for n, isr in enumerate(isrs)))
    expected = {
        1: ["offline", "at min ISR", "under-replicated"],
        2: ["offline", "under min ISR", "at min ISR"],
        3: ["offline", "under min ISR", "under min ISR"],
        9: ["offline", "under min ISR", "under min ISR"],
    }
    for min_isr, states in expected.items():
        found = troubles_of([there], {}, {"t": min_isr})
        assert [str(one.state) for one in found] == states
        unavailable = {"offline", "under min ISR"}
        assert [one.state.is_unavailable for one in found] == [state in unavailable for state in states]
    assert {one.state for one in troubles_of([there], {})} == {PartitionState.OFFLINE, PartitionState.UNDER_REPLICATED}
    text = summary(troubles_of([there], {}, {"t": 2}), 3)
    assert text == "1 of 3 partitions offline, 2 under-replicated, 1 under min ISR and 1 at min ISR"


def test_exit_status_reflects_the_cluster() -> None:
    brokers = brokers_of(ClusterDescription("c", 1, (ONE, TWO)), [], {1: [], 2: []})
    assert exit_status(brokers, []) == 0
    assert exit_status(brokers_of(ClusterDescription("c", 1, (ONE,)), [], {1: ["/x"]}), []) == DEGRADED
    lacking = topic(Partition(0, 1, replicas=(1, 2), isr=(1,)))
    assert exit_status(brokers, troubles_of([lacking], {}, {"t": 1})) == DEGRADED
    assert exit_status(brokers, troubles_of([lacking], {}, {"t": 2})) == UNAVAILABLE
    assert exit_status(brokers, troubles_of([topic(Partition(0, -1, replicas=(1,), isr=(1,)))], {})) == UNAVAILABLE


def test_lag_of_replicas_is_computed() -> None:
    there = topic(Partition(0, 1, replicas=(1, 2, 3), isr=(1,)), Partition(1, 1, replicas=(1, 2), isr=(1, 2)))
    name = TopicPartition(TopicName("t"), 0)
    assert asked_for_ends([there]) == {1: [name], 2: [name], 3: [name]}, "what is in sync is not asked for"
    brokers = brokers_of(ClusterDescription("c", 1, (ONE, TWO, Broker(3, "c", 9094))), [there], {})
    ends = {1: {name: Offset(12_000)}, 2: {name: Offset(9)}, 3: {name: Offset(12_001)}}
    (found,) = troubles_of([there], {one.id: one for one in brokers}, ends=ends)
    assert found.lags == {2: 11_991, 3: 0}
    assert found.why == "broker 2 is 11,991 records behind; broker 3 has caught up and joins the ISR soon"
    (found,) = troubles_of([there], {one.id: one for one in brokers}, ends={2: ends[2]})
    assert found.why == "broker 2 is behind; broker 3 is behind", "its leader does not tell"
