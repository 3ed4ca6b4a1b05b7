"""Damaged replicas that leave the ISR, are truncated to the damage and fetch the rest again.

    damage is found ──> leave: offline, and the controller is notified
    LeaderAndIsr ──> KAFKA_STORAGE_ERROR: the controller shrinks the ISR, and elects another leader
    the metadata shows that ──> come_back: truncated, forgotten, and the controller is notified again
    LeaderAndIsr ──> the replica follows, and fetches from the damage on

A replica is truncated only after it has left the ISR: until then it may be elected, and all others would truncate
their logs to match.  That also holds for damage above the high watermark, because the leader counts every offset
that a follower in sync has fetched.  The replica stays and serves the rest while no other one can lead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping

from odradek.base.units import NO_BROKER, BrokerId, LeaderEpoch, Offset, TopicPartition
from odradek.core.alter_partition import AlterPartitionManager
from odradek.core.moment import Moment
from odradek.core.partition import Partition
from odradek.core.storage import Storage
from odradek.log.cut_places import first_damage
from odradek.log.directory import LogDirectory
from odradek.log.disk import DiskFailed
from odradek.log.log import Log
from odradek.log.truncation import truncate_to

_LOG = logging.getLogger(__name__)

# An ISR without this replica must have been seen so often, about a second apart: a proposal that was sent before the
# replica went offline could still add it.
LOOKS = 3


class AwaitingReplica:
    """A replica that is offline until another one leads without it."""

    def __init__(self, directory: LogDirectory, epoch: LeaderEpoch) -> None:
        self.directory = directory
        self.epoch = epoch  # The leader epoch in which the replica went offline.
        self.is_known = False  # The controller has been answered that the replica is offline.
        self.looks_out = self.looks_last = 0


class DamagedReplicas:
    """The damaged replicas of one broker.

    `gone` is called for a replica that went offline, `forget` for one that is to be made anew.
    """

    def __init__(
        self,
        broker: BrokerId,
        storage: Storage,
        partitions: Mapping[TopicPartition, Partition],
        alter_partition: AlterPartitionManager,
        *,
        gone: Callable[[TopicPartition, Moment], None],
        forget: Callable[[TopicPartition], object],
    ) -> None:
        self._id = broker
        self._storage = storage
        self._partitions = partitions
        self._alter_partition = alter_partition
        self._gone = gone
        self._forget = forget
        self._awaiting: dict[Partition, AwaitingReplica] = {}
        self.changes = 0  # How many went, and came back: the controller is notified of each.

    def is_awaiting(self, partition: Partition) -> bool:
        """Return True if the replica is offline for its damage alone."""
        return partition in self._awaiting

    def answered(self, partition: Partition) -> None:
        """Note that the controller is being answered that the replica is offline."""
        awaiting = self._awaiting.get(partition)
        if awaiting is not None:
            awaiting.is_known = True

    def leave(self, now: Moment) -> Iterator[None]:
        """Take damaged replicas offline where another one can lead.  Yield after each; about once a second."""
        for name, directory in self._storage.damaged():
            partition = self._partitions.get(name)
            if partition is None or not partition.is_online or not self._others_may_lead(partition):
                continue
            damaged = _first_damaged(directory.logs[name])
            if damaged is None or partition.log is not directory.logs[name]:
                continue
            text = "%s is damaged at offset %d: it leaves the in-sync replicas, and is fetched again from there"
            _LOG.error(text, name, damaged)
            partition.take_offline()
            self._awaiting[partition] = AwaitingReplica(directory, partition.info.leader_epoch)
            self.changes += 1
            self._gone(name, now)
            yield

    def _others_may_lead(self, partition: Partition) -> bool:
        alive = self._alter_partition.alive
        if partition.leading is None:
            return partition.info.leader not in (self._id, NO_BROKER) and partition.info.leader in alive
        in_sync = partition.leading.in_sync
        if in_sync is None or in_sync.is_alone:
            return False
        return any(one in alive for one in in_sync.committed.isr if one != self._id)

    def come_back(self, now: Moment) -> Iterator[None]:
        """Truncate replicas that others lead by now, and forget them, so that the controller assigns them again."""
        for partition, awaiting in list(self._awaiting.items()):
            name = partition.topic_partition
            if awaiting.directory.failure is not None or self._partitions.get(name) is not partition:
                del self._awaiting[partition]  # It is offline with its directory now, or was deleted.
            elif self._may_come_back(name, awaiting, now):
                del self._awaiting[partition]
                self._forget(name)
                self.changes += 1
                yield

    def _may_come_back(self, name: TopicPartition, awaiting: AwaitingReplica, now: Moment) -> bool:
        """Return True once the replica is out of the ISR and truncated, or turns out to be the last in sync."""
        info = self._alter_partition.metadata_of(name)
        is_out = info is not None and self._id not in info.isr and info.leader not in (self._id, NO_BROKER)
        is_last = info is not None and info.isr == (self._id,) and info.leader_epoch > awaiting.epoch
        awaiting.looks_out = awaiting.looks_out + 1 if is_out and awaiting.is_known else 0
        awaiting.looks_last = awaiting.looks_last + 1 if is_last and awaiting.is_known else 0
        if awaiting.looks_out >= LOOKS:
            return truncate_to_damage(name, awaiting.directory.logs.get(name), now)
        if awaiting.looks_last >= LOOKS:
            _LOG.warning("%s is damaged, and no other replica is in sync: the rest of it is served", name)
            return True
        return False


def truncate_to_damage(name: TopicPartition, log: Log | None, now: Moment) -> bool:
    """Truncate a log to its first damage; return False if the disk refuses that for now."""
    if log is None:
        return True
    try:
        damaged = _first_damaged(log)
        if damaged is not None:
            truncate_to(log, damaged, now.wall)
    except DiskFailed as failed:
        _LOG.warning("%s could not be truncated to its damage, and will be: %s", name, failed)
        return False
    if damaged is not None:
        _LOG.warning("%s was truncated to offset %d, where it was damaged", name, log.end_offset)
    return True


def _first_damaged(log: Log) -> Offset | None:
    """Return the first offset that a damage hides; None if retention has already deleted all that is hidden."""
    for segment in log.segments:
        found = first_damage(segment)
        if found is not None and found[0].following > log.start_offset:
            return found[1]
    return None
