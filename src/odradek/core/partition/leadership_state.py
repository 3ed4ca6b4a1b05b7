"""What it is to lead a partition: in which epoch, with which followers, and how far what is written is committed.

Whoever waits for a write holds on to the leadership it was made in: once that has ended nobody knows whether it stays.
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
    """The leadership of one partition, without a break; its leader epoch may rise meanwhile, as the ISR changes.

    Methods raise Refused for what the protocol has a code for, and with `ended` once it has ended.
    """

    def __init__(self, partition: Partition, info: PartitionInfo) -> None:
        self.partition = partition
        self.positions = partition.positions
        self.epoch = info.leader_epoch
        self.in_sync: InSync | None = None  # None without followers.
        self.ended: ErrorCode | None = None  # What who waits for a write is told.

    @property
    def name(self) -> TopicPartition:
        return self.partition.topic_partition

    @property
    def log(self) -> Log:
        """The log.  Raises Refused once the leadership has ended: it may be a follower's by then."""
        if self.ended is not None:
            raise Refused(self.ended, f"{self.name} is not led here any more")
        return self.partition.log

    @property
    def is_new(self) -> bool:
        """True if nothing was written in the leader's epoch yet: the first write goes to the epochs' file, too."""
        return self.ended is None and self.partition.log.epochs.latest != self.epoch

    def goes_on(self, info: PartitionInfo, now: Moment) -> None:
        """Leads on, in another epoch or with other replicas."""
        assert info.leader_epoch >= self.epoch, "leader epochs rise"
        self.epoch = info.leader_epoch
        self.set_followers(info, now)

    def set_followers(self, info: PartitionInfo, now: Moment) -> None:
        """Takes over the replicas and the ISR, and advances the high watermark as far as these let it."""
        manager = self.partition.alter_partition
        if len(info.replicas) <= 1:
            if self.in_sync is not None:
                self.in_sync = None
                manager.forget(self)
                self.partition.advance_high_watermark(self.log.end_offset)  # There is nobody to wait for.
        elif self.in_sync is None:
            self.in_sync = manager.begin(self, info, self.log.end_offset, now)
        else:
            self.in_sync.told(state_of(info), info.replicas, self.log.end_offset, now.steady)
            manager.submit(self, now)
        manager.sync_if_alone(self)
        self.advance(now)

    def end(self, code: ErrorCode) -> None:
        """Ends it; who waits for a write is told `code`."""
        assert self.ended is None, "it ends once"
        if self.in_sync is not None:
            self.partition.alter_partition.forget(self)
        self.ended = code
        # The partition's go on, as another leader says.
        self.positions = Positions(self.positions.high_watermark, self.positions.durable_end)

    # Commitment.

    def follower(self, follower: BrokerId, leader_epoch: int = NO_EPOCH) -> Follower:
        """Returns what is known of a follower.  Raises Refused if it is no replica; `leader_epoch` is what it names."""
        if self.in_sync is None:
            raise Refused(stranger_code(leader_epoch), f"{self.name} has no replica on broker {follower}")
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
        """Takes in that a follower has all from `log_start` up to `offset`.

        Returns True if the high watermark has advanced, or its log begins further on: somebody may wait for that.  Its
        leader epoch was checked, and that its log does not part from ours.  Raises Refused if it is no replica, or has
        restarted since.
        """
        known = self.follower(follower, leader_epoch)
        before, started = known.log_end_offset, known.log_start_offset < log_start
        in_sync, manager, end = self.in_sync, self.partition.alter_partition, self.log.end_offset
        assert in_sync is not None, "it has a follower"
        eligible = manager.eligible
        # By another process than that of its session, maybe: what that had, and until when, counts up to here, and who
        # is there still says so again.
        if offset < before:
            self.partition.end_moved()
        in_sync.fetched(follower, offset, log_start, end, now.steady, eligible=eligible, broker_epoch=broker_epoch)
        if in_sync.expand(follower, self.positions.high_watermark, eligible) is not None:
            manager.submit(self, now)
        return self.advance(now) or started

    @property
    def low_watermark(self) -> Offset:
        """The least log start offset of the live replicas; -1 if one is not known yet."""
        start, alive = self.log.start_offset, self.partition.alter_partition.alive
        return start if self.in_sync is None else self.in_sync.low_watermark(start, alive)

    def advance(self, now: Moment) -> bool:
        """Advances the high watermark as far as followers let it; returns True if it has advanced."""
        return self.in_sync is not None and self.committed(NO_OFFSET, now)

    def committed(self, visible_end: Offset, now: Moment) -> bool:
        """Advances the high watermark: with followers as far as the ISR has come, without to `visible_end`.

        The one rule of commitment.  With followers a record counts once it is written on all that may be elected; if
        that is the leader alone, as without followers.
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
        """True if a record counts for acks=all only once it is durable here, as there is no other replica in sync."""
        is_alone = self.in_sync is None or self.in_sync.is_alone
        return is_alone and self.partition.configs.flush.before_acknowledging

    def check_min_isr(self, in_sync: InSync) -> None:
        min_isr = self.partition.configs.min_insync_replicas
        if in_sync.is_under_min_isr(min_isr):
            text = f"{self.name} has the in-sync replicas {in_sync.committed.isr}, min.insync.replicas is {min_isr}"
            raise Refused(ErrorCode.NOT_ENOUGH_REPLICAS, text)

    @property
    def has_min_isr(self) -> bool:
        """False if what is committed now lies on fewer replicas than min.insync.replicas."""
        min_isr = self.partition.configs.min_insync_replicas
        return self.in_sync is None or not self.in_sync.is_under_min_isr_after_append(min_isr)
