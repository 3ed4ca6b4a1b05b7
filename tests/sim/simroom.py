"""What a full disk does to the replicas of a simulated broker, beside what the controller says to it.

The broker itself takes replicas offline that it can't write, or can't open, and has them back when there is room; what
its member remembers of them follows here, and the controller is told as net/cluster/cluster_member.py tells it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicPartition
from odradek.coordination.tree import TreeFailed
from odradek.core.controller.broker_request_batch import AssignedState

if TYPE_CHECKING:
    from sim.simreplicated import SimReplicated


class SimRoom:
    """The replicas of one process that are offline for want of room."""

    def __init__(self, member: SimReplicated) -> None:
        self.awaited: dict[TopicPartition, AssignedState | None] = {}  # With what the controller said of them last.
        self._member = member
        self._changes_told = 0

    def settle(self) -> None:
        """Takes in what has become of replicas by itself, and has the controller ask about it."""
        if not self._member.disk.failures and self._member.broker.replicas.changes == self._changes_told:
            return
        self.look({})
        changes = self._member.broker.replicas.changes
        if changes != self._changes_told:
            with suppress(TreeFailed):  # Then it is told later.
                self._member.tell_of_directories()
                self._changes_told = changes

    def look(self, remembered: dict[TopicPartition, ErrorCode]) -> None:
        """Takes in which replicas have gone offline, and which are back.

        `remembered` are the failures that a request of the controller should have, which can't know of it.
        """
        member, here = self._member, self._member.broker.partitions
        for name, one in here.items():
            if not one.is_online and name not in member.failed:
                self.awaited[name] = member.states.pop(name, None)
                member.failed.add(name)
                remembered[name] = ErrorCode.KAFKA_STORAGE_ERROR
        for name in [name for name in self.awaited if name not in here or here[name].is_online]:
            assigned = self.awaited.pop(name)
            member.failed.discard(name)
            remembered.pop(name, None)
            if name in here and assigned is not None:
                member.states[name] = assigned
