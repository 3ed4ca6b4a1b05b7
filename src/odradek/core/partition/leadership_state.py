"""Leadership of one partition: its epoch, its followers, and the progress of its commitment.

A request that waits for a write keeps the leadership of that write.  After its end, the fate of the write is unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_EPOCH, NO_OFFSET, BrokerId, Offset, TopicPartition
from odradek.core.kernel.cluster_view import PartitionInfo
from odradek.core.kernel.moment import Moment
from odradek.core.partition.alter_partition_manager import state_of
from odradek.core.partition.follower_states import NO_BROKER_EPOCH, Follower
from odradek.core.partition.in_sync_replicas import InSync, stranger_code
from odradek.core.partition.positions import Positions
from odradek.log.log.log import Log

if TYPE_CHECKING:
    from odradek.core.partition.partition import Partition


class Leadership:
    """Unbroken leadership of one partition; its leader epoch may rise as the ISR changes.

    Methods raise Refused where the protocol has an error code, and with `ended` once the leadership has ended.
    """

    def __init__(self, partition: Partition, info: PartitionInfo) -> None:
        self.partition = partition
        self.positions = partition.positions
        self.epoch = info.leader_epoch
        self.in_sync: InSync | None = None  # None without followers.
        self.ended: ErrorCode | None = None  # The error for requests that wait for a write.

    @property
    def name(self) -> TopicPartition:
        return self.partition.topic_partition

    @property
    def log(self) -> Log:
        """The log.  Raises Refused once the leadership has ended, as it may be a follower's log by then."""
        if self.ended is not None:
            raise Refused(self.ended, f"this broker no longer leads {self.name}")
        return self.partition.log

    @property
    def is_new(self) -> bool:
        """Return whether the leader epoch has no records: the first write also updates the epoch file."""
        return self.ended is None and self.partition.log.epochs.latest != self.epoch

    def continue_leadership(self, info: PartitionInfo, now: Moment) -> None:
        """Continue to lead, in another epoch or with other replicas."""
        assert info.leader_epoch >= self.epoch, "leader epochs never decrease"
        self.epoch = info.leader_epoch
        self.set_followers(info, now)

    def set_followers(self, info: PartitionInfo, now: Moment) -> None:
        """Apply the replicas and the ISR, and advance the high watermark as far as they allow."""
        manager = self.partition.alter_partition
        if len(info.replicas) <= 1:
            if self.in_sync is not None:
                self.in_sync = None
                manager.forget(self)
                self.partition.advance_high_watermark(self.log.end_offset)  # There are no followers to wait for.
        elif self.in_sync is None:
            self.in_sync = manager.add_leader(self, info, self.log.end_offset, now)
        else:
            self.in_sync.apply_leader_and_isr(state_of(info), info.replicas, self.log.end_offset, now.steady)
            manager.submit(self, now)
        manager.sync_if_alone(self)
        self.advance(now)

    def end_leadership(self, code: ErrorCode) -> None:
        """End the leadership; requests that wait for a write fail with `code`."""
        assert self.ended is None, "a leadership ends once"
        if self.in_sync is not None:
            self.partition.alter_partition.forget(self)
        self.ended = code
        # The positions of the partition continue under the next leader.
        self.positions = Positions(self.positions.high_watermark, self.positions.durable_end)

    # Commitment.

    def follower(self, follower: BrokerId, leader_epoch: int = NO_EPOCH) -> Follower:
        """Return the state of a follower; raise Refused if it is not a replica.

        `leader_epoch` is the epoch in the follower's request.
        """
        if self.in_sync is None:
            raise Refused(stranger_code(leader_epoch), f"broker {follower} has no replica of {self.name}")
        return self.in_sync.replica(follower, leader_epoch)

    def fetched(
        self,
        follower: BrokerId,
        offset: Offset,
        log_start: Offset,
        now: Moment,
        *,
        broker_epoch: int = NO_BROKER_EPOCH,
        leader_epoch: int = NO_EPOCH,
    ) -> bool:
        """Record that a follower has all records from `log_start` up to `offset`.

        Returns True if the high watermark or the follower's log start offset has advanced, since requests may wait for
        that.  The caller has checked the follower's leader epoch, and that its log does not diverge.  Raises Refused if
        it is not a replica, or has restarted since.
        """
        known = self.follower(follower, leader_epoch)
        before, started = known.log_end_offset, known.log_start_offset < log_start
        in_sync, manager, end = self.in_sync, self.partition.alter_partition, self.log.end_offset
        assert in_sync is not None, "a leader with a follower maintains an ISR"
        eligible = manager.eligible
        # A lower offset may come from another process than the session's.  Progress of the old process counts up to
        # this fetch, and live sessions report theirs again.
        if offset < before:
            self.partition.end_moved()
        in_sync.fetched(follower, offset, log_start, end, now.steady, eligible=eligible, broker_epoch=broker_epoch)
        if in_sync.expand(follower, self.positions.high_watermark, eligible) is not None:
            manager.submit(self, now)
        return self.advance(now) or started

    @property
    def low_watermark(self) -> Offset:
        """The lowest log start offset of the live replicas; -1 if one is unknown."""
        start, alive = self.log.start_offset, self.partition.alter_partition.alive
        return start if self.in_sync is None else self.in_sync.low_watermark(start, alive)

    def advance(self, now: Moment) -> bool:
        """Advance the high watermark as far as the followers allow; return whether it has advanced."""
        return self.in_sync is not None and self.committed(NO_OFFSET, now)

    def committed(self, visible_end: Offset, now: Moment) -> bool:
        """Advance the high watermark to the progress of the ISR, or without followers to `visible_end`.

        This is the only rule of commitment.  With followers, a record is committed once it is written on all replicas
        that may be elected.  If that is the leader alone, the rule is the same as without followers.
        """
        if self.in_sync is not None:
            manager, current = self.partition.alter_partition, self.positions.high_watermark
            min_isr = self.partition.configs.min_insync_replicas
            end = self.log.end_offset
            if self.waits_for_disk:
                end = max(visible_end, self.positions.durable_end, current)
            visible_end = self.in_sync.high_watermark(end, current, now.steady, manager.eligible, min_isr)
        return self.partition.advance_high_watermark(visible_end)

    @property
    def waits_for_disk(self) -> bool:
        """Return whether acks=all waits until a record is durable here, as no other replica is in sync."""
        is_alone = self.in_sync is None or self.in_sync.is_alone
        return is_alone and self.partition.configs.flush.before_acknowledging

    def check_min_isr(self, in_sync: InSync) -> None:
        min_isr = self.partition.configs.min_insync_replicas
        if in_sync.is_under_min_isr(min_isr):
            text = f"ISR {in_sync.committed.isr} of {self.name} is insufficient for min.insync.replicas {min_isr}"
            raise Refused(ErrorCode.NOT_ENOUGH_REPLICAS, text)

    @property
    def has_min_isr(self) -> bool:
        """Return whether committed records are on at least min.insync.replicas replicas."""
        min_isr = self.partition.configs.min_insync_replicas
        return self.in_sync is None or not self.in_sync.is_under_min_isr_after_append(min_isr)
