"""Replica of a partition on this broker, whoever leads it: its log, its positions and the fetches that wait for it.

Partition adds the role.  Only this class advances the high watermark.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.tuples import new_tuple
from odradek.base.units import Offset, TimestampMs, TopicPartition
from odradek.core.configs.topic_configs import TopicConfigs
from odradek.core.fetch.disk_waits import ColdRead
from odradek.core.fetch.fetch_sessions import Watchers
from odradek.core.kernel.cluster_view import PartitionInfo
from odradek.core.partition.positions import Positions
from odradek.log.files.disk import EMPTY_SLICE, DiskFailed, FileSlice
from odradek.log.files.disk_failures import LogDamaged
from odradek.log.files.page_cache import NotCached
from odradek.log.log.log import Log
from odradek.log.log.retention import advance_start, delete_below_start, delete_old_segments, expired_upto
from odradek.log.log.timestamp_search import begin_search
from odradek.log.segment.search import Search
from odradek.log.segment.transaction_index import AbortedTxn


class LogReadInfo(NamedTuple):
    """Result of a fetch from one partition."""

    records: FileSlice
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    aborted: Sequence[AbortedTxn] = ()  # The aborted transactions that overlap the records, for read_committed.


class LocalReplica:
    """Log and positions of one replica.  Its methods raise Refused where the protocol has an error code."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        log: Log | None,
        info: PartitionInfo,
        configs: TopicConfigs,
        high_watermark: Offset | None,
    ) -> None:
        """Create the replica over its log, if there is one.

        `high_watermark` is the last known one; without other replicas the durable end takes its place.
        """
        self.topic_partition = topic_partition
        self._log = log
        self.has_logged_full = False  # Until a write succeeds again.
        self.info = info
        self.configs = configs
        self.watchers: Watchers = {}  # Partitions of fetch sessions, notified once of a change.
        self.end_watchers: Watchers = {}  # Partitions of followers' sessions, also notified of appends.
        durable = log.recovery_point if log else Offset(0)
        visible = durable if high_watermark is None else high_watermark
        self.positions = Positions(high_watermark=visible, durable_end=durable)
        if log is not None:
            assert self.positions.are_within(log.start_offset, log.end_offset), "the high watermark is within the log"
            log.producers.high_watermark_advanced(visible)

    # For Partition, which knows the leadership that these depend on.

    @abstractmethod
    def on_log_end_moved(self) -> None:
        """Notify followers' fetches of a change that consumers may not see: a moved log end offset."""

    @abstractmethod
    def disk_failed(self, failed: DiskFailed) -> Refused:
        """Handle a failed read or write; return the error for the request."""

    @abstractmethod
    def found_damage(self, damage: LogDamaged) -> Refused:
        """Record damage at a position of the log; return the error for the reader."""

    @property
    def log(self) -> Log:
        """The log.  Raises Refused(KAFKA_STORAGE_ERROR) once its disk has failed."""
        if self._log is None:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {self.topic_partition} is offline")
        return self._log

    @property
    def is_online(self) -> bool:
        return self._log is not None

    def changed(self) -> None:
        """Notify fetches of a change of the high watermark or the log start offset, or of an error."""
        watchers = self.watchers
        if watchers:
            notified = list(watchers)
            watchers.clear()
            for watcher in notified:
                watcher.changed()
        if self.end_watchers:
            self.on_log_end_moved()

    def expired_upto(self, now: TimestampMs) -> Offset | None:
        """Return the log start offset required by retention; None if none may be deleted.  Raises DiskFailed."""
        return expired_upto(self.log, now, self.positions.high_watermark)

    def advance_start(self, offset: Offset) -> None:
        """Advance the log start offset to one that is already durable; do nothing if it is not higher.

        Raises Refused beyond the high watermark: while the offset was written, an unclean election may have led to
        a truncation of the log.
        """
        high_watermark = self.positions.high_watermark
        if offset > high_watermark:
            raise Refused(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is beyond the high watermark {high_watermark}"
            )
        if advance_start(self.log, offset):
            assert self.log.start_offset <= self.positions.high_watermark, (
                "the log start offset never exceeds the high watermark"
            )
            self.changed()

    def delete_below_start(self, now: TimestampMs) -> None:
        """Delete the segments that are entirely below the log start offset.  Raises DiskFailed."""
        delete_below_start(self.log, now)

    def delete_old_segments(self, now: TimestampMs) -> bool:
        """Apply retention including file renames, on a disk too full for the log start checkpoint.

        Returns True if segments were deleted.  Raises DiskFailed; a later round retries deletions that fail now.
        """
        log = self.log
        if not delete_old_segments(log, now, self.positions.high_watermark):
            return False
        assert log.start_offset <= self.positions.high_watermark, (
            "the log start offset never exceeds the high watermark"
        )
        self.changed()
        log.reaper.finish(log.directory)
        return True

    def check_replica(self, epoch: int) -> None:
        """Raise Refused if the client's leader epoch differs or the log is offline, whoever leads."""
        _ = self.log  # Raises if it is offline; that error has precedence over the client's epoch.
        self.check_leader_epoch(epoch)

    def check_leader_epoch(self, epoch: int) -> None:
        """Raise Refused if the client's metadata is older or newer than ours (KIP-320).

        An epoch of -1 means that the client does not send one.
        """
        current = self.info.leader_epoch
        if epoch in (-1, current):
            return
        if epoch < current:
            raise Refused(
                ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {epoch} is older than the current leader epoch {current}"
            )
        raise Refused(
            ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch {epoch} is newer than the current leader epoch {current}"
        )

    def advance_high_watermark(self, end: Offset) -> bool:
        """Advance the high watermark to `end` and notify fetches; return False if it was there already."""
        if not self.positions.advance_high_watermark(end):
            return False
        log = self._log
        if log is not None:
            assert end <= log.end_offset, "the high watermark never exceeds the log end offset"
            if log.producers.first_unstable < end:
                log.producers.high_watermark_advanced(end)
        self.changed()
        return True

    # Transactions.

    def has_open_transactions(self) -> bool:
        """Return whether any transaction is open in the log."""
        return self.is_online and bool(self.log.producers.open_transactions())

    @property
    def last_stable_offset(self) -> Offset:
        """The offset below which each transaction has ended with a marker below the high watermark."""
        log = self._log
        high_watermark = self.positions.high_watermark
        if log is None or log.producers.first_unstable >= high_watermark:
            return high_watermark
        return max(log.producers.first_unstable, log.start_offset)

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        at_least_one: bool,
        read_committed: bool = False,
        cached: bool = False,
        to_end: bool = False,
    ) -> LogReadInfo:
        """Return whole batches from `offset` up to the high watermark or last stable offset, within max_bytes.

        With `to_end`, reads up to the log end offset, as a follower does.  With `at_least_one`, returns a first batch
        larger than max_bytes as well (KIP-74).  With `cached`, raises ColdRead if the read would wait for the disk.
        """
        log = self.log
        high_watermark = self.positions.high_watermark
        stable = self.last_stable_offset
        bound = stable if read_committed else high_watermark
        if to_end:
            bound = log.end_offset
        assert stable <= high_watermark <= log.end_offset, "last stable offset <= high watermark <= log end offset"
        if offset > bound and offset <= log.end_offset:
            # Records above the high watermark are read as if they had not been written.
            offset = bound
        if offset == bound:  # The usual case for consumers that keep up.
            return new_tuple(LogReadInfo, (EMPTY_SLICE, high_watermark, stable, log.start_offset, ()))
        aborted: Sequence[AbortedTxn] = ()
        try:
            records = log.read(Offset(offset), max_bytes, bound, cached=cached)
            if records.size > max_bytes and not at_least_one:
                records = records.part(0, 0)
            if read_committed:
                aborted = log.aborted(Offset(offset), records, bound, cached=cached)
        except NotCached as missing:
            raise ColdRead(missing) from None
        except DiskFailed as failed:
            raise self.disk_failed(failed) from failed
        return LogReadInfo(records, high_watermark, stable, log.start_offset, aborted)

    def readable_end(self, *, read_committed: bool) -> Offset:
        """Return the current end of reading: the last stable offset or the high watermark."""
        return self.last_stable_offset if read_committed else self.positions.high_watermark

    def search(
        self, timestamp: TimestampMs | None, start: Offset, *, read_committed: bool, is_large: bool
    ) -> Search | None:
        """Return a search by time in the readable records from `start`; None if it cannot find any.

        Raises Refused if there is no log.
        """
        end = self.readable_end(read_committed=read_committed)
        return begin_search(self.log, timestamp, start, end, is_large=is_large)
