"""One partition of a few brokers, their controller, and a network that loses, repeats and reorders: a model of logs.

The brokers' leaders use InSyncReplicas. All else is simplified: a log is a list of distinct numbers, and a follower's
fetch contains a copy of its log, so that the leader immediately sees where the two diverge.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_BROKER, NO_EPOCH, BrokerId, Offset
from odradek.core.kernel.cluster_view import LeaderAndIsr
from odradek.core.partition.follower_states import NO_BROKER_EPOCH
from odradek.core.partition.in_sync_replicas import InSyncReplicas
from support.isr_controller import Controller

LAG_MS_MAX = 10
Log = tuple[int, ...]


class LeaderAndIsrMessage(NamedTuple):
    """A LeaderAndIsr request; `broker_epoch` is that of the target process (KIP-380)."""

    to: BrokerId
    broker_epoch: int
    state: LeaderAndIsr


class Fetch(NamedTuple):
    follower: BrokerId
    process: int
    broker_epoch: int
    leader: BrokerId
    leader_epoch: int
    log: Log


class Proposal(NamedTuple):
    """An AlterPartition request, with the broker epochs of the ISR (KIP-903)."""

    leader: BrokerId
    process: int
    state: LeaderAndIsr
    epochs: dict[BrokerId, int]


class Answer(NamedTuple):
    proposal: Proposal
    error: ErrorCode
    state: LeaderAndIsr | None


Message = LeaderAndIsrMessage | Fetch | Proposal | Answer


class Replica:
    """One broker: its log, and its view of the leadership."""

    def __init__(self, broker: BrokerId, broker_epoch: int) -> None:
        self.broker = broker
        self.broker_epoch = broker_epoch
        self.process = 0
        self.is_alive = True
        self.log: Log = ()
        self.durable_end = Offset(0)
        self.high_watermark = Offset(0)
        self.leader, self.leader_epoch = NO_BROKER, NO_EPOCH
        self.in_sync: InSyncReplicas | None = None
        self.eligible: dict[BrokerId, int] = {}

    @property
    def end(self) -> Offset:
        return Offset(len(self.log))

    def die(self, keeps: int) -> None:
        self.is_alive = False
        self.in_sync = None
        self.log = self.log[:keeps]
        self.high_watermark, self.durable_end = min(self.high_watermark, self.end), self.end

    def start(self) -> None:
        self.is_alive = True
        self.process += 1
        self.leader, self.leader_epoch = NO_BROKER, NO_EPOCH

    def truncate(self, end: int) -> None:
        self.log = self.log[:end]
        self.high_watermark, self.durable_end = min(self.high_watermark, self.end), min(self.durable_end, self.end)

    def on_leader_and_isr(self, state: LeaderAndIsr, replicas: tuple[BrokerId, ...], now: int) -> None:
        if state.leader_epoch < self.leader_epoch:
            return
        if state.leader != self.broker:
            if state.leader_epoch > self.leader_epoch:
                self.in_sync = None
        elif self.in_sync is not None:
            self.in_sync.apply_leader_and_isr(state, replicas, self.end, now)
        elif state.leader_epoch > self.leader_epoch:
            self.in_sync = InSyncReplicas(self.broker, state, replicas, self.end, now, lag_ms_max=LAG_MS_MAX)
        self.leader, self.leader_epoch = state.leader, state.leader_epoch

    def fetched(self, fetch: Fetch, now: int) -> LeaderAndIsr | None:
        """Handle a fetch; return the resulting proposal, or raise Refused."""
        assert self.in_sync is not None
        end = Offset(len(fetch.log))
        epochs = {"broker_epoch": fetch.broker_epoch, "leader_epoch": fetch.leader_epoch}
        self.in_sync.fetched(fetch.follower, end, Offset(0), self.end, now, eligible=self.eligible, **epochs)
        return self.in_sync.expand(fetch.follower, self.high_watermark, self.eligible)


def common(one: Log, other: Log) -> int:
    """Return the number of records that two logs have in common."""
    return next(
        (at for at, (mine, its) in enumerate(zip(one, other, strict=False)) if mine != its), min(len(one), len(other))
    )


class Cluster:
    """The controller, the replicas, and the messages in flight.

    Without broker epochs, no broker loses records, and a proposal is repeated only if it is surely lost.
    """

    def __init__(self, random: Random, brokers: int, *, sends_epochs: bool) -> None:
        self.random = random
        self.sends_epochs = sends_epochs
        ids = [BrokerId(one) for one in range(1, brokers + 1)]
        self.controller = Controller(ids)
        self.replicas = {one: Replica(one, self.controller.registered[one]) for one in ids}
        self.messages: list[Message] = []
        self.now = 0
        self.records = 0
        self.min_isr = random.randint(1, 2)
        self.visible: Log = ()  # All records that were below any leader's high watermark.
        self.announce()
        for replica in self.replicas.values():
            self.refresh(replica)

    @property
    def leaders(self) -> list[Replica]:
        return [one for one in self.replicas.values() if one.is_alive and one.in_sync is not None]

    def refresh(self, replica: Replica) -> None:
        """Update a replica's view of the eligible replicas."""
        eligible = self.controller.eligible
        replica.eligible = eligible if self.sends_epochs else dict.fromkeys(eligible, NO_BROKER_EPOCH)

    def announce(self) -> None:
        state = self.controller.state
        self.messages += [LeaderAndIsrMessage(one, epoch, state) for one, epoch in self.controller.registered.items()]

    def register(self, replica: Replica) -> None:
        replica.broker_epoch = self.controller.register(replica.broker)
        self.announce()

    def propose(self, leader: Replica, state: LeaderAndIsr) -> None:
        assert leader.in_sync is not None
        epochs = dict(zip(state.isr, leader.in_sync.pending_epochs, strict=True))
        self.messages.append(Proposal(leader.broker, leader.process, state, epochs))

    def is_under_way(self, leader: Replica, state: LeaderAndIsr) -> bool:
        """Return True if an attempt of a proposal, or its response, may still arrive."""
        proposals = [one.proposal if isinstance(one, Answer) else one for one in self.messages]
        return any(
            isinstance(one, Proposal) and (one.process, one.state) == (leader.process, state) for one in proposals
        )

    def fetch(self, follower: Replica) -> None:
        if follower.is_alive and follower.leader not in (NO_BROKER, follower.broker):
            epoch = follower.broker_epoch if self.sends_epochs else NO_BROKER_EPOCH
            ids = (follower.broker, follower.process, epoch, follower.leader, follower.leader_epoch)
            self.messages.append(Fetch(*ids, follower.log))

    def append(self, leader: Replica) -> None:
        self.records += 1
        leader.log = (*leader.log, self.records)
        self.advance(leader)

    def advance(self, leader: Replica) -> None:
        """Advance a leader's high watermark as far as possible."""
        if leader.in_sync is None:
            return
        high_watermark = leader.in_sync.high_watermark(
            leader.durable_end, leader.high_watermark, self.now, leader.eligible, self.min_isr
        )
        assert high_watermark >= leader.high_watermark, "the high watermark never goes down in one leadership"
        leader.high_watermark = high_watermark
        shown = leader.log[:high_watermark]
        assert common(shown, self.visible) == min(len(shown), len(self.visible)), "readers have seen other records"
        self.visible = max(shown, self.visible, key=len)

    def deliver(self, message: Message) -> None:
        match message:
            case LeaderAndIsrMessage():
                replica = self.replicas[message.to]
                if replica.is_alive and replica.broker_epoch == message.broker_epoch:
                    replica.on_leader_and_isr(message.state, self.controller.replicas, self.now)
                    self.advance(replica)
            case Proposal():
                error = self.controller.alter(message.leader, message.state, message.epochs)
                if self.random.random() < 0.1:  # The outcome is unknown to the leader.
                    error = ErrorCode.NETWORK_EXCEPTION
                self.messages.append(Answer(message, error, None if error else self.controller.state))
            case Answer():
                self._answered(message)
            case Fetch():
                self._fetched(message)

    def _answered(self, answer: Answer) -> None:
        leader = self.replicas[answer.proposal.leader]
        if leader.process == answer.proposal.process and leader.in_sync is not None:
            if leader.in_sync.altered(answer.proposal.state, answer.error, answer.state):
                self.propose(leader, answer.proposal.state)
            self.advance(leader)

    def _fetched(self, fetch: Fetch) -> None:
        leader, follower = self.replicas[fetch.leader], self.replicas[fetch.follower]
        if leader.in_sync is None or leader.leader_epoch != fetch.leader_epoch:
            return
        is_waiting = follower.is_alive and (follower.process, follower.leader_epoch, follower.log) == (
            fetch.process,
            fetch.leader_epoch,
            fetch.log,
        )
        same = common(leader.log, fetch.log)
        if same < len(fetch.log):
            if is_waiting:
                follower.truncate(same)
            return
        try:
            proposal = leader.fetched(fetch, self.now)
        except Refused:
            return
        if proposal is not None:
            self.propose(leader, proposal)
        self.advance(leader)
        if is_waiting and self.random.random() < 0.8:
            follower.log = leader.log[: same + self.random.randint(1, 3)]
            follower.high_watermark = min(leader.high_watermark, follower.end)

    def check(self) -> None:
        """Check that all electable replicas have all records that were ever visible."""
        for broker in self.controller.state.isr:
            log = self.replicas[broker].log
            assert log[: len(self.visible)] == self.visible, f"{broker} has {log}, of which {self.visible} was visible"
