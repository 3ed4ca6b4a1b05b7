"""Clusters of one seed each whose brokers follow each other, while the network between them fails and heals.

What clients were told stays true for ever: an acknowledged record is there, and an offset has one value.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.base.errors import Refused
from odradek.base.units import BrokerId, TopicName, TopicPartition
from sim.bugs import (
    Bug,
    a_write_is_safe_at_once,
    followers_forget_producers,
    logs_are_cut_at_the_high_watermark,
    logs_are_not_compared,
    nobody_is_fenced,
    the_high_watermark_moves_too_early,
    who_had_no_room_stays_away,
    who_is_alone_does_not_sync,
    who_is_behind_joins,
    who_lacks_a_log_goes_on,
    who_lost_power_goes_on,
    who_starts_without_room_stays_away,
)
from sim.simreplicaclients import SimReplicaClients
from sim.simreplicated import ReplicatedCluster, SimReplicated
from sim.test_controller_histories import BROKERS, CALM_SECONDS, History, check, check_all
from support.seeds import seeds

SEEDS, SOAK_SEEDS = seeds(range(400)), range(400, 20_000)
FOUND_WITHIN = 300
HOUR_MS = 3_600_000


class ReplicatedHistory(History):
    """One cluster, its clients, and what is done to them."""

    cluster: ReplicatedCluster
    length = 12  # Many short ones find more than few long ones do in the same time.

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.clients = self.make_clients()

    def make(self, seed: int) -> ReplicatedCluster:
        return ReplicatedCluster(seed, BROKERS)

    def make_clients(self) -> SimReplicaClients:
        return SimReplicaClients(self.cluster)

    @property
    def actions(self) -> tuple[Callable[[History], None], ...]:
        return ACTIONS_OF_REPLICAS  # type: ignore[return-value]

    def _heal(self) -> None:
        self.cluster.lines.cuts.clear()
        self.cluster.lines.loses_some = False
        for member in self.cluster.members.values():
            member.disk.room = None
        super()._heal()
        self.cluster.run(1)
        self.clients.are_done = True

    def cut(self) -> None:
        """Nothing comes from one broker to another any more, or everything comes again."""
        cuts = self.cluster.lines.cuts
        if cuts and self.random.random() < 0.6:
            cuts.clear()
        else:
            one, other = self.random.sample(range(BROKERS), 2)
            cuts.add((BrokerId(one), BrokerId(other)))
            if self.random.random() < 0.7:
                cuts.add((BrokerId(other), BrokerId(one)))

    def play(self) -> None:
        self.make_topics()
        self.clients.begin()
        super().play()
        self.clients.check()

    def make_topics(self) -> None:
        self.cluster.create_topic("topic-0", [[0, 1, 2], [1, 2, 0], [2, 0, 1]])

    @property
    def preferred(self) -> list[TopicPartition]:
        """What goes back to its preferred leaders when a broker has come back."""
        return [TopicPartition(TopicName("topic-0"), index) for index in range(3)]

    def create(self) -> None:
        name, is_unclean = f"topic-{self.random.randrange(4)}", self.random.random() < 0.2
        partitions = [self._replicas() for _ in range(self.random.randint(1, 3))]
        if name not in self.cluster.topics():
            config = {"unclean": "true"} if is_unclean else {}
            self.cluster.create_topic(name, partitions, config, has_id=is_unclean or self.random.random() < 0.8)
            if is_unclean:
                self.cluster.unsafe.add(self.cluster.assignment(name).topic_id)

    def _replicas(self) -> list[int]:
        return self.random.sample(range(BROKERS), self.random.randint(2, BROKERS))

    def restart(self) -> None:
        """A broker stops as planned, is back after a while, and leads again what it should."""
        cluster, member = self.cluster, self._member()
        if not isinstance(member, SimReplicated) or not cluster.controllers or not member.has_session:
            return
        if member.node.is_paused or member.disk.room is not None:
            return
        cluster.shut_down(member.id)
        if member.is_alive and not member.node.is_paused:
            member.stop()
            cluster.run(self.random.choice((0.0, 0.1, 1.0)))
            member.start()
            cluster.run(self.random.choice((0.05, 0.3, 1.0)))
            cluster.prefer(*self.preferred)

    def lose_power(self) -> None:
        """A broker loses power while all others are well: its disk may lack what was not synced.

        Not if another's disk has just failed, so that it is the last in sync, and it has not heard of that yet.
        """
        cluster = self.cluster
        if not self.clients.waits_for_all:
            return  # What the leader alone had to have is lost with it.
        self._make_well()
        victim = self._member()
        if isinstance(victim, SimReplicated) and not victim.failed and not self._is_to_hear_that_it_is_last(victim):
            victim.lose_power()
            if self.random.random() < 0.5:
                victim.start()
            cluster.run(CALM_SECONDS)

    def _make_well(self) -> None:
        cluster = self.cluster
        cluster.lines.cuts.clear()
        for member in cluster.alive:
            if member.node.is_paused:
                member.node.go_on()
            if member.tree.is_cut_off:
                member.tree.reconnect()
        cluster.run(CALM_SECONDS)

    def _is_to_hear_that_it_is_last(self, member: SimReplicated) -> bool:
        for partition, replica in member.broker.partitions.items():
            state = self.cluster.state(*partition)
            if state is not None and state.isr == (member.id,) and state.leader_epoch > replica.info.leader_epoch:
                return True
        return False

    def _others_have(self, partition: TopicPartition, broker: BrokerId) -> bool:
        state = self.cluster.state(*partition)
        others = [one for one in self.cluster.alive if one.id != broker and partition not in one.failed]
        return state is not None and any(one.id in state.isr for one in others)

    def lose_log(self) -> None:
        """A broker dies, and is started at once, or soon, without a log that another one in sync has."""
        if not self.clients.waits_for_all:
            return
        self._make_well()
        victim = self._member()
        if not isinstance(victim, SimReplicated) or victim.failed:
            return
        if others_have := [one for one in victim.broker.partitions if self._others_have(one, victim.id)]:
            victim.lose_log(self.random.choice(others_have))
            if self.random.random() < 0.8:
                self.cluster.run(self.random.choice((0.0, 0.3)))
                victim.start()
            self.cluster.run(CALM_SECONDS)

    def fill_disk(self) -> None:
        """A disk is full, or soon will be; or there is room again."""
        disk = self.cluster.members[BrokerId(self.random.randrange(BROKERS))].disk
        disk.room = self.random.choice((0, 300, 3_000)) if disk.room is None else None

    def lose_two(self) -> None:
        """One broker's session ends, and another one dies when all have just heard of that."""
        member = self._member()
        if member is not None:
            member.tree.expire()
            self.cluster.run(self.random.uniform(0, 0.05))
            self.kill()

    def set_clock(self) -> None:
        """A wall clock jumps, by an hour at most."""
        self.cluster.members[BrokerId(self.random.randrange(BROKERS))].node.set_wall(
            self.random.randint(-HOUR_MS, HOUR_MS)
        )


ACTIONS_OF_REPLICAS = (
    History.start,
    History.start,
    History.kill,
    History.bounce,
    History.expire,
    History.pause,
    History.cut_off,
    History.cut_off,
    History.depose,
    History.stall,
    ReplicatedHistory.create,
    ReplicatedHistory.create,
    History.grow,
    History.delete,
    History.fail_directory,
    History.shut_down,
    History.prefer,
    ReplicatedHistory.cut,
    ReplicatedHistory.cut,
    ReplicatedHistory.fill_disk,
    ReplicatedHistory.fill_disk,
    ReplicatedHistory.lose_two,
    ReplicatedHistory.lose_two,
    ReplicatedHistory.set_clock,
    ReplicatedHistory.lose_power,
    ReplicatedHistory.lose_log,
    *[ReplicatedHistory.restart] * 3,
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_history(seed: int) -> None:
    check(seed, ReplicatedHistory)


# With the seed that is tried first: what few histories meet is met soon from there on.
BUGS: dict[Bug, int] = {
    the_high_watermark_moves_too_early: 0,
    logs_are_cut_at_the_high_watermark: 30,
    logs_are_not_compared: 0,
    nobody_is_fenced: 0,
    who_is_behind_joins: 0,
    a_write_is_safe_at_once: 0,
    followers_forget_producers: 0,
    who_is_alone_does_not_sync: 0,
    who_lost_power_goes_on: 60,
    who_lacks_a_log_goes_on: 260,
    who_had_no_room_stays_away: 0,
    who_starts_without_room_stays_away: 30,
}


@pytest.mark.slow
@pytest.mark.share(6)
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    first = BUGS[bug]
    with pytest.raises((AssertionError, KeyError, Refused)):
        check_all(range(first, first + FOUND_WITHIN), ReplicatedHistory)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_very_many_histories() -> None:
    check_all(SOAK_SEEDS, ReplicatedHistory)
