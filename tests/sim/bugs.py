"""Bugs injected into replication by patches; the simulator has to find all of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

import pytest

from odradek.base.units import BrokerId, LeaderEpoch, Offset, TimestampMs, TopicPartition
from odradek.core.broker.controlled import ControlRequestHandler
from odradek.core.controller import partition_leader_election as elections
from odradek.core.controller.partition_leader_election import ElectionResult
from odradek.core.kernel.cluster_view import LeaderAndIsr
from odradek.core.kernel.moment import Moment
from odradek.core.partition.damaged_replicas import AwaitingReplica, DamagedReplicas
from odradek.core.partition.in_sync_replicas import InSyncReplicas
from odradek.core.partition.leaders_without_disk import UnableLeaders
from odradek.core.partition.leadership_state import Leadership
from odradek.core.partition.partition import Partition
from odradek.core.partition.staging import Append
from odradek.core.partition.storage import Storage
from odradek.core.replication.follower import Following
from odradek.core.replication.follower_log import truncate_log
from odradek.log.directory.directory import LogDirectory
from odradek.log.files.disk import DiskFailed
from odradek.log.log.log import Log
from odradek.log.producers.producer_state import ProducerStateEntry
from odradek.log.producers.snapshots import Snapshots
from odradek.record.record_batch import Batch
from sim.simclock import WALL_BEGIN_MS
from sim.simreplicated import SimReplicated

NOW = TimestampMs(WALL_BEGIN_MS)

Bug = Callable[[pytest.MonkeyPatch], None]


def high_watermark_advances_too_early(patch: pytest.MonkeyPatch) -> None:
    """Advance the high watermark to the leader's log end, or as far as a proposed ISR would allow."""
    patch.setattr(InSyncReplicas, "high_watermark", lambda self, own_end, *others: own_end)


def logs_are_cut_at_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """Truncate followers to the high watermark, as before KIP-101, so that they may lose committed records."""
    begin = Following.__init__

    def cut(self: Following, partition: Partition, *arguments: Any, **more: Any) -> None:
        with suppress(DiskFailed):  # A full disk.
            truncate_log(partition, partition.positions.high_watermark, NOW)
        begin(self, partition, *arguments, **more)

    patch.setattr(Following, "__init__", cut)


def logs_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    """Let a follower continue after records that its leader lacks."""
    patch.setattr(Partition, "diverging_epoch", lambda *_: None)


def controllers_are_not_fenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ControlRequestHandler, "check", lambda self, sent: None)


def isr_admits_lagging_followers(patch: pytest.MonkeyPatch) -> None:
    def expand(self: InSyncReplicas, follower: BrokerId, *_: object) -> LeaderAndIsr | None:
        if self.pending is not None or follower in self.committed.isr:
            return None
        self.maximal_isr = (*self.committed.isr, follower)
        return self._propose(self.maximal_isr)

    patch.setattr(InSyncReplicas, "expand", expand)


def a_write_is_safe_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Append, "is_safe", True)


def followers_forget_producers(patch: pytest.MonkeyPatch) -> None:
    append = Log.append_as_follower

    def forgetful(self: Log, batches: Sequence[Batch], now: TimestampMs) -> None:
        append(self, batches, now)
        self.producers.expire(TimestampMs(1 << 60), 1)

    patch.setattr(Log, "append_as_follower", forgetful)


def lone_leader_does_not_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leadership, "waits_for_disk", False)


def broker_registers_after_power_loss(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimReplicated, "may_register", lambda self: True)


def missing_logs_are_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Storage, "missing_replicas", lambda self, replicas: [])


def full_leader_is_never_reinstated(patch: pytest.MonkeyPatch) -> None:
    """Never reinstate a leader that resigned because its disk was full."""
    patch.setattr(UnableLeaders, "reinstate", lambda self: iter(()))


def damaged_leader_does_not_resign(patch: pytest.MonkeyPatch) -> None:
    """Keep a leader leading although it knows of damage in its log."""
    patch.setattr(DamagedReplicas, "leave", lambda *_: iter(()))


def damaged_replica_is_truncated_at_once(patch: pytest.MonkeyPatch) -> None:
    """Truncate and reinstate a damaged replica while it may still be elected."""

    def at_once(replicas: DamagedReplicas, name: TopicPartition, awaiting: AwaitingReplica, now: Moment) -> bool:
        replicas._truncate(name, awaiting, now)
        for cut in replicas.take_cuts():
            cut.run()
        return replicas._truncate(name, awaiting, now)

    patch.setattr(DamagedReplicas, "_can_reinstate", at_once)


def unopened_log_is_never_reopened(patch: pytest.MonkeyPatch) -> None:
    """Never reopen a log that could not be opened at startup because the disk was full."""
    patch.setattr(LogDirectory, "retry_open", lambda *_: None)


def proposed_isr_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """Compute the high watermark from the committed ISR, although a larger one may be in force (KIP-497)."""
    high_watermark = InSyncReplicas.high_watermark

    def early(self: InSyncReplicas, *arguments: Any) -> Offset:
        maximal, self.maximal_isr = self.maximal_isr, self.committed.isr
        try:
            return high_watermark(self, *arguments)
        finally:
            self.maximal_isr = maximal

    patch.setattr(InSyncReplicas, "high_watermark", early)


def leader_epochs_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    """Accept and count fetches by followers in an older epoch (KIP-101, KIP-320)."""
    patch.setattr(Partition, "check_leader_epoch", lambda self, epoch: None)


def fetches_lack_last_fetched_epoch(patch: pytest.MonkeyPatch) -> None:
    """Look up the point of divergence only when a follower starts to follow, as before KIP-595."""
    begin = Following.__init__

    def old(self: Following, *arguments: Any, diverging_in_fetch: bool) -> None:
        begin(self, *arguments, diverging_in_fetch=False)

    patch.setattr(Following, "__init__", old)
    patch.setattr(Partition, "diverging_epoch", lambda *_: None)


def epoch_end_lacks_its_epoch(patch: pytest.MonkeyPatch) -> None:
    """Omit the epoch in the response, as before KIP-279.

    The follower then takes the end offset for that of the requested epoch.
    """

    def diverging(self: Partition, last_fetched: int, offset: int) -> tuple[LeaderEpoch, Offset] | None:
        epoch, end = self.end_of_epoch(LeaderEpoch(last_fetched))
        return (LeaderEpoch(last_fetched), end) if epoch >= 0 and end < offset else None

    patch.setattr(Partition, "diverging_epoch", diverging)


def snapshots_keep_only_the_last_batch(patch: pytest.MonkeyPatch) -> None:
    """Store only the last batch of each producer in snapshots, as Kafka does."""
    write = Snapshots.write

    def last(self: Snapshots, offset: Offset, producers: Collection[ProducerStateEntry]) -> None:
        write(self, offset, [one._replace(batches=one.batches[-1:]) for one in producers])

    patch.setattr(Snapshots, "write", last)


def elections_are_always_unclean(patch: pytest.MonkeyPatch) -> None:
    """Elect replicas that are not in sync, although no configuration allows it."""
    for_offline = elections.for_offline

    def unclean(*arguments: Any, may_be_unclean: bool, **more: Any) -> ElectionResult | None:
        return for_offline(*arguments, may_be_unclean=True, **more)

    patch.setattr(elections, "for_offline", unclean)
