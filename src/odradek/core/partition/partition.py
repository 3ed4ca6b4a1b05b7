"""One partition on this broker: its log, its leader, and its written, durable and visible positions.

Every batch was checked at the gate (`Batch.checked`) and is trusted here.
"""

from __future__ import annotations

import logging

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import (
    NO_EPOCH,
    LeaderEpoch,
    Offset,
    TopicPartition,
)
from odradek.core.configs.topic_configs import TopicConfigs
from odradek.core.kernel.cluster_view import PartitionInfo
from odradek.core.kernel.moment import Moment
from odradek.core.partition.alter_partition_manager import AlterPartitionManager
from odradek.core.partition.leading import Leading
from odradek.core.partition.local_replica import LocalReplica
from odradek.log.files.disk import DiskFailed
from odradek.log.files.disk_failures import FileEnds, LogDamaged
from odradek.log.files.log_config import LogConfig
from odradek.log.log.arrival import Arrival
from odradek.log.log.durability import end_flush
from odradek.log.log.flush import Flush
from odradek.log.log.log import Log

__all__ = ["Arrival", "Partition"]

_LOG = logging.getLogger(__name__)


class Partition(LocalReplica):
    """One replica and its role.  Its methods raise Refused where the protocol has an error code."""

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
        """Create the partition over its log, if there is one.

        `high_watermark` is the last known one; without other replicas the durable end takes its place.
        """
        super().__init__(topic_partition, log, info, configs, high_watermark)
        self.alter_partition = alter_partition
        self.leading: Leading | None = None
        self._logged_damages: set[tuple[str, int]] = set()

    def take_offline(self, failed: OSError | None = None) -> None:
        """Release the log after a disk failure."""
        if failed is not None:
            self._note_unable()
        log = self._release(ErrorCode.KAFKA_STORAGE_ERROR)
        if log is not None and failed is not None and log.on_failure is not None:
            log.on_failure(failed)

    def _note_unable(self) -> None:
        """Record that another replica should lead, if this one leads and has followers."""
        if self.leading is not None and self.leading.in_sync is not None:
            self.alter_partition.unable[self.topic_partition] = None

    def close(self) -> None:
        """Release the log, which is deleted with its topic."""
        self._release(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _release(self, code: ErrorCode) -> Log | None:
        log, self._log = self._log, None
        self._end_leading(code)
        self.changed()
        assert self.leading is None, "a replica without a log does not lead"
        return log

    # Role.

    def leader(self) -> Leading:
        """Return the leadership; raise Refused if this broker does not lead the partition, or lacks its log."""
        leading = self.leading
        if leading is None:
            _ = self.log  # Raises if it is offline; that error has precedence.
            raise Refused(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the leader of {self.topic_partition} is broker {self.info.leader}"
            )
        return leading

    def lead(self, info: PartitionInfo, now: Moment) -> None:
        """Become leader, or lead in another epoch; without a log the partition stays offline."""
        if self.leading is not None:
            self.leading.continue_leadership(info, now)
        elif self._log is not None:
            leading = Leading(self, info, self.alter_partition, now)
            if self.is_online:
                self.leading = leading
            else:  # A fetch that was notified of the high watermark has found its disk failed.
                leading.end_leadership(ErrorCode.KAFKA_STORAGE_ERROR)
        assert (self.leading is not None) == self.is_online, "a replica leads as long as it has its log"
        self._set_info(info)

    def follow(self, info: PartitionInfo) -> None:
        """Follow another broker, or none while there is no leader; requests that wait for a write fail."""
        self._end_leading(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._set_info(info)

    def _end_leading(self, code: ErrorCode) -> None:
        leading, self.leading = self.leading, None
        if leading is not None:
            leading.end_leadership(code)

    def _set_info(self, info: PartitionInfo) -> None:
        assert info.leader_epoch >= self.info.leader_epoch, "leader epochs never decrease"
        if info != self.info:
            self.info = info
            self.changed()

    def configure(self, configs: TopicConfigs, log_config: LogConfig) -> None:
        """Apply a changed configuration; no batch may be staged."""
        is_staging = self.leading is not None and self.leading.has_staged
        assert not is_staging, "no batch is staged when the configuration changes"
        self.configs = configs
        if self._log is not None:
            self._log.config = log_config

    def on_log_end_moved(self) -> None:
        """Notify followers' fetches of a change that consumers may not see: a moved log end offset."""
        notified = list(self.end_watchers)
        self.end_watchers.clear()
        in_sync = None if self.leading is None else self.leading.in_sync
        for watcher in notified:
            session = watcher.session
            if in_sync is not None and session is not None:
                in_sync.stayed(session.follower, session.last_used)
            watcher.changed()

    def check_leader(self, epoch: int) -> None:
        """Raise Refused if the client's leader epoch differs, another broker leads, or the log is offline."""
        self.check_replica(epoch)
        self.leader()

    def flushed(self, flush: Flush, now: Moment) -> bool:
        """Apply a completed flush to the durable end and the high watermark; return whether either moved."""
        log = self.log
        end_flush(log, flush, now.wall)
        durable = self.positions.advance_durable_end(flush.end_offset)
        assert self.positions.durable_end <= log.recovery_point, "the durable offset never exceeds the recovery point"
        visible = self._flushed(flush.end_offset, now)
        return durable or visible

    def _flushed(self, end: Offset, now: Moment) -> bool:
        return self.leading is not None and self.leading.committed(end, now)

    def replace_log(self, log: Log, now: Moment) -> None:
        """Replace the log by another one: a complete, synced copy."""
        assert self.leading is None or not self.leading.has_staged, "no batch is staged when the log is replaced"
        if self._log is not None:
            assert log.end_offset == self._log.end_offset, "a copy ends where its original does"
            log.config = self._log.config  # It may have been altered since the copy was begun.
        self._log = log
        self.positions.advance_durable_end(log.recovery_point)
        assert self.positions.are_within(log.start_offset, log.end_offset), "the high watermark is within the copy"
        self._flushed(log.recovery_point, now)

    def diverging_epoch(self, last_fetched_epoch: int, fetch_offset: int) -> tuple[LeaderEpoch, Offset] | None:
        """Return the point where our log diverges from a reader's last fetched epoch (KIP-595), or None.

        Raises Refused for an epoch that is newer than the leader's, and for an offset below the log start offset.
        """
        if last_fetched_epoch < 0:
            return None
        epoch, end = self.end_of_epoch(LeaderEpoch(last_fetched_epoch))
        if end < 0:
            text = f"last fetched epoch {last_fetched_epoch} before offset {fetch_offset} is unknown on the leader"
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        start = self.log.start_offset
        if fetch_offset < start:  # Checked first, as in Apache Kafka: the divergence is below the log start offset.
            raise Refused(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"fetch offset {fetch_offset} is below the log start offset {start}"
            )
        if epoch < last_fetched_epoch or end < fetch_offset:
            return epoch, end
        return None

    def end_of_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """Return the greatest known epoch up to `epoch`, and its end; -1 for both if `epoch` is newer.

        For an epoch below all known ones, returns that epoch and the start of the first known one.  The leader's own
        epoch is known before its first record, with the log end offset as its end.  Apache Kafka writes it to the
        checkpoint when it begins, which costs a file for each new partition.  A follower knows epochs from records
        only.  Raises Refused without a log.
        """
        log, latest = self.log, self.log.epochs.latest
        leaders = NO_EPOCH if self.leading is None else self.info.leader_epoch
        if latest < 0 and epoch <= leaders and epoch != NO_EPOCH:  # The leader's epoch is the only one.
            return epoch, log.end_offset
        if latest < epoch <= leaders:
            return (epoch if epoch == leaders else latest), log.end_offset
        return log.epochs.end_offset_for(epoch, log.end_offset)

    def disk_failed(self, failed: DiskFailed) -> Refused:
        """Handle a failed read or write; return the error for the request."""
        if isinstance(failed, LogDamaged):
            return self.found_damage(failed)
        if not (failed.is_full and self.has_logged_full):  # Producers retry many times.
            _LOG.error("%s: %s", self.topic_partition, failed)
        self.has_logged_full = failed.is_full
        # A full disk can be emptied; after any other failure the contents of the disk are unknown.
        if not failed.is_full:
            self.take_offline(failed)
        elif not failed.is_out_of_files:
            self._note_unable()
        return Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {failed}")

    def was_cut_since(self, path: str, error: OSError) -> bool:
        """Return whether a read failed because the follower's file was truncated, and not because of its disk."""
        return isinstance(error, FileEnds) and self.log.was_cut(path)

    def found_damage(self, damage: LogDamaged) -> Refused:
        """Record damage at a position of the log; return the error for the reader.

        Clients of Apache Kafka get the same code where its broker detects damage.
        """
        log = self._log
        known = log is None or (damage.path, damage.position) in self._logged_damages
        if log is not None:
            try:
                log.note_damage(damage)
            except DiskFailed as failed:  # The search for the next whole batch reads from the disk.
                self.take_offline(failed)
                return Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {failed}")
        if not known:
            self._logged_damages.add((damage.path, damage.position))
            _LOG.error("%s: %s: records before and after the damage are served", self.topic_partition, damage)
        return Refused(ErrorCode.CORRUPT_MESSAGE, f"{self.topic_partition}: {damage}")
