"""The controller of one partition: a model that elects like the real one, and knows each process (KIP-903)."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.base.errors import ErrorCode
from odradek.base.units import NO_BROKER, BrokerId, LeaderEpoch
from odradek.core.controller import partition_leader_election as elections
from odradek.core.kernel.cluster_view import LeaderAndIsr
from odradek.core.partition.follower_states import NO_BROKER_EPOCH


class Controller:
    """The true leader and ISR."""

    def __init__(self, brokers: Iterable[BrokerId]) -> None:
        self.replicas = tuple(brokers)
        self.registered = {broker: broker * 100 for broker in self.replicas}
        self.shutting_down: set[BrokerId] = set()
        self.epochs = 10_000
        self.state = LeaderAndIsr(self.replicas[0], LeaderEpoch(1), self.replicas)

    @property
    def eligible(self) -> dict[BrokerId, int]:
        return {one: epoch for one, epoch in self.registered.items() if one not in self.shutting_down}

    def register(self, broker: BrokerId) -> int:
        self.epochs += 1
        self.registered[broker] = self.epochs
        self.shutting_down.discard(broker)
        self.elect()
        return self.epochs

    def on_broker_failure(self, broker: BrokerId, *, bumps_leader_epoch: bool) -> None:
        """Remove a broker from the ISR unless it is the last one. KRaft keeps the leader epoch in that case."""
        self.registered.pop(broker, None)
        before = self.state
        if broker != before.leader and broker not in before.isr:
            return
        self._become(elections.without(before, {broker}), bumps_leader_epoch=bumps_leader_epoch)
        self.elect()

    def shut_down(self, broker: BrokerId, *, bumps_leader_epoch: bool) -> None:
        if broker != self.state.leader:
            self.shutting_down.add(broker)
            self._become(elections.without(self.state, {broker}), bumps_leader_epoch=bumps_leader_epoch)

    def elect(self, leader: BrokerId | None = None) -> None:
        """Elect this broker, or any broker if there is no leader."""
        elected = None
        if leader is not None:
            elected = elections.for_preferred(self.state, (leader,), {*self.eligible})
        elif self.state.leader == NO_BROKER:
            elected = elections.for_offline(self.state, self.replicas, {*self.registered}, may_be_unclean=False)
        if elected is not None:
            self._become(elected.state)

    def alter(self, leader: BrokerId, proposed: LeaderAndIsr, epochs: dict[BrokerId, int]) -> ErrorCode:
        state = self.state
        if proposed.leader_epoch != state.leader_epoch or leader != state.leader:
            return ErrorCode.FENCED_LEADER_EPOCH
        if proposed.partition_epoch != state.partition_epoch:
            is_there = proposed.partition_epoch < state.partition_epoch and proposed.isr == state.isr
            return ErrorCode.NONE if is_there else ErrorCode.INVALID_UPDATE_VERSION
        for broker in proposed.isr:
            epoch = self.registered.get(broker) if broker == leader else self.eligible.get(broker)
            if epoch is None or epochs[broker] not in (NO_BROKER_EPOCH, epoch):
                return ErrorCode.INELIGIBLE_REPLICA
        self._become(state._replace(isr=proposed.isr))
        return ErrorCode.NONE

    def _become(self, state: LeaderAndIsr, *, bumps_leader_epoch: bool = True) -> None:
        before = self.state
        if state == before:
            return
        if not bumps_leader_epoch and state.leader == before.leader:
            state = state._replace(leader_epoch=before.leader_epoch)
        self.state = state._replace(partition_epoch=before.partition_epoch + 1)
