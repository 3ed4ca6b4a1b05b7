"""Leadership of one partition: its epoch, its followers, and the progress of its commitment.

A request that waits for a write keeps the leadership of that write.  After its end, the fate of the write is unknown.
"""

from __future__ import annotations

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_EPOCH, NO_OFFSET, BrokerId, Offset, TopicPartition
from odradek.core.kernel.cluster_view import ClusterView, PartitionInfo
from odradek.core.kernel.moment import Moment
from odradek.core.partition.follower_states import NO_BROKER_EPOCH, Eligible, Follower
from odradek.core.partition.in_sync_replicas import InSyncReplicas, not_a_replica_code
from odradek.core.partition.local_replica import LocalReplica
from odradek.log.log.log import Log


class Leadership:
    """Unbroken leadership of one partition; its leader epoch may rise as the ISR changes.

    Methods raise Refused where the protocol has an error code, and with `ended` once the leadership has ended.
    """

    def __init__(self, partition: LocalReplica, info: PartitionInfo, view: ClusterView) -> None:
        self.partition = partition
        self.positions = partition.positions
        self.epoch = info.leader_epoch
        self.in_sync: InSyncReplicas | None = None  # None without followers.
        self.ended: ErrorCode | None = None  # The error for requests that wait for a write.
        self._view = view

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

    @property
    def eligible(self) -> Eligible:
        """Return the brokers that may join an ISR, as far as this broker knows.

        Under ZooKeeper the brokers do not learn each other's broker epochs.
        """
        return dict.fromkeys(self._view.brokers, NO_BROKER_EPOCH)

    # Commitment.

    def follower(self, follower: BrokerId, leader_epoch: int = NO_EPOCH) -> Follower:
        """Return the state of a follower; raise Refused if it is not a replica.

        `leader_epoch` is the epoch in the follower's request.
        """
        if self.in_sync is None:
            raise Refused(not_a_replica_code(leader_epoch), f"broker {follower} has no replica of {self.name}")
        return self.in_sync.replica(follower, leader_epoch)

    @property
    def low_watermark(self) -> Offset:
        """The lowest log start offset of the live replicas; -1 if one is unknown."""
        start = self.log.start_offset
        return start if self.in_sync is None else self.in_sync.low_watermark(start, self._view.brokers)

    def advance(self, now: Moment) -> bool:
        """Advance the high watermark as far as the followers allow; return whether it has advanced."""
        return self.in_sync is not None and self.committed(NO_OFFSET, now)

    def committed(self, visible_end: Offset, now: Moment) -> bool:
        """Advance the high watermark to the progress of the ISR, or without followers to `visible_end`.

        This is the only rule of commitment.  With followers, a record is committed once it is written on all replicas
        that may be elected.  If that is the leader alone, the rule is the same as without followers.
        """
        if self.ended is not None:  # A fetch that was notified before has found its disk failed.
            return False
        if self.in_sync is not None:
            current = self.positions.high_watermark
            min_isr = self.partition.configs.min_insync_replicas
            end = self.log.end_offset
            if self.waits_for_disk:
                end = max(visible_end, self.positions.durable_end, current)
            visible_end = self.in_sync.high_watermark(end, current, now.steady, self.eligible, min_isr)
        return self.partition.advance_high_watermark(visible_end)

    @property
    def waits_for_disk(self) -> bool:
        """Return whether acks=all waits until a record is durable here, as no other replica is in sync."""
        is_alone = self.in_sync is None or self.in_sync.is_alone
        return is_alone and self.partition.configs.flush.before_acknowledging

    def check_min_isr(self, in_sync: InSyncReplicas) -> None:
        min_isr = self.partition.configs.min_insync_replicas
        if in_sync.is_under_min_isr(min_isr):
            text = f"ISR {in_sync.committed.isr} of {self.name} is insufficient for min.insync.replicas {min_isr}"
            raise Refused(ErrorCode.NOT_ENOUGH_REPLICAS, text)

    @property
    def has_min_isr(self) -> bool:
        """Return whether committed records are on at least min.insync.replicas replicas."""
        min_isr = self.partition.configs.min_insync_replicas
        return self.in_sync is None or not self.in_sync.is_under_min_isr_after_append(min_isr)
