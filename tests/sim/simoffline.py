"""Effects of a full disk on the replicas of a simulated broker, besides the controller's requests.

The broker itself takes replicas offline that it cannot write or open, and reinstates them when there is space. The
state of its member follows here, and the controller is notified as by net/cluster/cluster_member.py.
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


class OfflineReplicas:
    """The replicas of one process that are offline for lack of space."""

    def __init__(self, member: SimReplicated) -> None:
        self.awaited: dict[TopicPartition, AssignedState | None] = {}  # With the controller's last state of them.
        self._member = member
        self._changes_reported = 0

    def settle(self) -> None:
        """Apply changes of replicas, and make the controller ask about them."""
        if not self._member.disk.failures and self._member.broker.replicas.changes == self._changes_reported:
            return
        self.update({})
        changes = self._member.broker.replicas.changes
        if changes != self._changes_reported:
            with suppress(TreeFailed):  # Then it is told later.
                self._member.propagate_log_dir_event()
                self._changes_reported = changes

    def update(self, remembered: dict[TopicPartition, ErrorCode]) -> None:
        """Note which replicas have gone offline, and which are back.

        `remembered` are the failures that a controller request should report without knowing of this.
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
