"""Leaders that can't write any more, as their disk has failed or is full, while another replica may lead.

    Partition.disk_failed ──> AlterPartitionManager.unable ──> hand_over: offline, and the controller is told
    the disk has room again ──> come_back: forgotten, and the controller is told, as at a start

The controller asks which replicas this broker can reach, by a LeaderAndIsr that names them all.  Those that are offline
it takes out of the ISR, and another one leads.  A log that was lost to a failing disk is offline until the next start.
One whose disk was full is whole: as soon as there is room it follows whoever leads by then.
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
    """Those of one broker.  `lost` is called for a leadership that is over, `forget` for a replica to be made anew."""

    def __init__(
        self,
        storage: Storage,
        partitions: Mapping[TopicPartition, Partition],
        alter_partition: AlterPartitionManager,
        *,
        lost: Callable[[TopicPartition, Moment], None],
        forget: Callable[[TopicPartition], object],
    ) -> None:
        self._storage = storage
        self._partitions = partitions
        self._alter_partition = alter_partition
        self._lost = lost
        self._forget = forget
        # A leader that resigned for want of room stays away until there is room.  Two of them would otherwise hand the
        # partition back and forth, each in sync at once, because nothing is written that it could lack.
        self._awaiting: dict[Partition, LogDirectory] = {}  # Replicas that come back when there is room.
        self.changes = 0  # How many went, and came back: the controller is to hear of each.

    def is_awaiting_room(self, partition: Partition) -> bool:
        """True if the replica is offline for want of room alone."""
        return partition in self._awaiting

    def hand_over(self, now: Moment) -> Iterator[None]:
        """Has the controller find other leaders.  Yields after each; about once a second."""
        manager = self._alter_partition
        # The controller learns only of failed directories.  With one failed log, this broker would otherwise stay the
        # leader and reject every write, with healthy replicas in the ISR.
        unable, manager.unable = manager.unable, {}
        for name in unable:
            partition = self._partitions.get(name)
            if partition is None or (partition.is_online and not self._give_up(name, partition)):
                continue
            self.changes += 1
            self._lost(name, now)
            yield

    def _give_up(self, name: TopicPartition, partition: Partition) -> bool:
        """Takes a leader offline that has no room; returns False if it has some by now, or nobody else may lead."""
        directory = self._storage.directory_of(name)
        if directory is None or not partition.has_told_full or not self._others_may_lead(partition):
            return False
        _LOG.error("%s has no room here: another replica in sync leads, and this one follows when there is some", name)
        partition.take_offline()
        directory.await_room()
        self._awaiting[partition] = directory
        return True

    def _others_may_lead(self, partition: Partition) -> bool:
        in_sync = None if partition.leading is None else partition.leading.in_sync
        if in_sync is None or in_sync.is_alone:
            return False
        return any(one in self._alter_partition.alive for one in in_sync.committed.isr if one != in_sync.broker)

    def come_back(self) -> Iterator[None]:
        """Forgets replicas whose disk has room again, so that the controller says what they are now."""
        for partition, directory in list(self._awaiting.items()):
            name = partition.topic_partition
            if directory.failure is not None or self._partitions.get(name) is not partition:
                del self._awaiting[partition]  # It is offline with its directory now, or was deleted.
            elif directory.has_room:
                del self._awaiting[partition]
                self._forget(name)
                self.changes += 1
                yield
