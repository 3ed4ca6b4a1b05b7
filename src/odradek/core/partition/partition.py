"""One partition on this broker: its log, who leads it, and how far it is written, durable and visible.

Every batch that enters was checked at the gate (`Batch.checked`) and is trusted here.  The high watermark has this one
writer.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.tuples import new_tuple
from odradek.base.units import (
    NO_EPOCH,
    LeaderEpoch,
    Offset,
    TimestampMs,
    TopicPartition,
)
from odradek.core.configs.topic_configs import TopicConfigs
from odradek.core.fetch.disk_waits import Cold
from odradek.core.fetch.fetch_sessions import Watchers
from odradek.core.kernel.cluster_view import PartitionInfo
from odradek.core.kernel.moment import Moment
from odradek.core.partition.alter_partition_manager import AlterPartitionManager
from odradek.core.partition.leading import Leading
from odradek.core.partition.positions import Positions
from odradek.core.partition.staging import Append
from odradek.log.files.disk import EMPTY_SLICE, DiskFailed, FileSlice
from odradek.log.files.disk_failures import FileEnds, LogDamaged
from odradek.log.files.log_config import LogConfig
from odradek.log.files.page_cache import NotCached
from odradek.log.log.durability import end_flush
from odradek.log.log.flush import Flush
from odradek.log.log.log import Log
from odradek.log.log.retention import advance_start, delete_below_start, delete_old_segments, expired_upto
from odradek.log.log.streaming_append import Arrival
from odradek.log.log.timestamp_search import begin_search
from odradek.log.segment.search import Search
from odradek.log.segment.transaction_index import Aborted

__all__ = ["Append", "Arrival", "Partition", "Readable"]

_LOG = logging.getLogger(__name__)

ARRIVALS_AFTER_WITHDRAWAL = 32  # So many batches are received as a whole after a streaming append was withdrawn.


class Readable(NamedTuple):
    """What a fetch gets from one partition."""

    records: FileSlice
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    aborted: Sequence[Aborted] = ()  # The aborted transactions that overlap the records, if only committed are read.


class Partition:
    """One replica.  Its methods raise Refused for what the protocol has a code for."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        log: Log | None,
        info: PartitionInfo,
        configs: TopicConfigs,
        alter_partition: AlterPartitionManager,
        *,
        high_watermark: Offset | None = None,
    ) -> None:
        """`high_watermark` is what was known of it before; without others to ask it is what is durable."""
        self.topic_partition = topic_partition
        self.alter_partition = alter_partition
        self._log = log
        self.has_told_full = False  # Until something can be written again.
        self._damages_told: set[tuple[str, int]] = set()
        self.info = info
        self.configs = configs
        self.leading: Leading | None = None
        self.watchers: Watchers = {}  # Partitions of fetch sessions, to be told once of a change.
        self.end_watchers: Watchers = {}  # Those of followers, which an append is a change for, too.
        durable = log.recovery_point if log else Offset(0)
        visible = durable if high_watermark is None else high_watermark
        self.positions = Positions(high_watermark=visible, durable_end=durable)
        if log is not None:
            assert self.positions.are_within(log.start_offset, log.end_offset), "a log is flushed before it is served"
            log.producers.high_watermark_advanced(visible)

    @property
    def log(self) -> Log:
        """The log.  Raises Refused(KAFKA_STORAGE_ERROR) once its disk has failed."""
        if self._log is None:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {self.topic_partition} is offline")
        return self._log

    @property
    def is_online(self) -> bool:
        return self._log is not None

    def take_offline(self, failed: OSError | None = None) -> None:
        """Gives up the log, whose disk has failed."""
        if failed is not None:
            self._note_unable()
        log = self._give_up(ErrorCode.KAFKA_STORAGE_ERROR)
        if log is not None and failed is not None and log.on_failure is not None:
            log.on_failure(failed)

    def _note_unable(self) -> None:
        """Notes that another replica should lead, if this one does and there is any."""
        if self.leading is not None and self.leading.in_sync is not None:
            self.alter_partition.unable[self.topic_partition] = None

    def close(self) -> None:
        """Gives up the log, which goes with its topic."""
        self._give_up(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _give_up(self, code: ErrorCode) -> Log | None:
        log, self._log = self._log, None
        self._end_leading(code)
        self.changed()
        return log

    # Its role.

    def leader(self) -> Leading:
        """Returns what a leader does.  Raises Refused if this broker does not lead the partition, or lacks its log."""
        leading = self.leading
        if leading is None:
            _ = self.log  # Raises if it is offline, which is told first.
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} is led by {self.info.leader}")
        return leading

    def lead(self, info: PartitionInfo, now: Moment) -> None:
        """Leads from now on, or in another epoch than before; without a log it stays offline."""
        if self.leading is not None:
            self.leading.goes_on(info, now)
        elif self._log is not None:
            self.leading = Leading(self, info, now)
        self._take(info)

    def follow(self, info: PartitionInfo) -> None:
        """Follows another broker from now on, or nobody while none leads; who waits for a write is told."""
        self._end_leading(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._take(info)

    def _end_leading(self, code: ErrorCode) -> None:
        leading, self.leading = self.leading, None
        if leading is not None:
            leading.end(code)

    def _take(self, info: PartitionInfo) -> None:
        if info != self.info:
            self.info = info
            self.changed()

    def configure(self, configs: TopicConfigs, log_config: LogConfig) -> None:
        """Takes over a changed configuration; nothing may be staged."""
        is_staging = self.leading is not None and self.leading.has_staged
        assert not is_staging, "what is staged was checked by the configuration before"
        self.configs = configs
        if self._log is not None:
            self._log.config = log_config

    def changed(self) -> None:
        """Tells fetches of a change: of the high watermark, the log start offset, or an error."""
        watchers = self.watchers
        if watchers:
            told = list(watchers)
            watchers.clear()
            for one in told:
                one.changed()
        if self.end_watchers:
            self.end_moved()

    def end_moved(self) -> None:
        """Tells followers' fetches of a change, which may be one that no consumer sees: of the log's end."""
        told = list(self.end_watchers)
        self.end_watchers.clear()
        in_sync = None if self.leading is None else self.leading.in_sync
        for one in told:
            session = one.session
            if in_sync is not None and session is not None:
                in_sync.stayed(session.follower, session.last_used)
            one.changed()

    def expired_upto(self, now: TimestampMs) -> Offset | None:
        """Returns where the log is to begin by its retention; None if no segment may go.  Raises DiskFailed."""
        return expired_upto(self.log, now, self.positions.high_watermark)

    def advance_start(self, offset: Offset) -> None:
        """Has the log begin at an offset that is on the disk as its start, if it does not begin behind it already."""
        if advance_start(self.log, offset):
            assert self.log.start_offset <= self.positions.high_watermark, "only what is visible is deleted"
            self.changed()

    def delete_below_start(self, now: TimestampMs) -> None:
        """Deletes the segments that lie wholly below the log start offset.  Raises DiskFailed."""
        delete_below_start(self.log, now)

    def delete_old_segments(self, now: TimestampMs) -> bool:
        """Does the retention, the renaming of files included: for a disk too full for the log start's checkpoint.

        Returns True if segments went.  Raises DiskFailed; what the disk refuses now is done in a later round.
        """
        log = self.log
        if not delete_old_segments(log, now, self.positions.high_watermark):
            return False
        self.changed()
        log.reaper.finish(log.directory)
        return True

    def check_leader(self, epoch: int) -> None:
        """Refuses a client who knows another leader epoch, then any, if another broker leads; or if there is no log."""
        self.check_replica(epoch)
        self.leader()

    def check_replica(self, epoch: int) -> None:
        """Refuses a client who knows another leader epoch, and any if there is no log; whoever leads."""
        _ = self.log  # Raises if it is offline: that is told first, whatever the client's epoch.
        self.check_leader_epoch(epoch)

    def check_leader_epoch(self, epoch: int) -> None:
        """Refuses a client whose metadata is older or newer than ours (KIP-320).  -1: the client does not say."""
        ours = self.info.leader_epoch
        if epoch in (-1, ours):
            return
        if epoch < ours:
            raise Refused(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {epoch}, now {ours}")
        raise Refused(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch {epoch}, here still {ours}")

    def advance_high_watermark(self, end: Offset) -> bool:
        """Raises the high watermark to `end`, and tells fetches; returns False if it was there already."""
        if not self.positions.advance_high_watermark(end):
            return False
        log = self._log
        if log is not None:
            assert end <= log.end_offset, "nothing is visible that is not written"
            if log.producers.first_unstable < end:
                log.producers.high_watermark_advanced(end)
        self.changed()
        return True

    # Transactions.

    def has_open_transactions(self) -> bool:
        """True if any transaction is open in the log."""
        return self.is_online and bool(self.log.producers.open_transactions())

    @property
    def last_stable_offset(self) -> Offset:
        """The offset below which every transaction has ended by a marker below the high watermark."""
        log = self._log
        high_watermark = self.positions.high_watermark
        if log is None or log.producers.first_unstable >= high_watermark:
            return high_watermark
        return max(log.producers.first_unstable, log.start_offset)

    def flushed(self, flush: Flush, now: Moment) -> bool:
        """Takes in a flush that ended: advances the durable offset and the high watermark; True if either moved."""
        log = self.log
        end_flush(log, flush, now.wall)
        durable = self.positions.advance_durable_end(flush.end_offset)
        assert self.positions.durable_end <= log.recovery_point, "nothing is durable that the log did not flush"
        visible = self._flushed(flush.end_offset, now)
        return durable or visible

    def _flushed(self, end: Offset, now: Moment) -> bool:
        return self.leading is not None and self.leading.committed(end, now)

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        at_least_one: bool,
        read_committed: bool = False,
        cached: bool = False,
        to_end: bool = False,
    ) -> Readable:
        """Returns whole batches from `offset` up to the high watermark, or last stable offset, within max_bytes.

        With `to_end` up to where the log ends, as a follower reads.  With `at_least_one`, a first batch larger than
        max_bytes comes all the same (KIP-74).  With `cached` raises Cold where the disk would have to be waited for.
        """
        log = self.log
        high_watermark = self.positions.high_watermark
        stable = self.last_stable_offset
        bound = stable if read_committed else high_watermark
        if to_end:
            bound = log.end_offset
        assert stable <= high_watermark <= log.end_offset, "what is stable is visible, and what is visible is written"
        if offset > bound and offset <= log.end_offset:
            # Records above the high watermark are read as if they had not been written.
            offset = bound
        if offset == bound:  # Most partitions of a consumer that keeps up have nothing for it.
            return new_tuple(Readable, (EMPTY_SLICE, high_watermark, stable, log.start_offset, ()))
        aborted: Sequence[Aborted] = ()
        try:
            records = log.read(Offset(offset), max_bytes, bound, cached=cached)
            if records.size > max_bytes and not at_least_one:
                records = records.part(0, 0)
            if read_committed:
                aborted = log.aborted(Offset(offset), records, bound, cached=cached)
        except NotCached as missing:
            raise Cold(missing) from None
        except DiskFailed as failed:
            raise self.disk_failed(failed) from failed
        return Readable(records, high_watermark, stable, log.start_offset, aborted)

    def readable_end(self, *, read_committed: bool) -> Offset:
        """Returns where reading ends for now: the last stable offset or the high watermark."""
        return self.last_stable_offset if read_committed else self.positions.high_watermark

    def search(
        self, timestamp: TimestampMs | None, start: Offset, *, read_committed: bool, is_large: bool
    ) -> Search | None:
        """Returns a search by time in the readable records from `start` on; None if it would surely find nothing.

        Raises Refused if there is no log.
        """
        end = self.readable_end(read_committed=read_committed)
        return begin_search(self.log, timestamp, start, end, is_large=is_large)

    def goes_on_in(self, log: Log, now: Moment) -> None:
        """Takes another log in the place of its own: a copy that has all of it, synced."""
        assert self.leading is None or not self.leading.has_staged, "what is staged has its place in the old log"
        if self._log is not None:
            log.config = self._log.config  # It may have been altered since the copy was begun.
        self._log = log
        self.positions.advance_durable_end(log.recovery_point)
        self._flushed(log.recovery_point, now)

    def diverging_epoch(self, last_fetched_epoch: int, fetch_offset: int) -> tuple[LeaderEpoch, Offset] | None:
        """Returns where our log parts from a reader's, if what it last read is not ours (KIP-595); None if it is.

        Raises Refused for an epoch that is newer than the leader's, and below the log's start.
        """
        if last_fetched_epoch < 0:
            return None
        epoch, end = self.end_of_epoch(LeaderEpoch(last_fetched_epoch))
        if end < 0:
            text = f"epoch {last_fetched_epoch}, last fetched before offset {fetch_offset}, is not known here"
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        start = self.log.start_offset
        if fetch_offset < start:  # Told first, as in Apache Kafka: what parts lies before the log.
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"{fetch_offset} is before {start}, where the log starts")
        if epoch < last_fetched_epoch or end < fetch_offset:
            return epoch, end
        return None

    def end_of_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """Returns the greatest known epoch that is not above `epoch`, and its end; -1 for both if `epoch` is newer.

        For an epoch below all known ones it returns that epoch, and where the first known one begins.  The leader's own
        epoch is known before its first record, which would be at the log's end.  Apache Kafka enters it in the
        checkpoint when it begins; that costs a file for each partition that is made.  A follower knows epochs by their
        records alone.  Raises Refused without a log.
        """
        log, latest = self.log, self.log.epochs.latest
        leaders = NO_EPOCH if self.leading is None else self.info.leader_epoch
        if latest < 0 and epoch <= leaders and epoch != NO_EPOCH:  # The leader's epoch is the only one.
            return epoch, log.end_offset
        if latest < epoch <= leaders:
            return (epoch if epoch == leaders else latest), log.end_offset
        return log.epochs.end_offset_for(epoch, log.end_offset)

    def disk_failed(self, failed: DiskFailed) -> Refused:
        """Takes in that a read or a write failed; returns the answer to the request."""
        if isinstance(failed, LogDamaged):
            return self.found_damage(failed)
        if not (failed.is_full and self.has_told_full):  # Producers try again and again.
            _LOG.error("%s: %s", self.topic_partition, failed)
        self.has_told_full = failed.is_full
        # A full disk can be emptied; after any other failure nobody knows what is on it.
        if not failed.is_full:
            self.take_offline(failed)
        elif not failed.is_out_of_files:
            self._note_unable()
        return Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {failed}")

    def was_cut_since(self, path: str, error: OSError) -> bool:
        """True if a file ends before what was read of it as a follower's is cut, and not as its disk has failed."""
        return isinstance(error, FileEnds) and self.log.was_cut(path)

    def found_damage(self, damage: LogDamaged) -> Refused:
        """Takes in that a place of the log is no whole batch; returns the answer to who wanted to read it.

        Clients of Apache Kafka get the same code where its broker notices.
        """
        log = self._log
        known = log is None or (damage.path, damage.position) in self._damages_told
        if log is not None:
            log.note_damage(damage)
        if not known:
            self._damages_told.add((damage.path, damage.position))
            _LOG.error("%s: %s: what is before and behind it is served", self.topic_partition, damage)
        return Refused(ErrorCode.CORRUPT_MESSAGE, f"{self.topic_partition}: {damage}")
