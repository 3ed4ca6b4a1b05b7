"""Leader's part of a partition: accept batches and write them.

    stage ──> commit ──> the high watermark, as far as allowed         one batch, or the batches of one turn of the loop
    begin_arrival ──> arrived                                          a large batch, written as it is received

A partition has a Leading from the time this broker becomes leader until another one does, or its log is lost.
"""

from __future__ import annotations

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_EPOCH, NO_TIMESTAMP, BrokerId, Offset, ProducerEpoch, ProducerId, TimestampMs
from odradek.core.kernel.cluster_view import PartitionInfo
from odradek.core.kernel.moment import Moment
from odradek.core.partition.alter_partition_manager import AlterPartitionManager, state_of
from odradek.core.partition.follower_states import NO_BROKER_EPOCH
from odradek.core.partition.leadership_state import Leadership
from odradek.core.partition.local_replica import LocalReplica
from odradek.core.partition.positions import Positions
from odradek.core.partition.staging import Append, Staging, written_before
from odradek.log.files.disk import DiskFailed
from odradek.log.log.arrival import Arrival
from odradek.log.log.log import Log
from odradek.log.log.streaming_append import arrived, begin_arrival
from odradek.log.producers.producer_state import DuplicateBatch, ProducerStateEntry
from odradek.log.producers.sequence_validation import check, check_epoch, check_marker
from odradek.record.end_transaction_marker import EndMarker, end_marker_batch
from odradek.record.record_batch import Batch

ARRIVALS_AFTER_WITHDRAWAL = 32  # Number of batches received as a whole after a streaming append was withdrawn.


class Leading(Leadership):
    """Leadership of one partition, with the batches that are being appended."""

    def __init__(
        self, partition: LocalReplica, info: PartitionInfo, manager: AlterPartitionManager, now: Moment
    ) -> None:
        super().__init__(partition, info, manager.view)
        self._manager = manager  # Of the ISR proposals.
        self._staging: Staging | None = None
        self._arrivals_withdrawn = 0
        self.set_followers(info, now)

    @property
    def has_staged(self) -> bool:
        return self._staging is not None

    def continue_leadership(self, info: PartitionInfo, now: Moment) -> None:
        """Continue to lead, in another epoch or with other replicas."""
        assert info.leader_epoch >= self.epoch, "leader epochs never decrease"
        self.epoch = info.leader_epoch
        self.set_followers(info, now)

    def set_followers(self, info: PartitionInfo, now: Moment) -> None:
        """Apply the replicas and the ISR, and advance the high watermark as far as they allow."""
        assert self.ended is None, "a leadership that has ended has no followers"
        manager = self._manager
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
        """End the leadership; refuse staged batches and fail requests that wait for a write with `code`."""
        assert self.ended is None, "a leadership ends once"
        assert self.positions is self.partition.positions, "a leader moves the positions of its partition"
        if self.in_sync is not None:
            self._manager.forget(self)
        self.ended = code
        # The positions of the partition continue under the next leader.
        self.positions = Positions(self.positions.high_watermark, self.positions.durable_end)
        staging, self._staging = self._staging, None
        if staging is not None:
            staging.refuse(Refused(code, f"this broker no longer leads {self.name}"))

    # Followers.

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
        in_sync, end = self.in_sync, self.log.end_offset
        assert in_sync is not None, "a leader with a follower maintains an ISR"
        eligible = self.eligible
        # A lower offset may come from another process than the session's.  Progress of the old process counts up to
        # this fetch, and live sessions report theirs again.
        if offset < before:
            self.partition.on_log_end_moved()
        in_sync.fetched(follower, offset, log_start, end, now.steady, eligible=eligible, broker_epoch=broker_epoch)
        if in_sync.expand(follower, self.positions.high_watermark, eligible) is not None:
            self._manager.submit(self, now)
        return self.advance(now) or started

    # Batches.

    def stage(self, batch: Batch, now: Moment, *, all_replicas: bool, checks_sequence: bool = True) -> Append:
        """Stage one batch as the leader; `commit` writes it.

        Raises Refused if the batch is rejected, or without a log.  A batch that its producer sent before is not written
        again and keeps its offsets.  Coordinators do not number their batches: without `checks_sequence` only the epoch
        is checked.
        """
        log, staging = self.log, self._staging
        if all_replicas and self.in_sync is not None:
            self.check_min_isr(self.in_sync)
        if staging is not None and not staging.has_room(batch, log.config.segment_bytes):
            self.commit(now)
            staging = None
        end = log.end_offset if staging is None else staging.end
        time = now.wall if log.config.log_append_time else NO_TIMESTAMP
        if batch.producer_id < 0:
            if staging is None:
                staging = self._staging = Staging(self, end)
        else:
            producer_id = batch.producer_id
            timestamp = batch.max_timestamp if time < 0 else time
            producers = log.producers
            known = producers.get(producer_id) if staging is None else self.producer(producer_id)
            after: ProducerStateEntry | None = None
            if known and checks_sequence and (known.first_offset >= 0 or producer_id not in producers.awaited):
                after = known.after_next(batch, end, timestamp)
            if after is None:  # Rare: the batch is not the producer's next one.
                after_or_place = self._after(log, known, batch, end, timestamp, checks_sequence)
                if isinstance(after_or_place, DuplicateBatch):
                    return self._append_duplicate(after_or_place, all_replicas=all_replicas)
                after = after_or_place
            if staging is None:
                staging = self._staging = Staging(self, end)
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
        """Return the producer's state after the batch at `offset`, or the batch's place if it is a duplicate.

        Raises Refused.
        """
        producer_id = batch.producer_id
        if known is None:
            known = ProducerStateEntry(producer_id)
        elif checks_sequence and (place := known.find_duplicate_batch(batch)) is not None:
            return place
        # The first batch of the transaction may be staged in the same turn and not be written yet.
        is_begun = known.has_open_transaction and known.epoch == batch.producer_epoch
        awaited = None if is_begun else log.producers.awaited.get(producer_id)
        check(known, batch, offset, awaited=awaited, checks_sequence=checks_sequence)
        return known.after(batch, offset, timestamp)

    def producer(self, producer_id: ProducerId) -> ProducerStateEntry | None:
        """Return the state of a producer once all staged batches are written; None if it is unknown."""
        staging = self._staging
        staged = staging and staging.producers and staging.producers.get(producer_id)
        return staged or self.log.producers.get(producer_id)

    def _append_duplicate(self, place: DuplicateBatch, *, all_replicas: bool) -> Append:
        """Return the place of a duplicate; if the first one is only staged, both are written or refused."""
        is_safe = place.end <= self.positions.durable_end
        needs_sync = all_replicas and self.waits_for_disk and not is_safe
        append = written_before(self, place, needs_sync=needs_sync)
        if self._staging is not None and place.end > self.log.end_offset:
            self._staging.add_duplicate(append)
        return append

    def _needs_sync(self, staging: Staging, batch: Batch, *, all_replicas: bool) -> bool:
        flush = self.partition.configs.flush
        end = staging.end + batch.last_offset_delta + 1
        return (all_replicas and self.waits_for_disk) or flush.is_due(end - self.positions.durable_end)

    def begin_arrival(self, batch: Batch, now: TimestampMs) -> Arrival | None:
        """Begin a streaming append as the leader; return None if the complete batch should be staged instead."""
        if self.ended is not None or self._staging is not None:
            return None
        log = self.log
        if self._arrivals_withdrawn:  # Others write here too, and a withdrawn batch is written twice.
            self._arrivals_withdrawn -= 1
            return None
        if batch.producer_id >= 0 and not self._is_next(log, batch):
            return None
        try:
            return begin_arrival(log, batch, self.epoch, now)
        except DiskFailed as failed:
            self.partition.disk_failed(failed)
            return None

    def _is_next(self, log: Log, batch: Batch) -> bool:
        """Return whether the batch is its producer's next one and begins no transaction; others are staged."""
        known = log.producers.get(batch.producer_id)
        return known is not None and known.expects(batch) and known.id not in log.producers.awaited

    def arrived(self, arrival: Arrival, now: Moment, *, all_replicas: bool) -> Append:
        """Complete a streaming append: the whole batch is written, and its checksum is right.

        Raises Refused if the log is lost, or if the producer has sent another batch since.
        """
        log, batch = self.log, arrival.batch
        if all_replicas and self.in_sync is not None:
            self.check_min_isr(self.in_sync)
        assert self._staging is None, "staged batches are written before any other append"
        if batch.producer_id >= 0 and not self._is_next(log, batch):
            text = f"out of order sequence number {batch.base_sequence} of producer {batch.producer_id}"
            raise Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text)
        staging = Staging(self, log.end_offset)
        needs_sync = self._needs_sync(staging, batch, all_replicas=all_replicas)
        append = staging.add(batch, NO_TIMESTAMP, needs_sync=needs_sync)
        try:
            arrived(log, arrival)
        except DiskFailed as failed:
            raise self.partition.disk_failed(failed) from failed
        self._written(staging, now)
        return append

    def forget_arrival(self, arrival: Arrival) -> None:
        """Abort a streaming append and remove what it has written."""
        if self.partition.is_online:
            try:
                self.partition.log.forget_arrival(arrival)
            except DiskFailed as failed:
                self.partition.disk_failed(failed)

    def arrival_failed(self, arrival: Arrival, error: OSError) -> Refused:
        """Abort a streaming append after a failed write; return the producer's error."""
        self.forget_arrival(arrival)
        return self.partition.disk_failed(DiskFailed.of(error, arrival.file.path))

    def on_arrival_withdrawn(self) -> None:
        self._arrivals_withdrawn = ARRIVALS_AFTER_WITHDRAWAL

    def commit(self, now: Moment) -> None:
        """Write the staged batches, and advance the high watermark as far as allowed.

        If the write fails, `refused` of each append holds the reason.
        """
        staging, self._staging = self._staging, None
        if staging is None:
            return
        try:
            log = self.log
            assert staging.appends[0].base_offset == log.end_offset, "staged batches continue the log"
            log.append_known(staging.batches, self.epoch, now.wall, staging.producers)
        except DiskFailed as failed:
            staging.refuse(self.partition.disk_failed(failed))
        except Refused as refused:
            staging.refuse(Refused(refused.code, refused.detail))  # A copy, as it is stored: see Broker._append_state.
        else:
            self._written(staging, now)

    def _written(self, staging: Staging, now: Moment) -> None:
        # Pairs with the offsets that `stage` promised: nothing else has moved the log end offset in between.
        assert self.log.end_offset == staging.end, "a written batch has the offsets it was staged with"
        self.partition.has_logged_full = False
        if self.in_sync is not None:
            self.partition.on_log_end_moved()
        self.committed(staging.visible_end, now)
        assert self.positions.high_watermark <= staging.end, "the high watermark never exceeds the log end offset"

    # Transactions.

    def check_producer_epoch(self, batch: Batch) -> None:
        """Raise Refused(INVALID_PRODUCER_EPOCH) for a batch of a past epoch."""
        known = self.producer(batch.producer_id)
        if known is not None:
            check_epoch(known, batch.producer_epoch, self.log.end_offset)

    def await_first(self, batch: Batch, now: TimestampMs, *, from_zero: bool) -> None:
        """Register the first batch of a transaction, which the coordinator has not admitted yet.

        No later batch may be written before it.  With `from_zero`, an unknown producer must begin with sequence 0.
        """
        self.log.producers.await_first(batch, from_zero=from_zero, now=now)

    def has_open_transaction(self, producer_id: ProducerId, producer_epoch: int) -> bool:
        known = self.producer(producer_id)
        return known is not None and known.has_open_transaction and known.epoch == producer_epoch

    def has_transaction_before(self, producer_id: ProducerId, producer_epoch: int) -> bool:
        """Return whether the producer has an open transaction here that is entirely of an older epoch."""
        known = self.producer(producer_id)
        return known is not None and known.has_open_transaction and known.epoch < producer_epoch

    def end_transaction(
        self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        coordinator_epoch: int,
        *,
        commit: bool,
        now: Moment,
        transaction_version: int = 0,
    ) -> Append:
        """Write the marker that ends the producer's transaction, if any, as durably as acks=all.

        Raises Refused: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, or KAFKA_STORAGE_ERROR.
        """
        self.commit(now)
        log, marker = self.log, EndMarker(commit, coordinator_epoch)
        known = log.producers.get(producer_id) or ProducerStateEntry(producer_id)
        check_marker(known, producer_epoch, marker, transaction_version)
        batch = end_marker_batch(marker, producer_id, producer_epoch, now.wall)
        staging = Staging(self, log.end_offset)
        append = staging.add(batch, NO_TIMESTAMP, needs_sync=self._needs_sync(staging, batch, all_replicas=True))
        try:
            log.append(batch, self.epoch, now.wall)
        except DiskFailed as failed:
            raise self.partition.disk_failed(failed) from failed
        self._written(staging, now)
        return append
