"""Damaged replicas that leave the ISR, are truncated to the damage and fetch the rest again.

    damage is found ──> leave: offline, and the controller is notified
    LeaderAndIsr ──> KAFKA_STORAGE_ERROR: the controller shrinks the ISR, and elects another leader
    the metadata shows that ──> reinstate: truncated, forgotten, and the controller is notified again
                                   (what is cut off is set aside before, by a thread: log/log/damage_cut.py)
    LeaderAndIsr ──> the replica follows, and fetches from the damage on

A replica is truncated only after it has left the ISR: until then it may be elected, and all others would truncate
their logs to match.  That also holds for damage above the high watermark, because the leader counts every offset
that a follower in sync has fetched.  The replica stays and serves the rest while no other one can lead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping

from odradek.base.units import NO_BROKER, SECOND_MS, BrokerId, LeaderEpoch, Offset, TopicPartition
from odradek.core.kernel.moment import Moment
from odradek.core.partition.alter_partition_manager import AlterPartitionManager
from odradek.core.partition.partition import Partition
from odradek.core.partition.storage import Storage
from odradek.log.directory.directory import LogDirectory
from odradek.log.files.disk import DiskFailed
from odradek.log.log.damage_cut import DamageCut
from odradek.log.log.log import Log
from odradek.log.segment.cut_places import first_damage

_LOG = logging.getLogger(__name__)

# An ISR without this replica must have been seen so often, about a second apart: a proposal that was sent before the
# replica went offline could still add it.
CHECKS_MIN = 3
RETRY_MS = 60 * SECOND_MS  # After the disk had no room for a copy: each takes time, and all the room there is.

_Place = tuple[Offset, str]  # The first offset that a damage hides, and what is wrong.


class AwaitingReplica:
    """A replica that is offline until another one leads without it."""

    def __init__(self, directory: LogDirectory, epoch: LeaderEpoch) -> None:
        self.directory = directory
        self.epoch = epoch  # The leader epoch in which the replica went offline.
        self.is_known = False  # The controller has been answered that the replica is offline.
        self.checks_outside_isr = self.checks_as_last = 0
        self.cut: DamageCut | None = None  # The cut that was begun.
        self.retry_at = 0  # On the steady clock: the disk has refused the last cut.
        self._is_failure_logged = False

    def failed(self, name: TopicPartition, failed: DiskFailed, now: Moment) -> None:
        """Note that the disk has refused to set aside what is cut off; the broker's log is told once."""
        self.retry_at = now.steady + RETRY_MS
        if not self._is_failure_logged:
            text = "%s stays offline: failed to quarantine its log from the damage on (will retry): %s"
            _LOG.error(text, name, failed)
        self._is_failure_logged = True

    def withdraw(self) -> None:
        """Give up a cut that no thread is at yet."""
        if self.cut is not None:
            self.cut.is_withdrawn = True


class DamagedReplicas:
    """The damaged replicas of one broker.

    `on_offline` is called for a replica that went offline, `forget` for one that is to be made anew.
    """

    def __init__(
        self,
        broker: BrokerId,
        storage: Storage,
        partitions: Mapping[TopicPartition, Partition],
        alter_partition: AlterPartitionManager,
        *,
        on_offline: Callable[[TopicPartition, Moment], None],
        forget: Callable[[TopicPartition], object],
    ) -> None:
        self._id = broker
        self._storage = storage
        self._partitions = partitions
        self._alter_partition = alter_partition
        self._on_offline = on_offline
        self._forget = forget
        self._awaiting: dict[Partition, AwaitingReplica] = {}
        self._cuts: list[DamageCut] = []  # That no thread has been asked to run yet.
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
            if partition is None or not partition.is_online or not self._can_others_lead(partition):
                continue
            damaged = _first_damaged(directory.logs[name])
            if damaged is None or partition.log is not directory.logs[name]:
                continue
            text = "%s is damaged at offset %d: it leaves the ISR and fetches again from there"
            _LOG.error(text, name, damaged[0])
            partition.take_offline()
            assert partition not in self._awaiting, "a replica leaves the ISR for its damage once"
            self._awaiting[partition] = AwaitingReplica(directory, partition.info.leader_epoch)
            self.changes += 1
            self._on_offline(name, now)
            yield

    def _can_others_lead(self, partition: Partition) -> bool:
        alive = self._alter_partition.alive
        if partition.leading is None:
            return partition.info.leader not in (self._id, NO_BROKER) and partition.info.leader in alive
        in_sync = partition.leading.in_sync
        if in_sync is None or in_sync.is_alone:
            return False
        return any(one in alive for one in in_sync.committed.isr if one != self._id)

    def reinstate(self, now: Moment) -> Iterator[None]:
        """Truncate replicas that others lead by now, and forget them, so that the controller assigns them again."""
        for partition, awaiting in list(self._awaiting.items()):
            name = partition.topic_partition
            assert not partition.is_online, "a damaged replica is offline until it is made again"
            if awaiting.directory.failure is not None or self._partitions.get(name) is not partition:
                del self._awaiting[partition]  # It is offline with its directory now, or was deleted.
                awaiting.withdraw()
            elif self._can_reinstate(name, awaiting, now):
                del self._awaiting[partition]
                awaiting.withdraw()
                self._forget(name)
                self.changes += 1
                yield

    def _can_reinstate(self, name: TopicPartition, awaiting: AwaitingReplica, now: Moment) -> bool:
        """Return True once the replica is out of the ISR and truncated, or turns out to be the last in sync."""
        info = self._alter_partition.metadata_of(name)
        is_out = info is not None and self._id not in info.isr and info.leader not in (self._id, NO_BROKER)
        is_last = info is not None and info.isr == (self._id,) and info.leader_epoch > awaiting.epoch
        awaiting.checks_outside_isr = awaiting.checks_outside_isr + 1 if is_out and awaiting.is_known else 0
        awaiting.checks_as_last = awaiting.checks_as_last + 1 if is_last and awaiting.is_known else 0
        assert not (awaiting.checks_outside_isr and awaiting.checks_as_last), "the last member of an ISR is in it"
        if awaiting.checks_outside_isr >= CHECKS_MIN:
            return self._truncate(name, awaiting, now)
        if awaiting.checks_as_last >= CHECKS_MIN:
            _LOG.warning("%s is damaged and no other replica is in sync: the undamaged records are served", name)
            return True
        return False

    def _truncate(self, name: TopicPartition, awaiting: AwaitingReplica, now: Moment) -> bool:
        """Go on with setting aside what a log has from its damage on; return True once it is truncated."""
        log = awaiting.directory.logs.get(name)
        if log is None:
            return True
        if now.steady < awaiting.retry_at or (awaiting.cut is not None and not awaiting.cut.is_over):
            return False
        try:
            damaged = _first_damaged(log)
            return damaged is None or self._cut(name, log, damaged, awaiting, now)
        except DiskFailed as failed:
            awaiting.failed(name, failed, now)
            return False

    def _cut(self, name: TopicPartition, log: Log, damaged: _Place, awaiting: AwaitingReplica, now: Moment) -> bool:
        """Begin a cut, or finish the one that was begun.  Raises DiskFailed with nothing cut off."""
        cut, awaiting.cut = awaiting.cut, None
        assert cut is None or cut.is_over, "no thread works on the cut"
        if cut is not None and cut.failure is not None:
            raise cut.failure
        if cut is not None and cut.offset == damaged[0] and cut.finish(now.wall):
            _LOG.warning("%s: %s", name, cut.aside if cut.aside.paths else f"truncated to offset {log.end_offset}")
            return True
        awaiting.cut = DamageCut(log, *damaged)
        self._cuts.append(awaiting.cut)
        return False

    def take_cuts(self) -> list[DamageCut]:
        """Return the cuts that were begun since the last call: a thread is to run them."""
        cuts, self._cuts = self._cuts, []
        return cuts


def _first_damaged(log: Log) -> _Place | None:
    """Return the first offset that a damage hides, and why; None if retention has deleted all that is hidden."""
    for segment in log.segments:
        found = first_damage(segment)
        if found is not None and found[0].following > log.start_offset:
            damage, offset = found
            return offset, f"byte {damage.start} of {segment.name}: {damage.why}"
    return None
