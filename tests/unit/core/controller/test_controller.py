"""Scenarios of a cluster and its controller; test_controller_kafka checks that Kafka's own reaches the same states."""

from __future__ import annotations

from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, TopicName, TopicPartition
from odradek.core.controller.events import AlterPartitions, ShutDown
from sim.simcontroller import SESSION_MS, SimCluster

CALM_SECONDS = 1.0
SESSION_SECONDS = SESSION_MS / 1000


def calm(cluster: SimCluster, seconds: float = CALM_SECONDS) -> None:
    cluster.run(seconds)
    cluster.check()


def start_cluster(brokers: int = 3) -> SimCluster:
    cluster = SimCluster(1, brokers)
    for member in cluster.members.values():
        member.start()
    calm(cluster)
    return cluster


def leader_epoch_isr(cluster: SimCluster, name: str, index: int = 0) -> tuple[int, int, tuple[int, ...]]:
    state = cluster.state(name, index)
    assert state is not None
    return state.leader, state.leader_epoch, state.isr


def kill_brokers(cluster: SimCluster, *brokers: int) -> None:
    for broker in brokers:
        cluster.members[BrokerId(broker)].kill()
    cluster.run(SESSION_SECONDS)
    if cluster.alive:
        calm(cluster)


def back(cluster: SimCluster, *brokers: int) -> None:
    for broker in brokers:
        cluster.members[BrokerId(broker)].start()
    calm(cluster, SESSION_SECONDS + CALM_SECONDS)


def test_one_broker_is_elected_controller_and_all_get_the_metadata() -> None:
    cluster = start_cluster()
    assert [member.controller.epoch for member in cluster.controllers] == [1]
    cluster.create_topic("flights", [[0, 1], [1, 2], [2]])
    calm(cluster)
    assert [leader_epoch_isr(cluster, "flights", index) for index in range(3)] == [
        (0, 0, (0, 1)),
        (1, 0, (1, 2)),
        (2, 0, (2,)),
    ]
    assert all(assigned.is_new for member in cluster.alive for assigned in member.states.values())


def test_topic_gets_new_partitions() -> None:
    cluster = start_cluster()
    cluster.create_topic("flights", [[0, 1]])
    calm(cluster)
    cluster.grow_topic("flights", [2, 0])
    calm(cluster)
    assert leader_epoch_isr(cluster, "flights", 1) == (2, 0, (2, 0))
    assert leader_epoch_isr(cluster, "flights", 0) == (0, 0, (0, 1))


def test_dead_broker_leaves_the_isr_and_leads_again_if_it_is_alone_in_it() -> None:
    cluster = start_cluster()
    cluster.create_topic("flights", [[1, 2], [2, 1], [2]])
    calm(cluster)
    kill_brokers(cluster, 2)
    assert leader_epoch_isr(cluster, "flights", 0) == (1, 1, (1,)), "who is away is not in the ISR"
    assert leader_epoch_isr(cluster, "flights", 1) == (1, 1, (1,))
    assert leader_epoch_isr(cluster, "flights", 2) == (-1, 1, (2,)), "it is offline"
    back(cluster, 2)
    assert leader_epoch_isr(cluster, "flights", 1) == (1, 1, (1,)), "it has to catch up first"
    assert leader_epoch_isr(cluster, "flights", 2) == (2, 2, (2,)), "all of it is back with its broker"


def test_live_brokers_learn_of_a_partition_without_live_replicas() -> None:
    """KAFKA-3096: leader -1 reaches the brokers that are alive."""
    cluster = start_cluster()
    cluster.create_topic("flights", [[1, 2]])
    calm(cluster)
    kill_brokers(cluster, 1, 2)
    assert leader_epoch_isr(cluster, "flights")[0] == -1
    metadata = cluster.members[BrokerId(0)].metadata[TopicPartition(TopicName("flights"), 0)]
    assert metadata.state.leader == -1 and set(metadata.offline) == {1, 2}


def test_unclean_election_requires_configuration() -> None:
    for config, led_by in (({}, -1), ({"unclean": "true"}, 1)):
        cluster = start_cluster()
        cluster.create_topic("flights", [[2, 1]], config)
        calm(cluster)
        kill_brokers(cluster, 1)
        back(cluster, 1)
        kill_brokers(cluster, 2)
        state = cluster.state("flights", 0)
        assert state is not None and state.leader == led_by
        assert state.recovery == (1 if led_by == 1 else 0)


def test_dead_controller_leaves_the_isrs_it_followed_in() -> None:
    """KAFKA-3143: its successor removes it from the ISRs."""
    cluster = start_cluster()
    controller = cluster.controllers[0].id
    others = [broker for broker in (0, 1, 2) if broker != controller]
    cluster.create_topic("flights", [[others[0], controller, others[1]]])
    calm(cluster)
    kill_brokers(cluster, controller)
    assert cluster.controllers[0].controller.epoch == 2
    assert leader_epoch_isr(cluster, "flights") == (others[0], 1, tuple(others))


def test_deposed_controller_changes_nothing() -> None:
    """KAFKA-6082: another controller was elected during its pause, and each of its writes is refused."""
    cluster = start_cluster()
    cluster.create_topic("flights", [[0, 1, 2]])
    calm(cluster)
    sleeper = cluster.controllers[0]
    sleeper.node.pause()
    cluster.run(SESSION_SECONDS + CALM_SECONDS)
    active = [member for member in cluster.controllers if member is not sleeper]
    assert [member.controller.epoch for member in active] == [2]
    before = cluster.state("flights", 0)
    sleeper.controller.epoch = 1  # It still believes to be the controller.
    sleeper.node.resume()
    calm(cluster, SESSION_SECONDS + CALM_SECONDS)
    after = cluster.state("flights", 0)
    assert before is not None and after is not None and after.controller_epoch == 2 == before.controller_epoch


def test_restart_within_the_session_is_detected_by_the_broker_epoch() -> None:
    """KAFKA-7235: requests for the previous process are refused."""
    cluster = start_cluster()
    cluster.create_topic("flights", [[2, 1]])
    calm(cluster)
    member = cluster.members[BrokerId(2)]
    epoch = member.epoch
    member.kill()
    member.start()
    calm(cluster, SESSION_SECONDS + CALM_SECONDS)
    assert member.epoch > epoch
    assert leader_epoch_isr(cluster, "flights") == (1, 1, (1,)), "it lost what was not on its disk"


def test_a_topic_is_deleted() -> None:
    cluster = start_cluster()
    cluster.create_topic("flights", [[0, 1], [1, 2]])
    calm(cluster)
    assert cluster.logs
    cluster.mark_for_deletion("flights")
    calm(cluster)
    assert not cluster.topics() and not cluster.logs


def test_deleted_topic_can_be_created_again() -> None:
    cluster = start_cluster()
    for leader in (0, 1):
        cluster.create_topic("flights", [[leader], [2]])
        calm(cluster)
        assert leader_epoch_isr(cluster, "flights") == (leader, 0, (leader,))
        cluster.mark_for_deletion("flights")
        calm(cluster)
    assert not cluster.topics() and not cluster.logs


def test_topic_replaced_in_the_tree_gets_new_state() -> None:
    cluster = start_cluster()
    cluster.create_topic("flights", [[0, 1]])
    calm(cluster)
    kill_brokers(cluster, 0)
    cluster.remove_by_hand("flights")
    cluster.create_topic("flights", [[1], [2]])
    calm(cluster)
    assert [leader_epoch_isr(cluster, "flights", index) for index in (0, 1)] == [(1, 0, (1,)), (2, 0, (2,))]


def test_a_deletion_waits_for_a_broker_that_is_down() -> None:
    cluster = start_cluster()
    cluster.create_topic("flights", [[0, 1], [2]])
    calm(cluster)
    kill_brokers(cluster, 2)
    cluster.mark_for_deletion("flights")
    calm(cluster)
    assert cluster.topics() and {broker for broker, _ in cluster.logs} == {2}
    assert not any(member.metadata for member in cluster.alive), "clients don't see it any more"
    kill_brokers(cluster, cluster.controllers[0].id)
    assert cluster.topics(), "the next controller waits, too"
    back(cluster, *(broker for broker, member in cluster.members.items() if not member.is_alive))
    assert not cluster.topics() and not cluster.logs


def test_deletion_waits_for_an_offline_log() -> None:
    cluster = start_cluster()
    cluster.create_topic("flights", [[0, 1]])
    calm(cluster)
    partition = TopicPartition(TopicName("flights"), 0)
    member = cluster.members[BrokerId(1)]
    member.fail_directory(partition)
    calm(cluster)
    cluster.mark_for_deletion("flights")
    calm(cluster)
    assert cluster.topics() and {broker for broker, _ in cluster.logs} == {1}
    member.failed.clear()
    member.propagate_log_dir_event()
    calm(cluster)
    assert not cluster.topics() and not cluster.logs


def test_deletion_mark_of_a_missing_topic_is_removed() -> None:
    """linkedin/kafka#596: a controller died between the znode writes, and its successor must not loop."""
    cluster = start_cluster()
    cluster.mark_for_deletion("never")
    calm(cluster)
    assert not cluster.admin.children("/admin/delete_topics")


def test_late_isr_proposal_is_refused() -> None:
    cluster = start_cluster()
    cluster.create_topic("flights", [[0, 1, 2]])
    calm(cluster)
    partition = TopicPartition(TopicName("flights"), 0)
    leader = cluster.members[BrokerId(0)]
    assert cluster.propose_isr(leader, partition, map(BrokerId, (0, 2)))
    calm(cluster)
    assert leader_epoch_isr(cluster, "flights") == (0, 0, (0, 2)), "the leader epoch stays"
    kill_brokers(cluster, 2)
    back(cluster, 2)
    assert leader_epoch_isr(cluster, "flights") == (0, 1, (0,))


def test_isr_proposal_with_a_restarted_follower_is_refused() -> None:
    """The restarted follower may have lost records (KIP-903). A leader that does not know its epoch sends none."""
    cluster = start_cluster()
    cluster.create_topic("flights", [[0, 1, 2]])
    calm(cluster)
    partition, leader, follower = TopicPartition(TopicName("flights"), 0), BrokerId(0), cluster.members[BrokerId(1)]
    seen = follower.epoch
    kill_brokers(cluster, 1)
    back(cluster, 1)
    assert leader_epoch_isr(cluster, "flights") == (0, 1, (0, 2))
    assert seen < follower.epoch
    members = {BrokerId(0): cluster.members[leader].epoch, BrokerId(2): cluster.members[BrokerId(2)].epoch}
    for known, error in (
        ({**members, follower.id: seen}, ErrorCode.INELIGIBLE_REPLICA),
        ({**members, follower.id: follower.epoch, BrokerId(2): seen}, ErrorCode.INELIGIBLE_REPLICA),
        ({**members, follower.id: -1}, ErrorCode.NONE),
        ({**members, follower.id: follower.epoch}, ErrorCode.NONE),
        ({}, ErrorCode.NONE),
    ):
        state = cluster.state("flights", 0)
        assert state is not None
        proposed = {partition: state._replace(isr=tuple(map(BrokerId, (0, 1, 2))))}
        query = AlterPartitions(leader, members[leader], proposed, {partition: known})
        cluster.controllers[0].put_event(query)
        calm(cluster)
        assert query.answer is not None
        assert query.answer[partition].error is error, known
        if error is ErrorCode.NONE:
            assert leader_epoch_isr(cluster, "flights") == (0, 1, (0, 1, 2))
            assert cluster.propose_isr(cluster.members[leader], partition, map(BrokerId, (0, 2)))
            calm(cluster)


def test_a_broker_epoch_is_exact_for_an_isr_and_not_older_for_a_shutdown() -> None:
    """The results are those of Apache Kafka 3.9.1, which interop/test_broker_epochs_kafka queries."""
    cluster = start_cluster()
    cluster.create_topic("flights", [[0, 1]])
    calm(cluster)
    own = cluster.members[BrokerId(0)].epoch
    epochs = (-(2**63), -2, -1, 0, own - 1, own, own + 1, 10**15, 2**63 - 1)
    stale, unknown = ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_NOT_AVAILABLE
    alters = [AlterPartitions(BrokerId(broker), epoch, {}) for broker in (0, 99) for epoch in epochs]
    stops = [ShutDown(BrokerId(broker), epoch) for broker in (0, 99) for epoch in epochs]
    for query in (*alters, *stops):
        cluster.controllers[0].put_event(query)
        cluster.run(CALM_SECONDS)  # The broker has stopped its replicas for the shutdown, and keeps running here.
    accepted = [query.broker_epoch for query in alters if not query.error]
    assert accepted == [own]
    assert {query.error for query in alters} == {ErrorCode.NONE, stale}
    accepted = [query.broker_epoch for query in stops if not query.error]
    assert accepted == [-1, own, own + 1, 10**15, 2**63 - 1]
    assert [query.broker_epoch for query in stops if query.error is unknown] == [-1]


def test_failed_directory_takes_only_its_replicas_offline() -> None:
    cluster = start_cluster()
    cluster.create_topic("flights", [[0, 1], [0, 1]])
    calm(cluster)
    partition = TopicPartition(TopicName("flights"), 1)
    cluster.members[BrokerId(0)].fail_directory(partition)
    calm(cluster)
    assert leader_epoch_isr(cluster, "flights", 0) == (0, 0, (0, 1))
    assert leader_epoch_isr(cluster, "flights", 1) == (1, 1, (1,))


def test_controlled_shutdown_moves_leadership_first() -> None:
    """The last broker of an ISR that stops as a whole may lead again (C10)."""
    cluster = start_cluster()
    cluster.create_topic("flights", [[0, 1], [1, 0], [0]])
    calm(cluster)
    left = cluster.shut_down(BrokerId(0))
    assert left == []
    assert leader_epoch_isr(cluster, "flights", 0) == (1, 1, (1,))
    assert leader_epoch_isr(cluster, "flights", 1) == (1, 1, (1,))
    state = cluster.members[BrokerId(1)].states[TopicPartition(TopicName("flights"), 0)].state
    assert state == cluster.state("flights", 0), "who is to lead hears of it before the other has gone (KAFKA-7482)"
    kill_brokers(cluster, 0)
    left = cluster.shut_down(BrokerId(1))
    assert left == [TopicPartition(TopicName("flights"), index) for index in (0, 1)]
    kill_brokers(cluster, 1)
    back(cluster, 0)
    assert leader_epoch_isr(cluster, "flights", 0)[0] == -1, "it may lack records"
    assert leader_epoch_isr(cluster, "flights", 2)[0] == 0
    back(cluster, 1)
    assert leader_epoch_isr(cluster, "flights", 0)[0] == 1


def test_simultaneous_shutdowns_do_not_wait_for_each_other() -> None:
    cluster = start_cluster()
    cluster.create_topic("flights", [[0, 1], [1, 0], [2, 1]])
    calm(cluster)
    kill_brokers(cluster, 1)
    back(cluster, 1)
    assert cluster.shut_down(BrokerId(2)) == [TopicPartition(TopicName("flights"), 2)], "1 lives, but is not in the ISR"
    assert cluster.shut_down(BrokerId(1)) == []
    assert cluster.shut_down(BrokerId(2)) == [], "1 stops, too"
    assert cluster.shut_down(BrokerId(0)) == []
    assert [leader_epoch_isr(cluster, "flights", index)[0] for index in range(3)] == [0, 0, 2]


def test_preferred_replica_leads_again_on_request() -> None:
    cluster = start_cluster()
    cluster.create_topic("flights", [[0, 1]])
    calm(cluster)
    kill_brokers(cluster, 0)
    back(cluster, 0)
    partition = TopicPartition(TopicName("flights"), 0)
    cluster.prefer(partition)
    calm(cluster)
    assert leader_epoch_isr(cluster, "flights") == (1, 1, (1,)), "it is not in the ISR yet"
    assert cluster.propose_isr(cluster.members[BrokerId(1)], partition, map(BrokerId, (0, 1)))
    calm(cluster)
    cluster.prefer(partition)
    calm(cluster)
    assert leader_epoch_isr(cluster, "flights") == (0, 2, (0, 1))


def test_isr_written_by_a_leader_is_applied() -> None:
    """Leaders before Kafka 2.7 wrote the ISR themselves and notified the controller through the tree."""
    cluster = start_cluster()
    cluster.create_topic("flights", [[0, 1, 2]])
    calm(cluster)
    partition = TopicPartition(TopicName("flights"), 0)
    cluster.write_isr(cluster.members[BrokerId(0)], partition, map(BrokerId, (0, 1)))
    calm(cluster)
    assert leader_epoch_isr(cluster, "flights") == (0, 0, (0, 1))
    assert not cluster.admin.children("/isr_change_notification")
