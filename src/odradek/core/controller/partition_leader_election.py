"""Kafka's leader elections (PartitionLeaderElectionAlgorithms, 3.9).

    for_offline             its leader is offline, or it never had one
    for_preferred           its first replica is to lead again
    for_reassignment        its replicas change
    for_controlled_shutdown its leader is shutting down

Each election considers replicas in assignment order and elects only a member of the ISR, except for an unclean
election. None changes anything. An elected state takes effect when it is written to the tree, which also assigns its
partition epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from enum import IntEnum
from typing import NamedTuple

from odradek.base.units import NO_BROKER, BrokerId, LeaderEpoch
from odradek.core.kernel.cluster_view import RECOVERING, LeaderAndIsr

Brokers = AbstractSet[BrokerId]
Replicas = Sequence[BrokerId]

FIRST_EPOCH = LeaderEpoch(0)


class ElectionType(IntEnum):
    """The replicas eligible in a client's election, numbered as in ElectLeaders."""

    PREFERRED = 0  # The first replica, if it is in sync.
    UNCLEAN = 1  # For a partition without a leader: any replica, if no in-sync replica is alive.


class ElectionResult(NamedTuple):
    """A partition's next state, with a new leader epoch; an unclean leader may lack acknowledged records."""

    state: LeaderAndIsr
    is_unclean: bool = False


def first(replicas: Replicas, alive: Brokers) -> LeaderAndIsr | None:
    """Return a new partition's first state, with all live replicas as ISR, or None if none is alive."""
    isr = tuple(broker for broker in replicas if broker in alive)
    return LeaderAndIsr(isr[0], FIRST_EPOCH, isr) if isr else None


def for_offline(
    state: LeaderAndIsr, replicas: Replicas, alive: Brokers, *, may_be_unclean: bool, has_recovery: bool = True
) -> ElectionResult | None:
    """Elect a live replica of the ISR, or any live one if unclean election is enabled; else None.

    The new ISR contains the live members of the old one. After an unclean election it contains only the leader, which
    still has to recover (KIP-704) if brokers support that (`has_recovery`, since Kafka 3.2).
    """
    leader = _first(replicas, alive & set(state.isr))
    if leader is not None:
        return ElectionResult(_next(state, leader, tuple(broker for broker in state.isr if broker in alive)))
    leader = _first(replicas, alive) if may_be_unclean else None
    if leader is None:
        return None
    assert leader not in state.isr, "a live ISR member is elected first"
    recovery = RECOVERING if has_recovery else state.recovery
    return ElectionResult(_next(state, leader, (leader,))._replace(recovery=recovery), is_unclean=True)


def for_preferred(state: LeaderAndIsr, replicas: Replicas, alive: Brokers) -> ElectionResult | None:
    """Elect the first replica if it is alive and in the ISR, which does not change; else None."""
    leader = _first(replicas[:1], alive & set(state.isr))
    return None if leader is None else ElectionResult(_next(state, leader, state.isr))


def for_reassignment(state: LeaderAndIsr, targets: Replicas, alive: Brokers) -> ElectionResult | None:
    """Elect a target replica that is alive and in the ISR, which does not change; else None."""
    leader = _first(targets, alive & set(state.isr))
    return None if leader is None else ElectionResult(_next(state, leader, state.isr))


def for_controlled_shutdown(
    state: LeaderAndIsr, replicas: Replicas, alive: Brokers, stopping: Brokers
) -> ElectionResult | None:
    """Elect a live ISR member that is not stopping, and remove stopping ones from the ISR; else None."""
    leader = _first(replicas, (alive & set(state.isr)) - stopping)
    if leader is None:
        return None
    return ElectionResult(_next(state, leader, tuple(broker for broker in state.isr if broker not in stopping)))


def without(state: LeaderAndIsr, failed: Brokers) -> LeaderAndIsr:
    """Return the state after these replicas failed without an election.

    The last member of an ISR stays in it, because only it has all records and may lead again.
    """
    leader = NO_BROKER if state.leader in failed else state.leader
    isr = tuple(broker for broker in state.isr if broker not in failed) or state.isr[-1:]
    if leader == state.leader and isr == state.isr:
        return state
    return state._replace(leader=leader, leader_epoch=LeaderEpoch(state.leader_epoch + 1), isr=isr)


def _first(replicas: Replicas, eligible: Brokers) -> BrokerId | None:
    return next((broker for broker in replicas if broker in eligible), None)


def _next(state: LeaderAndIsr, leader: BrokerId, isr: tuple[BrokerId, ...]) -> LeaderAndIsr:
    assert leader != NO_BROKER and leader in isr, "the leader is a member of its ISR"
    return state._replace(leader=leader, leader_epoch=LeaderEpoch(state.leader_epoch + 1), isr=isr)
