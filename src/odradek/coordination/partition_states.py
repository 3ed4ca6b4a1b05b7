"""Conversion of partition states from and to znodes; the znode's version is the partition epoch."""

from __future__ import annotations

from odradek.coordination.znodes import PartitionState, decode_partition_state, encode_partition_state
from odradek.core.kernel.cluster_view import LeaderAndIsr


def encoded(state: LeaderAndIsr) -> bytes:
    return encode_partition_state(
        PartitionState(state.leader, state.leader_epoch, state.controller_epoch, state.isr, state.recovery)
    )


def decoded(data: bytes, version: int) -> LeaderAndIsr:
    """Return the state of a partition, or raise BadZnodeError."""
    leader, epoch, controller_epoch, isr, recovery = decode_partition_state(data)
    return LeaderAndIsr(leader, epoch, isr, recovery, controller_epoch, version)
