"""Simulated clusters, one per seed, in which brokers, sessions, directories and topics come and go.

At all times each write to the tree must follow from the former ones. In the end all brokers know the tree's contents,
and every partition that can have a leader has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pytest

from odradek.base.units import BrokerId, TopicName, TopicPartition
from odradek.coordination.tree import MultiFailed, Operation, Result, Watch
from odradek.core.controller import events
from odradek.core.controller import partition_leader_election as elections
from odradek.core.controller.broker_request_batch import RequestBatch
from odradek.core.controller.controller_context import LiveBroker
from odradek.core.controller.controller_steps import Steps
from odradek.core.controller.leaders import Election, Leaders
from odradek.core.controller.partition_leader_election import ElectionResult, ElectionType
from odradek.core.kernel.cluster_view import LeaderAndIsr
from odradek.net.controller import controller_tree
from odradek.net.controller.controller_changes import ControllerChanges
from odradek.net.controller.controller_tree import ControllerTree
from sim.simcontroller import SESSION_MS, SimCluster, SimMember
from support.seeds import seeds

BROKERS = 3
ACTIONS = 25
NOWHERE = TopicPartition(TopicName(""), 0)
CALM_SECONDS = 3 * SESSION_MS / 1000
REBALANCED_SECONDS = 0.5
SEEDS, SOAK_SEEDS = seeds(range(150)), range(150, 20_000)
FOUND_WITHIN = 2_000


class History:
    """One cluster, and the events in it."""

    length = ACTIONS

    gathering_seconds = 0.0  # Leaders collect their changes for so long before they send them to the controller.

    def __init__(self, seed: int) -> None:
        self.trace: list[str] = []
        self.cluster = self.make(seed)
        self.random = self.cluster.random

    def make(self, seed: int) -> SimCluster:
        return SimCluster(seed, BROKERS)

    @property
    def actions(self) -> tuple[Callable[[History], None], ...]:
        return ACTIONS_OF_HISTORY

    def play(self) -> None:
        for member in self.cluster.members.values():
            member.start()
        for _ in range(self.length):
            self.cluster.run(self.random.choice((0.001, 0.01, 0.1, 1.5)))
            action = self.random.choice(self.actions)
            self.trace.append(f"{self.cluster.clock.now_us}: {action.__name__}")
            action(self)
        self._heal()
        self.cluster.run(CALM_SECONDS + self.gathering_seconds)
        self.cluster.check()
        self.cluster.rebalance()
        self.cluster.run(REBALANCED_SECONDS + self.gathering_seconds)
        self.cluster.check()
        self.cluster.check_preferred()

    def _heal(self) -> None:
        """Resume and reconnect all brokers, with at least one alive; dead ones stay dead now and then."""
        for member in self.cluster.members.values():
            if member.node.is_paused:
                member.node.resume()
            if member.is_alive and member.tree.is_cut_off:
                member.tree.reconnect()
        for member in self.cluster.members.values():
            if not member.is_alive and (not self.cluster.alive or self.random.random() < 0.7):
                member.start()

    def _member(self, *, alive: bool = True) -> SimMember | None:
        found = [member for member in self.cluster.members.values() if member.is_alive == alive]
        return self.random.choice(found) if found else None

    def _replicas(self) -> list[int]:
        return self.random.sample(range(BROKERS), self.random.randint(1, BROKERS))

    def _topics(self) -> list[TopicName]:
        marked = self.cluster.admin.children("/admin/delete_topics")
        return [name for name in self.cluster.topics() if name not in marked]

    def _topic(self) -> TopicName | None:
        names = self._topics()
        return self.random.choice(names) if names else None

    # Events.

    def start(self) -> None:
        member = self._member(alive=False)
        if member is not None:
            member.start()

    def kill(self) -> None:
        member = self._member()
        if member is not None:
            member.kill()

    def bounce(self) -> None:
        member = self._member()
        if member is not None:
            member.kill()
            member.start()

    def expire(self) -> None:
        member = self._member()
        if member is not None:
            member.tree.expire()

    def pause(self) -> None:
        member = self._member()
        if member is not None:
            if member.node.is_paused:
                member.node.resume()
            else:
                member.node.pause()

    def cut_off(self) -> None:
        """Cut or restore the network between a broker and the tree."""
        member = self._member()
        if member is not None and not member.node.is_paused:
            if member.tree.is_cut_off:
                member.tree.reconnect()
            else:
                member.tree.cut_off()

    def depose(self) -> None:
        self.cluster.depose()

    def stall(self) -> None:
        """Pause the controller in the middle of a change, and elect another one."""
        active = self.cluster.controllers
        if active and not active[0].node.is_paused:
            self.create()
            self.delete()
            self.cluster.run(self.random.uniform(0, 0.03))
            active[0].node.pause()
            self.cluster.depose()

    def create(self) -> None:
        name = f"topic-{self.random.randrange(4)}"
        config = {"unclean": "true"} if self.random.random() < 0.3 else {}
        partitions = [self._replicas() for _ in range(self.random.randint(1, 3))]
        if name not in self.cluster.topics():
            self.cluster.create_topic(name, partitions, config, has_id=self.random.random() < 0.8)

    def grow(self) -> None:
        topic = self._topic()
        if topic is not None:
            self.cluster.grow_topic(topic, self._replicas())

    def delete(self) -> None:
        topic = self._topic()
        if topic is not None:
            self.cluster.mark_for_deletion(topic)

    def fail_directory(self) -> None:
        member = self._member()
        if member is not None and member.states and not member.node.is_paused and member.has_session:
            member.fail_directory(*self.random.sample(sorted(member.states), 1))

    def shut_down(self) -> None:
        member = self._member()
        if member is not None and self.cluster.controllers and member.has_session:
            self.cluster.shut_down(member.id)
            if member.is_alive:
                member.kill()

    def propose(self) -> None:
        member, partition = self._led()
        if member is not None:
            self.cluster.propose_isr(member, partition, self._isr(member, partition))

    def write_isr(self) -> None:
        member, partition = self._led()
        if member is not None:
            self.cluster.write_isr(member, partition, self._isr(member, partition))

    def _led(self) -> tuple[SimMember | None, TopicPartition]:
        """Return a broker, and a partition that it leads to its knowledge; None if there is none."""
        member = self._member()
        led = [one for one, known in member.states.items() if known.state.leader == member.id] if member else []
        if member is None or not led or not member.has_session or member.node.is_paused:
            return None, NOWHERE
        return member, self.random.choice(led)

    def _isr(self, member: SimMember, partition: TopicPartition) -> list[BrokerId]:
        replicas: tuple[BrokerId, ...] = member.states[partition].replicas
        return [broker for broker in replicas if broker == member.id or self.random.random() < 0.6]

    def prefer(self) -> None:
        topic = self._topic()
        if topic is not None:
            self.cluster.prefer(*(TopicPartition(topic, index) for index in range(3)))

    def elect_leaders(self) -> None:
        topic = self._topic()
        if topic is not None:
            kind = self.random.choice((ElectionType.PREFERRED, ElectionType.UNCLEAN))
            self.cluster.elect_leaders(kind, *(TopicPartition(topic, index) for index in range(4)))

    def rebalance(self) -> None:
        self.cluster.rebalance()

    def allow_unclean(self) -> None:
        """Allow unclean elections, or forbid them again."""
        topic = self._topic()
        if topic is not None:
            self.cluster.allow_unclean(topic, is_allowed=self.random.random() < 0.7)


ACTIONS_OF_HISTORY = (
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
    History.create,
    History.create,
    History.grow,
    History.delete,
    History.fail_directory,
    History.shut_down,
    History.propose,
    History.propose,
    History.write_isr,
    History.prefer,
    History.elect_leaders,
    History.rebalance,
    History.allow_unclean,
)


def check(seed: int, kind: type[History] = History) -> None:
    history = kind(seed)
    try:
        history.play()
    except AssertionError as failed:
        raise AssertionError("\n".join([f"seed {seed}", *history.trace, str(failed)])) from failed


def check_all(seeds: Iterable[int], kind: type[History] = History) -> None:
    for seed in seeds:
        check(seed, kind)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_controller_history_ends_consistent(seed: int) -> None:
    check(seed)


def an_epoch_is_not_compared(patch: pytest.MonkeyPatch) -> None:
    def change(self: ControllerChanges, operations: Sequence[Operation]) -> Sequence[Result]:
        try:
            return self._tree.multi(operations)
        except MultiFailed as failed:
            raise failed.error from failed

    patch.setattr(ControllerChanges, "_change", change)


def dead_brokers_stay_in_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(elections, "without", lambda state, removed: state)


def a_restart_is_overlooked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(controller_tree, "LiveBroker", lambda info, epoch: LiveBroker(info, 1 << 40))


def stale_states_are_not_read_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leaders, "read", lambda self, partitions: iter(()))


def a_watch_is_set_once(patch: pytest.MonkeyPatch) -> None:
    watch, are_set = ControllerTree._watch, set[tuple[ControllerTree, events.Event]]()

    def once(self: ControllerTree, event: events.Event) -> Watch | None:
        if (self, event) in are_set:
            return None
        are_set.add((self, event))
        return watch(self, event)

    patch.setattr(ControllerTree, "_watch", once)


def new_brokers_get_no_full_update(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RequestBatch, "announce", lambda self, full_update_to: None)


def a_lost_connection_is_overlooked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimMember, "reconnected", lambda self: None)


def a_sessions_end_is_overlooked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimMember, "_expired", lambda self, tree: None)


def preferred_leader_is_elected_out_of_sync(patch: pytest.MonkeyPatch) -> None:
    def for_preferred(
        state: LeaderAndIsr, replicas: Sequence[BrokerId], alive: elections.Brokers
    ) -> ElectionResult | None:
        return ElectionResult(elections._next(state, replicas[0], (replicas[0],))) if replicas[0] in alive else None

    patch.setattr(elections, "for_preferred", for_preferred)


def an_altered_topic_is_overlooked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimMember, "on_unclean_election_enabled", lambda self, name: None)


def rebalance_is_not_announced(patch: pytest.MonkeyPatch) -> None:
    def elect(self: Leaders, partitions: Sequence[TopicPartition], election: Election) -> Steps:
        staying = self._context.existing(partitions)
        yield from self.read(staying)
        yield from self._elect(staying, election)

    patch.setattr(Leaders, "elect", elect)


@pytest.mark.slow
@pytest.mark.parametrize(
    "bug",
    [
        an_epoch_is_not_compared,
        dead_brokers_stay_in_sync,
        a_restart_is_overlooked,
        stale_states_are_not_read_again,
        a_watch_is_set_once,
        new_brokers_get_no_full_update,
        a_lost_connection_is_overlooked,
        a_sessions_end_is_overlooked,
        preferred_leader_is_elected_out_of_sync,
        an_altered_topic_is_overlooked,
        rebalance_is_not_announced,
    ],
)
def test_an_injected_bug_is_found(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        check_all(range(FOUND_WITHIN))


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many_controller_histories_end_consistent() -> None:
    check_all(SOAK_SEEDS)
