"""Clusters of one seed each whose brokers follow each other, while the network between them fails and heals.

What clients were told stays true for ever: an acknowledged record is there, and an offset has one value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from odradek.base.errors import Refused
from odradek.base.units import BrokerId, TimestampMs, TopicName, TopicPartition
from odradek.core.cluster import LeaderAndIsr
from odradek.core.controlled import Controlled
from odradek.core.follower_log import cut_log_at
from odradek.core.following import Following
from odradek.core.in_sync import InSync
from odradek.core.leadership import Leadership
from odradek.core.partition import Partition
from odradek.core.staging import Append
from odradek.log.log import Log
from odradek.record.batch import Batch
from sim.simclock import WALL_BEGIN_MS
from sim.simreplicaclients import SimReplicaClients
from sim.simreplicated import ReplicatedCluster, SimReplicated
from sim.test_controller_histories import BROKERS, CALM_SECONDS, History, check

SEEDS, SOAK_SEEDS = range(100), range(100, 10_000)
FOUND_WITHIN = 300
HOUR_MS = 3_600_000
NOW = TimestampMs(WALL_BEGIN_MS)


class ReplicatedHistory(History):
    """One cluster, its clients, and what is done to them."""

    cluster: ReplicatedCluster

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
        if member.node.is_paused:
            return
        cluster.shut_down(member.id)
        if member.is_alive and not member.node.is_paused:
            member.stop()
            cluster.run(self.random.choice((0.0, 0.1, 1.0)))
            member.start()
            cluster.run(self.random.choice((0.05, 0.3, 1.0)))
            cluster.prefer(*self.preferred)

    def lose_power(self) -> None:
        """A broker loses power while all others are well: its disk may lack what was not synced."""
        cluster = self.cluster
        if not self.clients.waits_for_all:
            return  # What the leader alone had to have is lost with it.
        cluster.lines.cuts.clear()
        for member in cluster.alive:
            if member.node.is_paused:
                member.node.go_on()
            if member.tree.is_cut_off:
                member.tree.reconnect()
        cluster.run(CALM_SECONDS)
        victim = self._member()
        if isinstance(victim, SimReplicated) and not victim.failed:
            victim.lose_power()
            if self.random.random() < 0.5:
                victim.start()
            cluster.run(CALM_SECONDS)

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
    ReplicatedHistory.set_clock,
    ReplicatedHistory.lose_power,
    *[ReplicatedHistory.restart] * 3,
)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_history(seed: int) -> None:
    check(seed, ReplicatedHistory)


def the_high_watermark_moves_too_early(patch: pytest.MonkeyPatch) -> None:
    """With the leader's end, or as far as what was proposed would let it."""
    patch.setattr(InSync, "high_watermark", lambda self, own_end, *others: own_end)


def logs_are_cut_at_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """As before KIP-101: a follower cuts what its leader may be waiting for it to have."""
    begin = Following.__init__

    def cut(self: Following, partition: Partition, *arguments: Any, **more: Any) -> None:
        cut_log_at(partition, partition.positions.high_watermark, NOW)
        begin(self, partition, *arguments, **more)

    patch.setattr(Following, "__init__", cut)


def logs_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    """A follower goes on behind what its leader lacks."""
    patch.setattr(Partition, "diverging_epoch", lambda *_: None)


def nobody_is_fenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Controlled, "check", lambda self, sent: None)


def who_is_behind_joins(patch: pytest.MonkeyPatch) -> None:
    def expand(self: InSync, follower: BrokerId, *_: object) -> LeaderAndIsr | None:
        if self.pending is not None or follower in self.committed.isr:
            return None
        self.maximal_isr = (*self.committed.isr, follower)
        return self._propose(self.maximal_isr)

    patch.setattr(InSync, "expand", expand)


def a_write_is_safe_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Append, "is_safe", True)


def followers_forget_producers(patch: pytest.MonkeyPatch) -> None:
    append = Log.append_as_follower

    def forgetful(self: Log, batches: Sequence[Batch], now: TimestampMs) -> None:
        append(self, batches, now)
        self.producers.expire(TimestampMs(1 << 60), 1)

    patch.setattr(Log, "append_as_follower", forgetful)


def who_is_alone_does_not_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leadership, "waits_for_disk", False)


def who_lost_power_goes_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimReplicated, "may_register", lambda self: True)


BUGS = [
    the_high_watermark_moves_too_early,
    logs_are_cut_at_the_high_watermark,
    logs_are_not_compared,
    nobody_is_fenced,
    who_is_behind_joins,
    a_write_is_safe_at_once,
    followers_forget_producers,
    who_is_alone_does_not_sync,
    who_lost_power_goes_on,
]


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_found(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    with pytest.raises((AssertionError, KeyError, Refused)):
        for seed in range(FOUND_WITHIN):
            check(seed, ReplicatedHistory)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_very_many_histories() -> None:
    for seed in SOAK_SEEDS:
        check(seed, ReplicatedHistory)
