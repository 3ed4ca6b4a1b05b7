"""Stories of a cluster and its controller; test_controller_kafka has Kafka's own come to the same states."""

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


def started(brokers: int = 3) -> SimCluster:
    cluster = SimCluster(1, brokers)
    for member in cluster.members.values():
        member.start()
    calm(cluster)
    return cluster


def leader_epoch_isr(cluster: SimCluster, name: str, index: int = 0) -> tuple[int, int, tuple[int, ...]]:
    state = cluster.state(name, index)
    assert state is not None
    return state.leader, state.leader_epoch, state.isr


def killed(cluster: SimCluster, *brokers: int) -> None:
    for broker in brokers:
        cluster.members[BrokerId(broker)].kill()
    cluster.run(SESSION_SECONDS)
    if cluster.alive:
        calm(cluster)


def back(cluster: SimCluster, *brokers: int) -> None:
    for broker in brokers:
        cluster.members[BrokerId(broker)].start()
    calm(cluster, SESSION_SECONDS + CALM_SECONDS)


def test_one_of_them_is_the_controller_and_all_know_all() -> None:
    cluster = started()
    assert [member.controller.epoch for member in cluster.controllers] == [1]
    cluster.create_topic("flights", [[0, 1], [1, 2], [2]])
    calm(cluster)
    assert [leader_epoch_isr(cluster, "flights", index) for index in range(3)] == [
        (0, 0, (0, 1)),
        (1, 0, (1, 2)),
        (2, 0, (2,)),
    ]
    assert all(assigned.is_new for member in cluster.alive for assigned in member.states.values())


def test_a_topic_grows() -> None:
    cluster = started()
    cluster.create_topic("flights", [[0, 1]])
    calm(cluster)
    cluster.grow_topic("flights", [2, 0])
    calm(cluster)
    assert leader_epoch_isr(cluster, "flights", 1) == (2, 0, (2, 0))
    assert leader_epoch_isr(cluster, "flights", 0) == (0, 0, (0, 1))


def test_a_broker_dies_and_comes_back() -> None:
    cluster = started()
    cluster.create_topic("flights", [[1, 2], [2, 1], [2]])
    calm(cluster)
    killed(cluster, 2)
    assert leader_epoch_isr(cluster, "flights", 0) == (1, 1, (1,)), "who is away is not in the ISR"
    assert leader_epoch_isr(cluster, "flights", 1) == (1, 1, (1,))
    assert leader_epoch_isr(cluster, "flights", 2) == (-1, 1, (2,)), "it is offline"
    back(cluster, 2)
    assert leader_epoch_isr(cluster, "flights", 1) == (1, 1, (1,)), "it has to catch up first"
    assert leader_epoch_isr(cluster, "flights", 2) == (2, 2, (2,)), "all of it is back with its broker"


def test_no_replica_lives_and_everybody_is_told_so() -> None:
    """KAFKA-3096: leader -1 reaches those that live."""
    cluster = started()
    cluster.create_topic("flights", [[1, 2]])
    calm(cluster)
    killed(cluster, 1, 2)
    assert leader_epoch_isr(cluster, "flights")[0] == -1
    told = cluster.members[BrokerId(0)].metadata[TopicPartition(TopicName("flights"), 0)]
    assert told.state.leader == -1 and set(told.offline) == {1, 2}


def test_unclean_elections_are_asked_for() -> None:
    for config, led_by in (({}, -1), ({"unclean": "true"}, 1)):
        cluster = started()
        cluster.create_topic("flights", [[2, 1]], config)
        calm(cluster)
        killed(cluster, 1)
        back(cluster, 1)
        killed(cluster, 2)
        state = cluster.state("flights", 0)
        assert state is not None and state.leader == led_by
        assert state.recovery == (1 if led_by == 1 else 0)


def test_the_controller_dies_while_it_follows() -> None:
    """KAFKA-3143: its successor takes it out of the ISRs."""
    cluster = started()
    controller = cluster.controllers[0].id
    others = [broker for broker in (0, 1, 2) if broker != controller]
    cluster.create_topic("flights", [[others[0], controller, others[1]]])
    calm(cluster)
    killed(cluster, controller)
    assert cluster.controllers[0].controller.epoch == 2
    assert leader_epoch_isr(cluster, "flights") == (others[0], 1, tuple(others))


def test_a_controller_that_was_deposed_changes_nothing() -> None:
    """KAFKA-6082: it slept while another was elected, and every one of its writes is refused."""
    cluster = started()
    cluster.create_topic("flights", [[0, 1, 2]])
    calm(cluster)
    sleeper = cluster.controllers[0]
    sleeper.node.pause()
    cluster.run(SESSION_SECONDS + CALM_SECONDS)
    active = [member for member in cluster.controllers if member is not sleeper]
    assert [member.controller.epoch for member in active] == [2]
    before = cluster.state("flights", 0)
    sleeper.controller.epoch = 1  # It still believes so.
    sleeper.node.go_on()
    calm(cluster, SESSION_SECONDS + CALM_SECONDS)
    after = cluster.state("flights", 0)
    assert before is not None and after is not None and after.controller_epoch == 2 == before.controller_epoch


def test_a_broker_restarts_faster_than_its_session() -> None:
    """KAFKA-7235: its epoch tells, and what was meant for the process before is refused."""
    cluster = started()
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
    cluster = started()
    cluster.create_topic("flights", [[0, 1], [1, 2]])
    calm(cluster)
    assert cluster.logs
    cluster.mark_for_deletion("flights")
    calm(cluster)
    assert not cluster.topics() and not cluster.logs


def test_a_deleted_topic_is_made_again() -> None:
    cluster = started()
    for leader in (0, 1):
        cluster.create_topic("flights", [[leader], [2]])
        calm(cluster)
        assert leader_epoch_isr(cluster, "flights") == (leader, 0, (leader,))
        cluster.mark_for_deletion("flights")
        calm(cluster)
    assert not cluster.topics() and not cluster.logs


def test_a_topic_is_replaced_by_another_of_its_name_by_hand() -> None:
    cluster = started()
    cluster.create_topic("flights", [[0, 1]])
    calm(cluster)
    killed(cluster, 0)
    cluster.remove_by_hand("flights")
    cluster.create_topic("flights", [[1], [2]])
    calm(cluster)
    assert [leader_epoch_isr(cluster, "flights", index) for index in (0, 1)] == [(1, 0, (1,)), (2, 0, (2,))]


def test_a_deletion_waits_for_a_broker_that_is_down() -> None:
    cluster = started()
    cluster.create_topic("flights", [[0, 1], [2]])
    calm(cluster)
    killed(cluster, 2)
    cluster.mark_for_deletion("flights")
    calm(cluster)
    assert cluster.topics() and {broker for broker, _ in cluster.logs} == {2}
    assert not any(member.metadata for member in cluster.alive), "clients don't see it any more"
    killed(cluster, cluster.controllers[0].id)
    assert cluster.topics(), "the next controller waits, too"
    back(cluster, *(broker for broker, member in cluster.members.items() if not member.is_alive))
    assert not cluster.topics() and not cluster.logs


def test_a_deletion_waits_for_a_log_that_had_no_room() -> None:
    cluster = started()
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
    member.tell_of_directories()
    calm(cluster)
    assert not cluster.topics() and not cluster.logs


def test_a_mark_for_a_topic_that_is_gone_is_taken_away() -> None:
    """linkedin/kafka#596: a controller died between the znodes, and the next one does not loop."""
    cluster = started()
    cluster.mark_for_deletion("never")
    calm(cluster)
    assert not cluster.admin.children("/admin/delete_topics")


def test_an_isr_is_proposed_and_a_proposal_that_came_late_is_refused() -> None:
    cluster = started()
    cluster.create_topic("flights", [[0, 1, 2]])
    calm(cluster)
    partition = TopicPartition(TopicName("flights"), 0)
    leader = cluster.members[BrokerId(0)]
    assert cluster.propose_isr(leader, partition, map(BrokerId, (0, 2)))
    calm(cluster)
    assert leader_epoch_isr(cluster, "flights") == (0, 0, (0, 2)), "the leader epoch stays"
    killed(cluster, 2)
    back(cluster, 2)
    assert leader_epoch_isr(cluster, "flights") == (0, 1, (0,))


def test_a_follower_that_was_seen_to_catch_up_has_restarted_since() -> None:
    """It may lack what it had (KIP-903); who does not know a follower's process does not say one."""
    cluster = started()
    cluster.create_topic("flights", [[0, 1, 2]])
    calm(cluster)
    partition, leader, follower = TopicPartition(TopicName("flights"), 0), BrokerId(0), cluster.members[BrokerId(1)]
    seen = follower.epoch
    killed(cluster, 1)
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
        wanted = {partition: state._replace(isr=tuple(map(BrokerId, (0, 1, 2))))}
        ask = AlterPartitions(leader, members[leader], wanted, {partition: known})
        cluster.controllers[0].tell(ask)
        calm(cluster)
        assert ask.answer is not None
        assert ask.answer[partition].error is error, known
        if error is ErrorCode.NONE:
            assert leader_epoch_isr(cluster, "flights") == (0, 1, (0, 1, 2))
            assert cluster.propose_isr(cluster.members[leader], partition, map(BrokerId, (0, 2)))
            calm(cluster)


def test_a_broker_epoch_is_exact_for_an_isr_and_not_older_for_a_shutdown() -> None:
    """What Apache Kafka 3.9.1 answers; interop/test_broker_epochs_kafka asks one."""
    cluster = started()
    cluster.create_topic("flights", [[0, 1]])
    calm(cluster)
    own = cluster.members[BrokerId(0)].epoch
    epochs = (-(2**63), -2, -1, 0, own - 1, own, own + 1, 10**15, 2**63 - 1)
    stale, unknown = ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_NOT_AVAILABLE
    alters = [AlterPartitions(BrokerId(broker), epoch, {}) for broker in (0, 99) for epoch in epochs]
    stops = [ShutDown(BrokerId(broker), epoch) for broker in (0, 99) for epoch in epochs]
    for ask in (*alters, *stops):
        cluster.controllers[0].tell(ask)
        cluster.run(CALM_SECONDS)  # Who is to shut down has stopped its replicas, and runs on here.
    accepted = [ask.broker_epoch for ask in alters if not ask.error]
    assert accepted == [own]
    assert {ask.error for ask in alters} == {ErrorCode.NONE, stale}
    accepted = [ask.broker_epoch for ask in stops if not ask.error]
    assert accepted == [-1, own, own + 1, 10**15, 2**63 - 1]
    assert [ask.broker_epoch for ask in stops if ask.error is unknown] == [-1]


def test_a_failed_directory_takes_its_replicas_offline_alone() -> None:
    cluster = started()
    cluster.create_topic("flights", [[0, 1], [0, 1]])
    calm(cluster)
    partition = TopicPartition(TopicName("flights"), 1)
    cluster.members[BrokerId(0)].fail_directory(partition)
    calm(cluster)
    assert leader_epoch_isr(cluster, "flights", 0) == (0, 0, (0, 1))
    assert leader_epoch_isr(cluster, "flights", 1) == (1, 1, (1,))


def test_a_broker_stops_in_order() -> None:
    """Others lead before it goes; of an ISR that stops as a whole the last one may lead again (C10)."""
    cluster = started()
    cluster.create_topic("flights", [[0, 1], [1, 0], [0]])
    calm(cluster)
    left = cluster.shut_down(BrokerId(0))
    assert left == []
    assert leader_epoch_isr(cluster, "flights", 0) == (1, 1, (1,))
    assert leader_epoch_isr(cluster, "flights", 1) == (1, 1, (1,))
    told = cluster.members[BrokerId(1)].states[TopicPartition(TopicName("flights"), 0)].state
    assert told == cluster.state("flights", 0), "who is to lead hears of it before the other has gone (KAFKA-7482)"
    killed(cluster, 0)
    left = cluster.shut_down(BrokerId(1))
    assert left == [TopicPartition(TopicName("flights"), index) for index in (0, 1)]
    killed(cluster, 1)
    back(cluster, 0)
    assert leader_epoch_isr(cluster, "flights", 0)[0] == -1, "it may lack records"
    assert leader_epoch_isr(cluster, "flights", 2)[0] == 0
    back(cluster, 1)
    assert leader_epoch_isr(cluster, "flights", 0)[0] == 1


def test_brokers_that_stop_at_once_do_not_wait_for_each_other() -> None:
    cluster = started()
    cluster.create_topic("flights", [[0, 1], [1, 0], [2, 1]])
    calm(cluster)
    killed(cluster, 1)
    back(cluster, 1)
    assert cluster.shut_down(BrokerId(2)) == [TopicPartition(TopicName("flights"), 2)], "1 lives, but is not in the ISR"
    assert cluster.shut_down(BrokerId(1)) == []
    assert cluster.shut_down(BrokerId(2)) == [], "1 stops, too"
    assert cluster.shut_down(BrokerId(0)) == []
    assert [leader_epoch_isr(cluster, "flights", index)[0] for index in range(3)] == [0, 0, 2]


def test_the_preferred_replica_leads_again_when_it_is_asked_for() -> None:
    cluster = started()
    cluster.create_topic("flights", [[0, 1]])
    calm(cluster)
    killed(cluster, 0)
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


def test_an_isr_that_a_leader_wrote_by_itself() -> None:
    """Before Kafka 2.7 leaders did, and told of it through the tree."""
    cluster = started()
    cluster.create_topic("flights", [[0, 1, 2]])
    calm(cluster)
    partition = TopicPartition(TopicName("flights"), 0)
    cluster.write_isr(cluster.members[BrokerId(0)], partition, map(BrokerId, (0, 1)))
    calm(cluster)
    assert leader_epoch_isr(cluster, "flights") == (0, 0, (0, 1))
    assert not cluster.admin.children("/isr_change_notification")
