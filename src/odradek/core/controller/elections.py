"""Who leads a partition after something has changed: Kafka's four elections (PartitionLeaderElectionAlgorithms, 3.9).

    for_offline             its leader is gone, or it never had one
    for_preferred           the first of its replicas is to lead again
    for_reassignment        its replicas become others
    for_controlled_shutdown its leader is about to stop

Each takes the replicas in the order of their assignment, and gives a leader only who is in the ISR, but for an unclean
election.  None of them changes anything: an elected state becomes one when it is written to the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from odradek.base.units import NO_BROKER, BrokerId, LeaderEpoch
from odradek.core.cluster import PartitionInfo

Brokers = AbstractSet[BrokerId]


class Elected(NamedTuple):
    """A partition's next state, with a leader epoch of its own.  Unclean: who leads may lack acknowledged records."""

    info: PartitionInfo
    is_unclean: bool = False


def for_offline(info: PartitionInfo, alive: Brokers, *, may_be_unclean: bool) -> Elected | None:
    """Elects a live replica of the ISR, or any live one where unclean.leader.election.enable says so; else None.

    The ISR is then those of it that live; after an unclean election the leader alone.
    """
    leader = _first(info.replicas, alive & set(info.isr))
    if leader is not None:
        return Elected(_next(info, leader, tuple(broker for broker in info.isr if broker in alive)))
    leader = _first(info.replicas, alive) if may_be_unclean else None
    return None if leader is None else Elected(_next(info, leader, (leader,)), is_unclean=True)


def for_preferred(info: PartitionInfo, alive: Brokers) -> Elected | None:
    """Elects the first of the replicas, if it lives and is in the ISR, which stays; else None."""
    leader = _first(info.replicas[:1], alive & set(info.isr))
    return None if leader is None else Elected(_next(info, leader, info.isr))


def for_reassignment(info: PartitionInfo, targets: Sequence[BrokerId], alive: Brokers) -> Elected | None:
    """Elects one of the target replicas that lives and is in the ISR, which stays; else None."""
    leader = _first(targets, alive & set(info.isr))
    return None if leader is None else Elected(_next(info, leader, info.isr))


def for_controlled_shutdown(info: PartitionInfo, alive: Brokers, stopping: Brokers) -> Elected | None:
    """Elects one that lives, is in the ISR and does not stop; the ISR is then those that don't stop; else None."""
    leader = _first(info.replicas, (alive & set(info.isr)) - stopping)
    if leader is None:
        return None
    return Elected(_next(info, leader, tuple(broker for broker in info.isr if broker not in stopping)))


def _first(replicas: Sequence[BrokerId], eligible: Brokers) -> BrokerId | None:
    return next((broker for broker in replicas if broker in eligible), None)


def _next(info: PartitionInfo, leader: BrokerId, isr: tuple[BrokerId, ...]) -> PartitionInfo:
    assert leader != NO_BROKER and leader in isr, "a leader is in its ISR"
    return info._replace(leader=leader, leader_epoch=LeaderEpoch(info.leader_epoch + 1), isr=isr)
