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
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
)
from odradek.core.cluster import PartitionInfo
from odradek.core.cold import Cold
from odradek.core.configs.topic import TopicConfigs
from odradek.core.fetch_sessions import Watchers
from odradek.core.positions import Positions
from odradek.core.staging import Append, Staging, written_before
from odradek.log.arrival import Arrival, arrived, begin_arrival, forget_arrival
from odradek.log.config import LogConfig
from odradek.log.disk import EMPTY_SLICE, DiskFailed, FileSlice
from odradek.log.durability import end_flush
from odradek.log.failures import LogDamaged
from odradek.log.flush import Flush
from odradek.log.log import Log
from odradek.log.page_cache import NotCached
from odradek.log.producers import DuplicateBatch, ProducerStateEntry
from odradek.log.reached import begin_search
from odradek.log.retention import advance_start, delete_below_start, delete_old_segments, expired_upto
from odradek.log.search import Search
from odradek.log.sequences import check, check_epoch, check_marker
from odradek.log.transaction_index import Aborted
from odradek.record.batch import Batch
from odradek.record.markers import EndMarker, end_marker_batch

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

    def __init__(self, topic_partition: TopicPartition, log: Log | None, info: PartitionInfo, configs: TopicConfigs):
        self.topic_partition = topic_partition
        self._log = log
        self._staging: Staging | None = None
        self._has_told_full = False
        self._damages_told: set[tuple[str, int]] = set()
        self._arrivals_withdrawn = 0
        self.info = info
        self.configs = configs
        self.watchers: Watchers = {}  # Partitions of fetch sessions, to be told once of a change.
        durable = log.recovery_point if log else Offset(0)
        self.positions = Positions(high_watermark=durable, durable_end=durable)
        if log is not None:
            assert self.positions.are_within(log.start_offset, log.end_offset), "a log is flushed before it is served"
            log.producers.high_watermark_advanced(durable)

    @property
    def log(self) -> Log:
        """The log.  Raises Refused(KAFKA_STORAGE_ERROR) once its disk has failed."""
        if self._log is None:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {self.topic_partition} is offline")
        return self._log

    @property
    def is_online(self) -> bool:
        return self._log is not None

    @property
    def is_new_to_leader(self) -> bool:
        """True if the leader has written nothing in its epoch yet: the first write goes to the epochs' file, too."""
        return self._log is not None and self._log.epochs.latest != self.info.leader_epoch

    def take_offline(self, failed: OSError | None = None) -> None:
        """Gives up the log, whose disk has failed, or which goes with its topic."""
        log, self._log = self._log, None
        if log is not None and failed is not None and log.on_failure is not None:
            log.on_failure(failed)
        self.changed()

    def lead(self, info: PartitionInfo) -> None:
        """Takes over who leads the partition, and in which epoch."""
        if info != self.info:
            self.info = info
            self.changed()

    def configure(self, configs: TopicConfigs, log_config: LogConfig) -> None:
        """Takes over a changed configuration; nothing may be staged."""
        assert self._staging is None, "what is staged was checked by the configuration before"
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

    def check_leader_epoch(self, epoch: int) -> None:
        """Refuses a client whose metadata is older or newer than ours (KIP-320).  -1: the client does not say."""
        ours = self.info.leader_epoch
        if epoch in (-1, ours):
            return
        if epoch < ours:
            raise Refused(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {epoch}, now {ours}")
        raise Refused(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch {epoch}, here still {ours}")

    def stage(self, batch: Batch, now: TimestampMs, *, all_replicas: bool, checks_sequence: bool = True) -> Append:
        """Takes in one batch as the leader; `commit` writes it.  Raises Refused if it may not enter, or without a log.

        A batch that its producer sent before is not written again, and gets the place it has.  Coordinators do not
        number their batches: without `checks_sequence` only the epoch counts.
        """
        log, staging = self.log, self._staging
        if staging is not None and not staging.has_room(batch, log.config.segment_bytes):
            self.commit(now)
            staging = None
        end = log.end_offset if staging is None else staging.end
        time = now if log.config.log_append_time else NO_TIMESTAMP
        if batch.producer_id < 0:
            if staging is None:
                staging = self._staging = Staging(end)
        else:
            producer_id = batch.producer_id
            timestamp = batch.max_timestamp if time < 0 else time
            producers = log.producers
            known = producers.get(producer_id) if staging is None else self._producer(producer_id)
            after: ProducerStateEntry | None = None
            if known and checks_sequence and (known.first_offset >= 0 or producer_id not in producers.awaited):
                after = known.after_next(batch, end, timestamp)
            if after is None:  # The batch is not its producer's next one, as nearly all are.
                after_or_place = self._after(log, known, batch, end, timestamp, checks_sequence)
                if isinstance(after_or_place, DuplicateBatch):
                    return self._again(after_or_place, all_replicas=all_replicas)
                after = after_or_place
            if staging is None:
                staging = self._staging = Staging(end)
            if staging.producers is None:
                staging.producers = {producer_id: after}
            else:
                staging.producers[producer_id] = after
        return staging.add(batch, time, needs_sync=self._needs_sync(staging, batch, all_replicas=all_replicas))

    @staticmethod
    def _after(  # noqa: PLR0917
        log: Log,
        known: ProducerStateEntry | None,
        batch: Batch,
        offset: Offset,
        timestamp: TimestampMs,
        checks_sequence: bool,
    ) -> ProducerStateEntry | DuplicateBatch:
        """Returns the producer after the batch at `offset`, or the batch's place if it was written before.

        Raises Refused.
        """
        producer_id = batch.producer_id
        if known is None:
            known = ProducerStateEntry(producer_id)
        elif checks_sequence and (place := known.find(batch)) is not None:
            return place
        # The first batch may have come with this one, and not be written yet.
        is_begun = known.has_open_transaction and known.epoch == batch.producer_epoch
        awaited = None if is_begun else log.producers.awaited.get(producer_id)
        check(known, batch, offset, awaited=awaited, checks_sequence=checks_sequence)
        return known.after(batch, offset, timestamp)

    def _producer(self, producer_id: ProducerId) -> ProducerStateEntry | None:
        """Returns a producer as it is once all staged batches are written; None if it is not known."""
        staging = self._staging
        staged = staging and staging.producers and staging.producers.get(producer_id)
        return staged or self.log.producers.get(producer_id)

    def _again(self, place: DuplicateBatch, *, all_replicas: bool) -> Append:
        """Returns the place of a batch that came before; if that is only staged, both are written or refused."""
        is_safe = place.end <= self.positions.durable_end
        needs_sync = all_replicas and self.configs.flush.before_acknowledging and not is_safe
        append = written_before(place, needs_sync=needs_sync)
        if self._staging is not None and place.end > self.log.end_offset:
            self._staging.add_again(append)
        return append

    def _needs_sync(self, staging: Staging, batch: Batch, *, all_replicas: bool) -> bool:
        flush = self.configs.flush
        end = staging.end + batch.last_offset_delta + 1
        return (all_replicas and flush.before_acknowledging) or flush.is_due(end - self.positions.durable_end)

    def begin_arrival(self, batch: Batch, now: TimestampMs) -> Arrival | None:
        """Begins a streaming append as the leader; returns None if the batch should rather be staged when complete."""
        if self._log is None or self._staging is not None:
            return None
        if self._arrivals_withdrawn:  # Others write here too, and a withdrawn batch is written twice.
            self._arrivals_withdrawn -= 1
            return None
        if batch.producer_id >= 0 and not self._is_next(self._log, batch):
            return None
        try:
            return begin_arrival(self._log, batch, self.info.leader_epoch, now)
        except DiskFailed as failed:
            self._storage_error(failed)
            return None

    def _is_next(self, log: Log, batch: Batch) -> bool:
        """True if the batch is its producer's next one and begins no transaction; any other is staged."""
        known = log.producers.get(batch.producer_id)
        return known is not None and known.expects(batch) and known.id not in log.producers.awaited

    def arrived(self, arrival: Arrival, *, all_replicas: bool) -> Append:
        """Completes a streaming append: all of the batch is written, and its checksum right.

        Raises Refused if there is no log any more, or if the producer sent another batch meanwhile.
        """
        log, batch = self.log, arrival.batch
        assert self._staging is None, "what is staged has its offsets, and is written before anything else comes behind"
        if batch.producer_id >= 0 and not self._is_next(log, batch):
            text = f"producer {batch.producer_id} has sequence {batch.base_sequence} behind it by now"
            raise Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text)
        staging = Staging(log.end_offset)
        needs_sync = self._needs_sync(staging, batch, all_replicas=all_replicas)
        append = staging.add(batch, NO_TIMESTAMP, needs_sync=needs_sync)
        try:
            arrived(log, arrival)
        except DiskFailed as failed:
            raise self._storage_error(failed) from failed
        assert log.end_offset == append.end, "a batch lies where its producer is told"
        self._has_told_full = False
        self._advance_high_watermark(staging.visible_end)
        return append

    def forget_arrival(self, arrival: Arrival) -> None:
        """Gives up a streaming append; nothing of it stays."""
        if self._log is not None:
            try:
                forget_arrival(self._log, arrival)
            except DiskFailed as failed:
                self._storage_error(failed)

    def arrival_failed(self, arrival: Arrival, error: OSError) -> Refused:
        """Gives up a streaming append of which a piece could not be written; returns the producer's answer."""
        self.forget_arrival(arrival)
        return self._storage_error(DiskFailed.of(error, arrival.file.path))

    def withdrawn(self) -> None:
        self._arrivals_withdrawn = ARRIVALS_AFTER_WITHDRAWAL

    def commit(self, now: TimestampMs) -> None:
        """Writes the staged batches, and advances the high watermark as far as it may.

        If the write fails, `refused` of each append says why.
        """
        staging, self._staging = self._staging, None
        if staging is None:
            return
        try:
            log = self.log
            log.append_known(staging.batches, self.info.leader_epoch, now, staging.producers)
        except DiskFailed as failed:
            staging.refuse(self._storage_error(failed))
        except Refused as refused:
            staging.refuse(Refused(refused.code, refused.detail))  # A new one, as it is kept: see Broker._append_state.
        else:
            # The twin of what `stage` promised: nobody else moved the log's end in between.
            assert log.end_offset == staging.end, "batches lie where their producers are told"
            self._has_told_full = False
            self._advance_high_watermark(staging.visible_end)

    def _advance_high_watermark(self, end: Offset) -> bool:
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

    def check_producer_epoch(self, batch: Batch) -> None:
        """Raises Refused(INVALID_PRODUCER_EPOCH) for a batch of an epoch that is over."""
        known = self._producer(batch.producer_id)
        if known is not None:
            check_epoch(known, batch.producer_epoch, self.log.end_offset)

    def await_first(self, batch: Batch, now: TimestampMs, *, from_zero: bool) -> None:
        """Notes a batch that will begin a transaction if the coordinator admits it: no later one may come before it.

        With `from_zero` its producer must begin with sequence 0 if nothing is known of it.
        """
        self.log.producers.await_first(batch, from_zero=from_zero, now=now)

    def has_open_transaction(self, producer_id: ProducerId, producer_epoch: int) -> bool:
        known = self._producer(producer_id)
        return known is not None and known.has_open_transaction and known.epoch == producer_epoch

    def has_open_transactions(self) -> bool:
        """True if any transaction is open in the log."""
        return self.is_online and bool(self.log.producers.open_transactions())

    def has_transaction_before(self, producer_id: ProducerId, producer_epoch: int) -> bool:
        """True if the producer has a transaction open here, and all of it is of an older epoch."""
        known = self._producer(producer_id)
        return known is not None and known.has_open_transaction and known.epoch < producer_epoch

    def end_transaction(
        self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        coordinator_epoch: int,
        *,
        commit: bool,
        now: TimestampMs,
        transaction_version: int = 0,
    ) -> Append:
        """Writes the marker that ends the producer's transaction here, also if it has none; as durable as acks=all.

        Raises Refused: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, or KAFKA_STORAGE_ERROR.
        """
        self.commit(now)
        log, marker = self.log, EndMarker(commit, coordinator_epoch)
        known = log.producers.get(producer_id) or ProducerStateEntry(producer_id)
        check_marker(known, producer_epoch, marker, transaction_version)
        batch = end_marker_batch(marker, producer_id, producer_epoch, now)
        staging = Staging(log.end_offset)
        append = staging.add(batch, NO_TIMESTAMP, needs_sync=self._needs_sync(staging, batch, all_replicas=True))
        try:
            log.append(batch, self.info.leader_epoch, now)
        except DiskFailed as failed:
            raise self._storage_error(failed) from failed
        assert log.end_offset == append.end, "a marker lies where its coordinator is told"
        self._has_told_full = False
        self._advance_high_watermark(staging.visible_end)
        return append

    @property
    def last_stable_offset(self) -> Offset:
        """The offset below which every transaction has ended by a marker below the high watermark."""
        log = self._log
        high_watermark = self.positions.high_watermark
        if log is None or log.producers.first_unstable >= high_watermark:
            return high_watermark
        return max(log.producers.first_unstable, log.start_offset)

    def flushed(self, flush: Flush, now: TimestampMs) -> bool:
        """Takes in a flush that ended: advances the durable offset and the high watermark; True if either moved."""
        log = self.log
        end_flush(log, flush, now)
        durable = self.positions.advance_durable_end(flush.end_offset)
        assert self.positions.durable_end <= log.recovery_point, "nothing is durable that the log did not flush"
        visible = self._advance_high_watermark(flush.end_offset)
        return durable or visible

    def read(
        self, offset: int, max_bytes: int, *, at_least_one: bool, read_committed: bool = False, cached: bool = False
    ) -> Readable:
        """Returns whole batches from `offset` up to the high watermark, or last stable offset, within max_bytes.

        With `at_least_one`, a first batch larger than max_bytes comes all the same (KIP-74).  With `cached` raises Cold
        where the disk would have to be waited for.
        """
        log = self.log
        high_watermark = self.positions.high_watermark
        stable = self.last_stable_offset
        bound = stable if read_committed else high_watermark
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
            raise self._storage_error(failed) from failed
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

    def goes_on_in(self, log: Log) -> None:
        """Takes another log in the place of its own: a copy that has all of it, synced."""
        assert self._staging is None, "what is staged has its place in the old log"
        if self._log is not None:
            log.config = self._log.config  # It may have been altered since the copy was begun.
        self._log = log
        self.positions.advance_durable_end(log.recovery_point)
        self._advance_high_watermark(log.recovery_point)

    def read_failed(self, failed: DiskFailed) -> Refused:
        """Takes in that a read in a thread failed; returns the answer to the request."""
        return self._storage_error(failed)

    def diverging_epoch(self, last_fetched_epoch: int, fetch_offset: int) -> tuple[LeaderEpoch, Offset] | None:
        """Returns where our log parts from a reader's, if what it last read is not ours (KIP-595); None if it is.

        Raises Refused for an epoch that is newer than the leader's.
        """
        if last_fetched_epoch < 0:
            return None
        epoch, end = self._end_of_epoch(LeaderEpoch(last_fetched_epoch))
        if end < 0:
            text = f"epoch {last_fetched_epoch}, last fetched before offset {fetch_offset}, is not known here"
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        if epoch < last_fetched_epoch or end < fetch_offset:
            return epoch, end
        return None

    def _end_of_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """Returns the greatest known epoch that is not above `epoch`, and its end; -1 for both if `epoch` is newer.

        The leader's own epoch is known before its first record, which would be at the log's end.  Apache Kafka enters
        it in the checkpoint when it begins; that costs a file for each partition that is made.
        """
        log, leaders = self.log, self.info.leader_epoch
        latest = log.epochs.latest
        if epoch <= latest or epoch > leaders:
            return log.epochs.end_offset_for(epoch, log.end_offset)
        return (epoch if epoch == leaders or latest < 0 else latest), log.end_offset

    def _storage_error(self, failed: DiskFailed) -> Refused:
        if isinstance(failed, LogDamaged):
            return self.found_damage(failed)
        if not (failed.is_full and self._has_told_full):  # Producers try again and again.
            _LOG.error("%s: %s", self.topic_partition, failed)
        self._has_told_full = failed.is_full
        # A full disk can be emptied; after any other failure nobody knows what is on it.
        if not failed.is_full:
            self.take_offline(failed)
        return Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {failed}")

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
