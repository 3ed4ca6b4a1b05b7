"""Writes to the log, and their durability: appends with and without transactions, rolls, flushes, checkpoints."""

from __future__ import annotations

from odradek.base.units import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from odradek.log.files.disk import DiskFailed
from odradek.log.log.durability import begin_flush, end_flush, is_flushed
from odradek.record.builder import RecordIn, encode_batch
from odradek.record.compression import Codec
from odradek.record.end_transaction_marker import EndMarker, end_marker_batch
from odradek.record.record_batch import Batch
from sim.logmodel import written
from sim.logprocess import LogProcess
from sim.logstate import NAME, ROOT
from sim.simdisk import Stopped


class WrittenLog(LogProcess):
    """A log that is written to. Producer -1 means none; 0 and 1 are transactional, 2 and 3 idempotent."""

    def append(self) -> None:
        producer = self.random.choice([-1, 0, 1, 2, 3])
        is_transactional = producer in (0, 1)
        count = self.random.randrange(1, 6)
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        raw = encode_batch(
            [self.record() for _ in range(count)],
            self.random.choice(list(Codec)),
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(self.epochs.get(producer, 0) if producer >= 0 else -1),
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        self.add(Batch.checked(memoryview(raw)))

    def record(self) -> RecordIn:
        random = self.random
        key = None if random.random() < 0.03 else b"k%d" % random.randrange(self.keys)
        value = None if random.random() < 0.2 else random.randbytes(random.randrange(60))
        headers = [("h", b"v")] if random.random() < 0.2 else []
        return key, value, headers, self.now - random.randrange(5)

    def add(self, batch: Batch) -> None:
        log, before = self.log, list(self.model.batches)
        base, gap = log.end_offset, self.random.random() < 0.04
        try:
            if gap:
                base = Offset(base + self.random.randrange(1, 30))
                batch.stamp(base, LeaderEpoch(self.leader_epoch))
                if self.config.log_append_time:
                    batch.stamp_log_append_time(self.now)
                log.append_as_follower([batch], self.now)
            else:
                log.append(batch, LeaderEpoch(self.leader_epoch), self.now)
        except (DiskFailed, Stopped):
            batch.stamp(base, LeaderEpoch(self.leader_epoch))
            self.versions.append([*before, written(batch)])  # It may come back.
            self.leader_epoch += 1  # Its epoch may be recorded from there on.
            raise
        one = written(batch)
        assert one.base == base, "the next offset"
        self.model.batches.append(one)
        self.add_event("append", f"{batch} of {batch.producer_id}")
        if batch.producer_id >= 0 and not batch.is_control:
            self.sequences[batch.producer_id] = (batch.last_sequence + 1) & 0x7FFFFFFF

    def end_transaction(self) -> None:
        opened = [one.id for one in self.log.producers.open_transactions()]
        producer = self.random.choice(opened) if opened else self.random.choice([0, 1])
        if self.random.random() < 0.2:
            self.epochs[producer] = self.epochs.get(producer, 0) + 1
            self.sequences[producer] = 0
        marker = EndMarker(self.random.random() < 0.5, 0)
        epoch = ProducerEpoch(self.epochs.get(producer, 0))
        self.add(end_marker_batch(marker, ProducerId(producer), epoch, self.now))

    def new_epoch(self) -> None:
        self.leader_epoch += 1

    def roll(self) -> None:
        self.log.roll(self.now)
        self.add_event("roll")

    # ------------------------------------------------------------------ flushing

    def begin_flush(self) -> None:
        if len(self.flushes) < 3:
            self.flushes.append(begin_flush(self.log))
            self.add_event("flush", f"begun, to {self.flushes[-1].end_offset}")

    def end_flush(self) -> None:
        if not self.flushes:
            self.begin_flush()
        if not self.flushes:
            return
        flush, log = self.flushes.pop(0), self.log
        try:
            self.in_thread(flush.run)
        except DiskFailed:
            if flush.has_failed and log is self.log:  # The broker takes it offline.
                self.offline()
            raise
        if log is not self.log:
            return
        end_flush(log, flush, self.now)
        self.safe = max(self.safe, log.recovery_point)
        self.high_watermark = max(self.high_watermark, log.recovery_point)
        log.producers.high_watermark_advanced(Offset(self.high_watermark))
        self.add_event("flushed", f"to {flush.end_offset}")
        if is_flushed(log) and not self.flushes:
            self.versions.clear()

    def flush(self) -> None:
        self.begin_flush()
        while self.flushes:
            self.end_flush()

    def checkpoint(self) -> None:
        checkpoint = self.directory.begin_checkpoint({NAME: Offset(self.high_watermark)})
        start = self.log.start_offset
        if checkpoint is not None:
            log = self.log
            self.in_thread(checkpoint.run)
            if checkpoint.is_done and log is self.log:
                self.disk.sync_directory(ROOT)
                self.noted_start = max(self.noted_start, min(start, self.log.start_offset))
            self.add_event(
                "checkpoint", f"cleaned to {self.log.compaction.cleaned_to}, safe to {self.log.recovery_point}"
            )
