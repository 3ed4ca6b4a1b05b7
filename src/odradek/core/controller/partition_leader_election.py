"""Who leads a partition after something has changed: Kafka's elections (PartitionLeaderElectionAlgorithms, 3.9).

    for_offline             its leader is gone, or it never had one
    for_preferred           the first of its replicas is to lead again
    for_reassignment        its replicas become others
    for_controlled_shutdown its leader is about to stop

Each takes the replicas in the order of their assignment, and gives a leader only who is in the ISR, but for an unclean
election.  None of them changes anything: an elected state becomes one when it is written to the tree, which also gives
it its partition epoch.
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
    """Which replicas an election that a client asks for may choose, by the numbers of ElectLeaders."""

    PREFERRED = 0  # The first one, if it is in sync.
    UNCLEAN = 1  # Of a partition without a leader any one, if none that is in sync lives.


class Elected(NamedTuple):
    """A partition's next state, with a leader epoch of its own.  Unclean: who leads may lack acknowledged records."""

    state: LeaderAndIsr
    is_unclean: bool = False


def first(replicas: Replicas, alive: Brokers) -> LeaderAndIsr | None:
    """Returns the first state of a new partition: all that live are its ISR; None if none does."""
    isr = tuple(broker for broker in replicas if broker in alive)
    return LeaderAndIsr(isr[0], FIRST_EPOCH, isr) if isr else None


def for_offline(
    state: LeaderAndIsr, replicas: Replicas, alive: Brokers, *, may_be_unclean: bool, has_recovery: bool = True
) -> Elected | None:
    """Elects a live replica of the ISR, or any live one where unclean.leader.election.enable says so; else None.

    The ISR is then those of it that live; after an unclean election the leader alone, who has yet to recover (KIP-704),
    if brokers know of that (`has_recovery`, from Kafka 3.2 on).
    """
    leader = _first(replicas, alive & set(state.isr))
    if leader is not None:
        return Elected(_next(state, leader, tuple(broker for broker in state.isr if broker in alive)))
    leader = _first(replicas, alive) if may_be_unclean else None
    if leader is None:
        return None
    recovery = RECOVERING if has_recovery else state.recovery
    return Elected(_next(state, leader, (leader,))._replace(recovery=recovery), is_unclean=True)


def for_preferred(state: LeaderAndIsr, replicas: Replicas, alive: Brokers) -> Elected | None:
    """Elects the first of the replicas, if it lives and is in the ISR, which stays; else None."""
    leader = _first(replicas[:1], alive & set(state.isr))
    return None if leader is None else Elected(_next(state, leader, state.isr))


def for_reassignment(state: LeaderAndIsr, targets: Replicas, alive: Brokers) -> Elected | None:
    """Elects one of the target replicas that lives and is in the ISR, which stays; else None."""
    leader = _first(targets, alive & set(state.isr))
    return None if leader is None else Elected(_next(state, leader, state.isr))


def for_controlled_shutdown(
    state: LeaderAndIsr, replicas: Replicas, alive: Brokers, stopping: Brokers
) -> Elected | None:
    """Elects one that lives, is in the ISR and does not stop; the ISR is then those that don't stop; else None."""
    leader = _first(replicas, (alive & set(state.isr)) - stopping)
    if leader is None:
        return None
    return Elected(_next(state, leader, tuple(broker for broker in state.isr if broker not in stopping)))


def without(state: LeaderAndIsr, gone: Brokers) -> LeaderAndIsr:
    """Returns the state when these replicas have gone and nobody was elected for them.

    The last one of an ISR stays in it, since nobody else has all records: it is who may lead again.
    """
    leader = NO_BROKER if state.leader in gone else state.leader
    isr = tuple(broker for broker in state.isr if broker not in gone) or state.isr[-1:]
    if leader == state.leader and isr == state.isr:
        return state
    return state._replace(leader=leader, leader_epoch=LeaderEpoch(state.leader_epoch + 1), isr=isr)


def _first(replicas: Replicas, eligible: Brokers) -> BrokerId | None:
    return next((broker for broker in replicas if broker in eligible), None)


def _next(state: LeaderAndIsr, leader: BrokerId, isr: tuple[BrokerId, ...]) -> LeaderAndIsr:
    assert leader != NO_BROKER and leader in isr, "a leader is in its ISR"
    return state._replace(leader=leader, leader_epoch=LeaderEpoch(state.leader_epoch + 1), isr=isr)
