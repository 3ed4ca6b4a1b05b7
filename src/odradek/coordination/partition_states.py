"""Conversion of partition states from and to znodes; the znode's version is the partition epoch."""

from __future__ import annotations

from odradek.base.units import NO_BROKER
from odradek.coordination.fields import BadZnodeError
from odradek.coordination.znodes import PartitionState, decode_partition_state, encode_partition_state
from odradek.core.kernel.cluster_view import RECOVERED, RECOVERING, LeaderAndIsr


def encoded(state: LeaderAndIsr) -> bytes:
    return encode_partition_state(
        PartitionState(state.leader, state.leader_epoch, state.controller_epoch, state.isr, state.recovery)
    )


def decoded(data: bytes, version: int) -> LeaderAndIsr:
    """Return the state of a partition, or raise BadZnodeError.

    A state that no controller writes is as good as unreadable: brokers reject it, and the controller's own broker
    applies what its controller sends without another check.
    """
    leader, epoch, controller_epoch, isr, recovery = decode_partition_state(data)
    has_leader = leader in isr or leader == NO_BROKER
    are_ids = min(isr, default=0) >= 0 and len({*isr}) == len(isr)
    if not (has_leader and are_ids and min(epoch, controller_epoch) >= 0 and recovery in (RECOVERED, RECOVERING)):
        raise BadZnodeError(
            f"A partition's state has leader {leader} in leader epoch {epoch}, ISR {isr}, recovery state {recovery} "
            f"and controller epoch {controller_epoch}, which no controller writes."
        )
    return LeaderAndIsr(leader, epoch, isr, recovery, controller_epoch, version)
