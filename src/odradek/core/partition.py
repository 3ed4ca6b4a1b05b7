"""One partition on this broker: its log, who leads it, and how far it is written, durable and visible.

Every batch that enters was checked at the gate (`Batch.checked`) and is trusted here.  The high watermark has this one
writer.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import LeaderEpoch, Offset, TimestampMs, TopicPartition
from odradek.core.cluster import PartitionInfo
from odradek.core.configs.topic import TopicConfigs
from odradek.core.positions import Positions
from odradek.log.disk import DiskFailed, FileSlice
from odradek.log.flush import Flush
from odradek.log.log import Log
from odradek.log.search import TimedOffset
from odradek.record.batch import Batch

_LOG = logging.getLogger(__name__)


class Readable(NamedTuple):
    """What a fetch gets from one partition."""

    records: FileSlice
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset


class Written(NamedTuple):
    """One batch as it lies in the log: offsets from `base_offset` up to, not including, `end`.

    With `needs_sync` it stays invisible, and its answer waits, until a sync has covered it.  `log_append_time` is -1
    unless the topic is configured for it.
    """

    base_offset: Offset
    end: Offset
    log_append_time: TimestampMs
    needs_sync: bool


class Partition:
    """One replica.  Raises Refused for what the protocol has a code for."""

    __slots__ = ("_log", "configs", "info", "positions", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, log: Log | None, info: PartitionInfo, configs: TopicConfigs):
        self.topic_partition = topic_partition
        self._log = log
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

    def append(self, batch: Batch, now: TimestampMs, *, all_replicas: bool) -> Written:
        """Append one batch as the leader."""
        try:
            appended = self.log.append(batch, self.info.leader_epoch, now)
        except DiskFailed as failed:
            raise self._storage_error(failed) from failed
        end = Offset(appended.last_offset + 1)
        flush, positions = self.configs.flush, self.positions
        needs_sync = (all_replicas and flush.before_acknowledging) or flush.is_due(end - positions.durable_end)
        if not needs_sync:
            positions.made_visible(end)
        return Written(appended.base_offset, end, appended.log_append_time, needs_sync)

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
        _LOG.error("%s: %s", self.topic_partition, failed)
        # A full disk can be emptied; after any other failure nobody knows what is on it.
        if not failed.is_full:
            self.take_offline()
        return Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {failed}")
