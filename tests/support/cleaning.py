"""Compaction of logs with keyed records, some in transactions, and checks of the result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random

from odradek.base.limits import UNPACKED_BYTES_MAX
from odradek.base.units import MINUTE_MS, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
from odradek.log.compaction.cleanable import LogToClean, cleanable
from odradek.log.compaction.cleaner import Cleaning, Options
from odradek.log.compaction.replacement import swap_in
from odradek.log.log.durability import flush_now
from odradek.log.log.log import Log
from odradek.record.batch_filter import RetentionRules
from odradek.record.builder import RecordIn, encode_batch
from odradek.record.compression import Codec
from odradek.record.end_transaction_marker import EndMarker, end_marker, end_marker_batch
from odradek.record.record_batch import Batch, iter_batches
from odradek.record.records import Record, iter_records
from support.logs import T0

MIB = 1 << 20


def options(log: Log, now: TimestampMs, memory_bytes: int = MIB, io_bytes: int = 4096) -> Options:
    rules = RetentionRules(now, TimestampMs(now + log.config.delete_retention_ms), UNPACKED_BYTES_MAX)
    return Options(memory_bytes, io_bytes, 0.9, bytes(range(16)), rules)


def begin(log: Log, now: TimestampMs, memory_bytes: int = MIB, io_bytes: int = 4096) -> tuple[Cleaning, LogToClean]:
    log.producers.high_watermark_advanced(log.recovery_point)
    found = cleanable(log, now, log.recovery_point)
    return Cleaning(log, found, options(log, now, memory_bytes, io_bytes)), found


def compact(log: Log, now: TimestampMs = T0, memory_bytes: int = MIB, io_bytes: int = 4096) -> Cleaning:
    """Run one pass over all sealed segments, as the broker does, and rename all files."""
    log.settle()
    for number in range(3):
        if log.compaction.is_swapping:  # A call has failed, and is retried some seconds later.
            log.reaper.reap(TimestampMs(now + number * MINUTE_MS))
    assert not log.compaction.is_swapping, "no pass begins before that"
    flush_now(log, now)
    cleaning, _ = begin(log, now, memory_bytes, io_bytes)
    log.compaction.cleaning = cleaning
    cleaning.build_map(lambda _: None)
    swap_all(log, cleaning, now)
    return cleaning


def swap_all(log: Log, cleaning: Cleaning, now: TimestampMs) -> None:
    """Clean every group of a pass whose map is built, and rename all files."""
    while not cleaning.is_over:
        group = cleaning.clean(lambda _: None)
        if group.segments:
            assert swap_in(log, [one.segment for one in group.sources], group.segments, now)
            cleaning.swapped_in()
    log.compaction.cleaned(cleaning.end)
    log.compaction.cleaning = None
    log.reaper.reap(now)


@dataclass
class Seen:
    """A record as seen by a read-committed consumer."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


def seen_of(record: Record) -> Seen:
    return Seen(record.offset, record.key, record.value, record.timestamp, tuple(record.headers))


def seen_in(batch: Batch) -> tuple[Seen, ...]:
    """Return the records of a batch; each batch of a log is decoded once."""
    return _seen_in(bytes(batch.view))


@lru_cache(maxsize=1_024)
def _seen_in(data: bytes) -> tuple[Seen, ...]:
    return tuple(map(seen_of, iter_records(Batch.trusted(memoryview(data)))))


def batches_of(log: Log) -> list[Batch]:
    found = []
    for segment in log.segments:
        data = segment.file.pread(0, segment.size)
        found += [Batch.verified(batch.view) for batch in iter_batches(data)]
    return found


def committed(log: Log, upto: Offset | None = None, max_bytes: int = 1) -> list[Seen]:
    """Read the log from its start as a consumer with isolation.level=read_committed does."""
    offset, end = log.start_offset, log.end_offset if upto is None else upto
    seen: list[Seen] = []
    while offset < end:
        records = log.read(offset, max_bytes, end)
        if not records.size:
            break
        aborted = sorted((one.first_offset, one.producer_id) for one in log.aborted(offset, records, end))
        undone: set[int] = set()
        for batch in iter_batches(records.read()):
            offset = batch.next_offset
            while aborted and aborted[0][0] <= batch.last_offset:
                undone.add(aborted.pop(0)[1])
            if batch.is_control:
                marker = end_marker(batch)
                if marker is not None and not marker.is_commit:
                    undone.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in undone):
                seen += seen_in(batch)
    return [one for one in seen if one.offset >= log.start_offset]


def latest(seen: Iterable[Seen]) -> dict[bytes, bytes]:
    """Return the last value of each key, without keys whose last record is a tombstone."""
    last: dict[bytes, bytes | None] = {}
    for one in seen:
        if one.key is not None:
            last[one.key] = one.value
    return {key: value for key, value in last.items() if value is not None}


@dataclass
class Writer:
    """A writer of random batches of keyed records, determined by its random numbers."""

    log: Log
    random: Random
    keys: int = 20
    transactional: int = 2
    idempotent: int = 2
    codecs: tuple[Codec, ...] = tuple(Codec)
    now: TimestampMs = T0
    sequences: dict[int, int] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)
    epochs: dict[int, int] = field(default_factory=dict)

    def write(self, count: int) -> None:
        for _ in range(count):
            self.step()

    def step(self) -> None:
        choice = self.random.random()
        self.now = TimestampMs(self.now + self.random.randrange(3))
        if choice < 0.1:
            self.log.roll(self.now)
        elif choice < 0.3 and self.open:
            self.end(self.random.choice(sorted(self.open)), commit=self.random.random() < 0.5)
        else:
            self.batch(self.random.choice([-1, *range(self.transactional + self.idempotent)]))

    def end(self, producer: int, *, commit: bool) -> None:
        self.open.discard(producer)
        epoch = ProducerEpoch(self.epochs.get(producer, 0))
        marker = end_marker_batch(EndMarker(commit, 0), ProducerId(producer), epoch, self.now)
        self.log.append(marker, LeaderEpoch(0), self.now)

    def batch(self, producer: int) -> None:
        is_transactional = 0 <= producer < self.transactional
        records: list[RecordIn] = []
        for _ in range(self.random.randrange(1, 6)):
            key = b"k%d" % self.random.randrange(self.keys)
            value = None if self.random.random() < 0.15 else self.random.randbytes(self.random.randrange(40))
            headers = [("h", b"v")] if self.random.random() < 0.2 else []
            records.append((key, value, headers, self.now - self.random.randrange(5)))
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        raw = encode_batch(
            records,
            self.random.choice(self.codecs),
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(self.epochs.get(producer, 0) if producer >= 0 else -1),
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        self.log.append(Batch.checked(memoryview(raw)), LeaderEpoch(0), self.now)
        if producer >= 0:
            self.sequences[producer] = sequence + len(records)
        if is_transactional:
            self.open.add(producer)


def markers_of(log: Log) -> list[tuple[int, int]]:
    return [(batch.base_offset, batch.producer_id) for batch in batches_of(log) if end_marker(batch) is not None]
