"""One partition on this broker: its log, who leads it, and how far it is written, durable and visible.

Every batch that enters was checked at the gate (`Batch.checked`) and is trusted here.  The high watermark has this one
writer.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs, TopicPartition
from odradek.core.cluster import PartitionInfo
from odradek.core.configs.topic import TopicConfigs
from odradek.core.positions import Positions
from odradek.core.staging import Append, Staging
from odradek.log.arrival import Arrival
from odradek.log.disk import DiskFailed, FileSlice
from odradek.log.flush import Flush
from odradek.log.log import Log
from odradek.log.search import TimedOffset
from odradek.record.batch import Batch

__all__ = ["Append", "Arrival", "Partition", "Readable"]

_LOG = logging.getLogger(__name__)

ARRIVALS_AFTER_WITHDRAWAL = 32  # So many batches are then received as a whole first.


class Readable(NamedTuple):
    """What a fetch gets from one partition."""

    records: FileSlice
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset


class Partition:
    """One replica.  Raises Refused for what the protocol has a code for."""

    __slots__ = (
        "_arrivals_withdrawn",
        "_has_told_full",
        "_log",
        "_staging",
        "configs",
        "info",
        "positions",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, log: Log | None, info: PartitionInfo, configs: TopicConfigs):
        self.topic_partition = topic_partition
        self._log = log
        self._staging: Staging | None = None
        self._has_told_full = False
        self._arrivals_withdrawn = 0
        self.info = info
        self.configs = configs
        durable = log.recovery_point if log else Offset(0)
        self.positions = Positions(high_watermark=durable, durable_end=durable)

    @property
    def log(self) -> Log:
        """The log.  Raises Refused(KAFKA_STORAGE_ERROR) once its disk has failed."""
        if self._log is None:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {self.topic_partition} is offline")
        return self._log

    @property
    def is_online(self) -> bool:
        return self._log is not None

    def take_offline(self) -> None:
        self._log = None

    def check_leader_epoch(self, epoch: int) -> None:
        """Refuse a client whose metadata is older or newer than ours (KIP-320).  -1: the client does not say."""
        ours = self.info.leader_epoch
        if epoch in (-1, ours):
            return
        if epoch < ours:
            raise Refused(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {epoch}, now {ours}")
        raise Refused(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch {epoch}, here still {ours}")

    def stage(self, batch: Batch, now: TimestampMs, *, all_replicas: bool) -> Append:
        """Take in one batch as the leader; `commit` writes it.  Raises Refused if there is no log."""
        log, staging = self.log, self._staging
        if staging is not None and not staging.has_room(batch, log.config.segment_bytes):
            self.commit(now)
            staging = None
        if staging is None:
            staging = self._staging = Staging(log.end_offset)
        time = now if log.config.log_append_time else NO_TIMESTAMP
        return staging.add(batch, time, needs_sync=self._needs_sync(staging, batch, all_replicas=all_replicas))

    def _needs_sync(self, staging: Staging, batch: Batch, *, all_replicas: bool) -> bool:
        flush = self.configs.flush
        end = staging.end + batch.last_offset_delta + 1
        return (all_replicas and flush.before_acknowledging) or flush.is_due(end - self.positions.durable_end)

    def begin_arrival(self, batch: Batch, now: TimestampMs) -> Arrival | None:
        """Take in the front of a batch as the leader; None if it should rather be staged when it is there."""
        if self._log is None or self._staging is not None:
            return None
        if self._arrivals_withdrawn:  # Others write here too, and a batch that is withdrawn is written twice.
            self._arrivals_withdrawn -= 1
            return None
        try:
            return self._log.begin_arrival(batch, self.info.leader_epoch, now)
        except DiskFailed as failed:
            self._storage_error(failed)
            return None

    def arrived(self, arrival: Arrival, *, all_replicas: bool) -> Append:
        """All of the batch is written, and its checksum right.  Raises Refused if there is no log any more."""
        log, batch = self.log, arrival.batch
        staging = Staging(log.end_offset)
        needs_sync = self._needs_sync(staging, batch, all_replicas=all_replicas)
        append = staging.add(batch, NO_TIMESTAMP, needs_sync=needs_sync)
        try:
            log.arrived(arrival)
        except DiskFailed as failed:
            raise self._storage_error(failed) from failed
        self._has_told_full = False
        self.positions.made_visible(staging.visible_end)
        return append

    def forget_arrival(self, arrival: Arrival) -> None:
        """It will not be completed.  Nothing of it stays."""
        if self._log is not None:
            try:
                self._log.forget_arrival(arrival)
            except DiskFailed as failed:
                self._storage_error(failed)

    def arrival_failed(self, arrival: Arrival, error: OSError) -> Refused:
        """A piece of it could not be written: forget it, and say what its producer is to be told."""
        self.forget_arrival(arrival)
        return self._storage_error(DiskFailed.of(error, arrival.file.path))

    def withdrawn(self) -> None:
        self._arrivals_withdrawn = ARRIVALS_AFTER_WITHDRAWAL

    def commit(self, now: TimestampMs) -> None:
        """Write what is staged, and make visible what may be.  If it fails, each append says why."""
        staging, self._staging = self._staging, None
        if staging is None:
            return
        try:
            self.log.append(staging.batches, self.info.leader_epoch, now)
        except DiskFailed as failed:
            staging.refuse(self._storage_error(failed))
        except Refused as refused:
            staging.refuse(refused)
        else:
            self._has_told_full = False
            self.positions.made_visible(staging.visible_end)

    def flushed(self, flush: Flush, now: TimestampMs) -> bool:
        """A flush ended: what it covered is durable, and visible.  True if a waiting request may care."""
        self.log.flushed(flush, now)
        durable = self.positions.made_durable(flush.end_offset)
        visible = self.positions.made_visible(flush.end_offset)
        return durable or visible

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool) -> Readable:
        """Whole batches from `offset` up to the high watermark, within max_bytes.

        With `at_least_one`, a first batch larger than max_bytes comes all the same (KIP-74).
        """
        log = self.log
        positions = self.positions
        if offset > positions.high_watermark and offset <= log.end_offset:
            # Written but not visible yet: as if it had not been written.
            offset = positions.high_watermark
            max_bytes = 0
        try:
            records = log.read(Offset(offset), max_bytes, positions.high_watermark)
        except DiskFailed as failed:
            raise self._storage_error(failed) from failed
        if records.size > max_bytes and not at_least_one:
            records = records.part(0, 0)
        return Readable(records, positions.high_watermark, positions.high_watermark, log.start_offset)

    def lookup_timestamp(self, timestamp: TimestampMs | None) -> TimedOffset | None:
        """The first visible record at or after a time; for None the one with the greatest.  None if there is none."""
        log = self.log
        found = log.max_timestamp() if timestamp is None else log.lookup_timestamp(timestamp)
        return found if found is not None and found.offset < self.positions.high_watermark else None

    def diverging_epoch(self, last_fetched_epoch: int, fetch_offset: int) -> tuple[LeaderEpoch, Offset] | None:
        """Where our log parts from a reader's, if what it last read is not ours (KIP-595); None if it is."""
        if last_fetched_epoch < 0:
            return None
        epoch, end = self.log.epochs.end_offset_for(LeaderEpoch(last_fetched_epoch), self.log.end_offset)
        if end < 0:
            text = f"epoch {last_fetched_epoch}, last fetched before offset {fetch_offset}, is not known here"
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        if epoch < last_fetched_epoch or end < fetch_offset:
            return epoch, end
        return None

    def _storage_error(self, failed: DiskFailed) -> Refused:
        if not (failed.is_full and self._has_told_full):  # Producers try again and again.
            _LOG.error("%s: %s", self.topic_partition, failed)
        self._has_told_full = failed.is_full
        # A full disk can be emptied; after any other failure nobody knows what is on it.
        if not failed.is_full:
            self.take_offline()
        return Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {failed}")
