"""Requested elections, automatic preferred elections, and unclean elections that are allowed later."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, TopicName, TopicPartition
from odradek.coordination import tree_layout as layout
from odradek.core.controller.events import ElectionEnd, ElectLeaders
from odradek.core.controller.partition_leader_election import ElectionType
from sim.simcontroller import SESSION_MS, SimCluster

CALM_SECONDS, SESSION_SECONDS = 1.0, SESSION_MS / 1000
PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN
TOPIC = TopicName("flights")
NONE = ErrorCode.NONE


def name_of(index: int, topic: TopicName = TOPIC) -> TopicPartition:
    return TopicPartition(topic, index)


class World:
    """A cluster of three brokers and a topic with the given replicas."""

    def __init__(self, *replicas: Sequence[int], config: dict[str, str] | None = None) -> None:
        self.cluster = SimCluster(1, 3)
        for member in self.cluster.members.values():
            member.start()
        self.calm()
        self.cluster.create_topic(TOPIC, replicas, config)
        self.calm()

    def calm(self, seconds: float = CALM_SECONDS) -> None:
        self.cluster.run(seconds)
        self.cluster.check()

    def kill(self, *brokers: int) -> None:
        for broker in brokers:
            self.cluster.members[BrokerId(broker)].kill()
        self.calm(SESSION_SECONDS + CALM_SECONDS)

    def start(self, *brokers: int) -> None:
        for broker in brokers:
            self.cluster.members[BrokerId(broker)].start()
        self.calm(SESSION_SECONDS + CALM_SECONDS)

    def bounce(self, broker: int) -> None:
        """Restart the broker; it leaves every ISR that has another member."""
        self.kill(broker)
        self.start(broker)

    def in_sync(self, index: int, *brokers: int) -> None:
        state = self.cluster.state(TOPIC, index)
        assert state is not None
        assert self.cluster.propose_isr(
            self.cluster.members[state.leader], name_of(index), tuple(map(BrokerId, brokers))
        )
        self.calm()

    def elect(self, kind: ElectionType, *partitions: TopicPartition) -> list[ElectionEnd]:
        query = self.cluster.elect_leaders(kind, *partitions)
        self.calm()
        assert query is not None and query.answer is not None
        assert list(query.answer) == list(partitions)
        return list(query.answer.values())

    def errors(self, kind: ElectionType, *partitions: TopicPartition) -> list[ErrorCode]:
        return [end.error for end in self.elect(kind, *partitions)]

    def state(self, index: int = 0) -> tuple[int, int, tuple[int, ...]]:
        """Return the leader, its epoch and the ISR."""
        state = self.cluster.state(TOPIC, index)
        assert state is not None
        return state.leader, state.leader_epoch, state.isr

    def leaders(self, count: int) -> list[int]:
        return [self.state(index)[0] for index in range(count)]

    def rebalance(self) -> None:
        self.cluster.rebalance()
        self.calm()


def test_a_preferred_replica_leads_when_it_is_in_sync() -> None:
    world = World([0, 1])
    assert world.errors(PREFERRED, name_of(0)) == [ErrorCode.ELECTION_NOT_NEEDED]
    world.kill(0)
    (end,) = world.elect(PREFERRED, name_of(0))
    assert end.error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert end.text is not None and "flights-0" in end.text
    world.start(0)
    assert world.errors(PREFERRED, name_of(0)) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE], "it is not in the ISR"
    world.in_sync(0, 0, 1)
    assert world.elect(PREFERRED, name_of(0)) == [ElectionEnd(NONE, None, BrokerId(0), world.state()[1])]
    assert world.state() == (0, 2, (0, 1)), "the ISR stays"


def test_election_returns_an_error_for_each_ineligible_partition() -> None:
    world = World([0, 1], [1, 0])
    world.kill(2)
    world.cluster.create_topic("nowhere", [[2]])
    world.cluster.create_topic("going", [[2, 1]])
    world.calm()
    world.cluster.mark_for_deletion("going")
    world.calm()
    nowhere, going = name_of(0, TopicName("nowhere")), name_of(0, TopicName("going"))
    partitions = name_of(1), name_of(7), nowhere, going, name_of(0, TopicName("never"))
    for kind, unavailable in (
        (PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ):
        assert world.errors(kind, *partitions) == [
            ErrorCode.ELECTION_NOT_NEEDED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            unavailable,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]


def test_requested_unclean_election_elects_any_replica() -> None:
    """The ISR has only the new leader; the old one is not in it and does not lead when it restarts."""
    world = World([0, 1, 2])
    world.kill(1, 2)
    world.start(1)
    world.kill(0)
    assert world.state()[0] == -1
    assert world.errors(PREFERRED, name_of(0)) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    assert world.errors(UNCLEAN, name_of(0)) == [NONE]
    state = world.cluster.state(TOPIC, 0)
    assert state is not None and (state.leader, state.isr, state.recovery) == (1, (1,), 1)
    assert world.errors(UNCLEAN, name_of(0)) == [ErrorCode.ELECTION_NOT_NEEDED]
    world.start(0)
    assert world.state()[::2] == (1, (1,))


def test_unclean_election_prefers_a_replica_in_sync() -> None:
    world = World([0, 1], [0])
    world.kill(0, 1)
    world.start(1)
    assert world.state()[0] == 1 or world.state()[2] == (0,)
    before = world.state()
    ends = world.errors(UNCLEAN, name_of(0), name_of(1))
    expected = ErrorCode.ELECTION_NOT_NEEDED if before[0] == 1 else NONE
    assert ends == [expected, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE], "nobody else has the second"
    assert world.state()[::2] == (1, (1,))


def test_election_request_to_another_broker_returns_not_controller() -> None:
    world = World([0, 1])
    (controller,) = world.cluster.controllers
    other = next(member for member in world.cluster.alive if member is not controller)
    query = ElectLeaders(PREFERRED, [name_of(0)])
    other.tell(query)
    world.calm()
    assert (query.answer, query.error) == (None, ErrorCode.NOT_CONTROLLER)


def test_stopping_broker_is_not_elected() -> None:
    world = World([0, 1])
    world.bounce(0)
    world.in_sync(0, 0, 1)
    assert world.cluster.shut_down(BrokerId(0)) == []
    query = world.cluster.elect_leaders(PREFERRED, name_of(0))
    world.cluster.rebalance()
    world.cluster.run(CALM_SECONDS)
    assert query is not None and query.answer is not None
    assert query.answer[name_of(0)].error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert world.leaders(1) == [1]


# Automatic elections.


def test_leadership_returns_to_preferred_replicas_in_sync() -> None:
    world = World([0, 1], [0, 2], [1, 0], [0, 1])
    world.bounce(0)
    assert 0 not in world.leaders(4)
    world.rebalance()
    assert 0 not in world.leaders(4), "it is in no ISR"
    world.in_sync(0, 0, 1)
    world.in_sync(1, 0, 2)
    world.rebalance()
    assert world.leaders(4) == [0, 0, 1, 1]
    world.in_sync(3, 0, 1)
    world.rebalance()
    assert world.leaders(4) == [0, 0, 1, 0]


def test_a_little_imbalance_is_left_alone() -> None:
    """One in ten does not exceed leader.imbalance.per.broker.percentage; two do."""
    world = World(*([0, 1] for _ in range(10)))
    world.bounce(0)
    for index in range(10):
        world.in_sync(index, 0, 1)
    assert world.errors(PREFERRED, *map(name_of, range(9))) == [NONE] * 9
    world.rebalance()
    assert world.leaders(10) == [0] * 9 + [1]
    world.bounce(0)
    for index in range(10):
        world.in_sync(index, 0, 1)
    assert world.errors(PREFERRED, *map(name_of, range(8))) == [NONE] * 8
    world.rebalance()
    assert world.leaders(10) == [0] * 10


def test_rebalance_waits_for_a_reassignment() -> None:
    world = World([0, 1], [1, 2])
    world.bounce(0)
    world.in_sync(0, 0, 1)
    before = world.cluster.assignment(TOPIC)
    moving = before._replace(adding={1: (BrokerId(0),)})
    for assignment, leader in ((moving, 1), (before, 0)):
        world.cluster.admin.set(layout.topic(TOPIC), layout.encode_topic(assignment))
        world.cluster.depose()  # An elected controller reads it.
        world.calm(SESSION_SECONDS + CALM_SECONDS)
        world.rebalance()
        assert world.leaders(2) == [leader, 1]


# Altered configurations.


@pytest.mark.parametrize("is_allowed", [True, False])
def test_enabling_unclean_elections_elects_a_missing_leader(is_allowed: bool) -> None:
    world = World([0, 1], [2])
    world.kill(1)
    world.start(1)
    world.kill(0)
    assert world.leaders(2) == [-1, 2]
    world.cluster.allow_unclean(TOPIC, is_allowed=is_allowed)
    world.calm()
    assert world.state()[::2] == ((1, (1,)) if is_allowed else (-1, (0,)))
    assert world.state(1) == (2, 0, (2,)), "who has a leader keeps it"
