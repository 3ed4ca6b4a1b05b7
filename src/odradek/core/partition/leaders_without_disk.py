"""Leaders whose disk has failed or is full, while another replica may lead.

    Partition.disk_failed ──> AlterPartitionManager.unable ──> hand_over: offline, the controller is notified
    the disk has room again ──> reinstate: forgotten, the controller is notified, as at a start

The controller sends a LeaderAndIsr with all replicas of this broker to find the offline ones.  It removes these from
the ISR and elects other leaders.  A log that was lost to a failing disk stays offline until the next start.  A log on a
full disk is intact: once there is room, it follows the current leader.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping

from odradek.base.units import TopicPartition
from odradek.core.kernel.moment import Moment
from odradek.core.partition.alter_partition_manager import AlterPartitionManager
from odradek.core.partition.partition import Partition
from odradek.core.partition.storage import Storage
from odradek.log.directory.directory import LogDirectory

_LOG = logging.getLogger(__name__)


class UnableLeaders:
    """Leaders of one broker that cannot write.

    `on_leadership_lost` is called when a leadership has ended, `forget` for a replica to be created again.
    """

    def __init__(
        self,
        storage: Storage,
        partitions: Mapping[TopicPartition, Partition],
        alter_partition: AlterPartitionManager,
        *,
        on_leadership_lost: Callable[[TopicPartition, Moment], None],
        forget: Callable[[TopicPartition], object],
    ) -> None:
        self._storage = storage
        self._partitions = partitions
        self._alter_partition = alter_partition
        self._on_leadership_lost = on_leadership_lost
        self._forget = forget
        # A leader that resigned for lack of room stays away until there is room.  Two of them would otherwise hand the
        # partition back and forth: without writes, each is in sync at once.
        self._awaiting: dict[Partition, LogDirectory] = {}  # Replicas that return when there is room.
        self.changes = 0  # Number of departures and returns; the controller must be notified of each.

    def is_awaiting_room(self, partition: Partition) -> bool:
        """Return whether the replica is offline for lack of room only."""
        return partition in self._awaiting

    def hand_over(self, now: Moment) -> Iterator[None]:
        """Make the controller elect other leaders; yields after each.  Called about once a second."""
        manager = self._alter_partition
        # The controller learns only of failed directories.  With one failed log, this broker would otherwise stay the
        # leader and reject every write, with healthy replicas in the ISR.
        unable, manager.unable = manager.unable, {}
        for name in unable:
            partition = self._partitions.get(name)
            if partition is None or (partition.is_online and not self._resign(name, partition)):
                continue
            self.changes += 1
            self._on_leadership_lost(name, now)
            yield

    def _resign(self, name: TopicPartition, partition: Partition) -> bool:
        """Take a leader without room offline.

        Returns False if there is room by now, or if no other replica may lead.
        """
        directory = self._storage.directory_of(name)
        if directory is None or not partition.has_logged_full or not self._can_others_lead(partition):
            return False
        assert partition not in self._awaiting, "a replica that awaits room is offline"
        _LOG.error(
            "disk full for %s: leadership moves to another in-sync replica; this one follows once there is space", name
        )
        partition.take_offline()
        directory.await_room()
        self._awaiting[partition] = directory
        return True

    def _can_others_lead(self, partition: Partition) -> bool:
        in_sync = None if partition.leading is None else partition.leading.in_sync
        if in_sync is None or in_sync.is_alone:
            return False
        return any(one in self._alter_partition.alive for one in in_sync.committed.isr if one != in_sync.broker)

    def reinstate(self) -> Iterator[None]:
        """Forget replicas whose disk has room again, so that the controller assigns their role."""
        for partition, directory in list(self._awaiting.items()):
            name = partition.topic_partition
            assert not partition.is_online, "a replica that awaits room is offline until it is made again"
            if directory.failure is not None or self._partitions.get(name) is not partition:
                del self._awaiting[partition]  # It is offline with its directory now, or was deleted.
            elif directory.has_room:
                del self._awaiting[partition]
                self._forget(name)
                self.changes += 1
                yield
