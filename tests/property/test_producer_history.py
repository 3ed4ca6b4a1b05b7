"""Histories of producers and transactions in one partition, on a disk that tears and loses writes, against plain lists.

Producer state equals what the batches in the log lead to, whatever happened to the broker in between; and
read-committed consumers get exactly the aborted transactions to leave out.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import NamedTuple

import pytest
from simdisk import SimDisk

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs, TopicName
from odradek.base.units import TopicPartition as Name
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.kernel.cluster_view import PartitionInfo
from odradek.core.kernel.moment import Moment
from odradek.core.partition.partition import Partition
from odradek.core.partition.staging import Append
from odradek.log.files.log_config import LogConfig
from odradek.log.log.durability import begin_flush, close_log, flush_now
from odradek.log.log.log import Log
from odradek.log.log.retention import advance_start, delete_old_segments
from odradek.log.log.truncation import truncate_to
from odradek.log.producers.producer_state import BATCHES_KEPT, ProducerStateEntry
from odradek.record.builder import encode_batch
from odradek.record.record_batch import Batch, iter_batches
from support.without_followers import MANAGER

DIRECTORY = "/data/t-0"
NAME = Name(TopicName("t"), 0)
CONFIG = LogConfig(segment_bytes=2500, index_interval_bytes=300, segment_index_bytes=160, retention_bytes=6000)
INFO = PartitionInfo(BrokerId(1), LeaderEpoch(0), (BrokerId(1),), (BrokerId(1),))
CONFIGS = BrokerConfigs.parse({}).for_topic({})
SEQUENCES = 2**31
KEPT = 5
STEPS = 120


class Kept(NamedTuple):
    """One batch of the log; `commits` is None except for a marker."""

    base: int
    last: int
    producer_id: int
    epoch: int
    sequence: int
    transactional: bool
    timestamp: int
    commits: bool | None = None
    coordinator_epoch: int = -1


@dataclass
class Known:
    """State of a producer, kept in the plainest way."""

    epoch: int = -1
    batches: list[tuple[int, int, int, int]] = field(default_factory=list)
    coordinator_epoch: int = -1
    first_offset: int = -1
    last_timestamp: int = -1

    def note(self, batch: Kept) -> None:
        if batch.epoch != self.epoch:
            self.batches = []
        self.epoch, self.last_timestamp = batch.epoch, batch.timestamp
        if batch.commits is not None:
            self.coordinator_epoch, self.first_offset = batch.coordinator_epoch, -1
            return
        delta = batch.last - batch.base
        self.batches = [*self.batches, ((batch.sequence + delta) % SEQUENCES, batch.last, delta, batch.timestamp)][
            -KEPT:
        ]
        if batch.transactional and self.first_offset < 0:
            self.first_offset = batch.base

    def verdict(self, batch: Batch) -> ErrorCode | int:
        """Return NONE, an error, or the original offset of a repeated batch."""
        same = ((batch.base_sequence + batch.last_offset_delta) % SEQUENCES, batch.last_offset_delta)
        for last, offset, delta, _ in self.batches:
            if batch.producer_epoch == self.epoch and (last, delta) == same:
                return offset - delta
        if batch.producer_epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        following = 0
        if batch.producer_epoch == self.epoch and self.batches:
            following = (self.batches[-1][0] + 1) % SEQUENCES
        if self.epoch >= 0 and batch.base_sequence != following:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if self.first_offset >= 0 and not batch.is_transactional:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE

    def fits(self, producer: ProducerStateEntry) -> bool:
        """Compare with a snapshot, which keeps five batches, and of the last batch's and marker's times the later."""
        theirs, ours = [batch[:3] for batch in producer.batches], [batch[:3] for batch in self.batches]
        return (producer.epoch, producer.coordinator_epoch, producer.first_offset, producer.last_timestamp) == (
            self.epoch,
            self.coordinator_epoch,
            self.first_offset,
            self.last_timestamp,
        ) and theirs == ours[-BATCHES_KEPT:]


def known_by(batches: list[Kept]) -> dict[int, Known]:
    known: dict[int, Known] = {}
    for batch in batches:
        known.setdefault(batch.producer_id, Known()).note(batch)
    return known


class Transaction(NamedTuple):
    producer_id: int
    first: int
    last: int | None
    aborted: bool


def transactions(batches: list[Kept]) -> list[Transaction]:
    found, opened = [], {}
    for batch in batches:
        if batch.commits is None and batch.transactional:
            opened.setdefault(batch.producer_id, batch.base)
        elif batch.commits is not None and batch.producer_id in opened:
            found.append(Transaction(batch.producer_id, opened.pop(batch.producer_id), batch.base, not batch.commits))
    return found + [Transaction(producer_id, first, None, False) for producer_id, first in opened.items()]


class Writer:
    """A producer that sends valid batches most of the time."""

    def __init__(self, random: Random, producer_id: int) -> None:
        self.random = random
        self.id = producer_id
        self.epoch = 0
        self.sequence = random.choice([0, 0, SEQUENCES - 5])
        self.sent: list[bytes] = []
        self.transacts = random.random() < 0.7

    def batch(self, now: int) -> bytes:
        random = self.random
        if self.sent and random.random() < 0.25:
            return random.choice(self.sent[-7:])
        if random.random() < 0.05:
            self.epoch, self.sequence = self.epoch + 1, 0
        odd = random.random() < 0.1
        sequence = (self.sequence + random.choice([-2, -1, 1, 5])) % SEQUENCES if odd else self.sequence
        count = random.randint(1, 4)
        raw = bytes(
            encode_batch(
                [(None, b"v" * random.randint(0, 150), (), now) for _ in range(count)],
                producer_id=ProducerId(self.id),
                producer_epoch=ProducerEpoch(max(self.epoch - (random.random() < 0.04), 0)),
                base_sequence=sequence,
                is_transactional=self.transacts and random.random() < 0.98,
            )
        )
        if not odd:
            self.sequence = (sequence + count) % SEQUENCES
            self.sent.append(raw)
        return raw


class Story:
    """One partition, and its expected contents."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimDisk()
        self.disk.make_directory(DIRECTORY)
        self.disk.sync_directory("")
        self.disk.sync_directory("/data")
        self.now = TimestampMs(1_700_000_000_000)
        self.batches: list[Kept] = []
        self.writers = [Writer(self.random, number) for number in range(4)]
        self.checkpoint = (Offset(0), Offset(0))
        self.open(clean=False)
        self.known = known_by([])

    @property
    def moment(self) -> Moment:
        return Moment(self.now, self.now)

    def open(self, *, clean: bool) -> None:
        recovery_point, start = self.checkpoint
        self.log = Log.open(
            self.disk,
            DIRECTORY,
            replace(CONFIG, preallocate=self.random.random() < 0.2),
            self.now,
            recovery_point=recovery_point,
            clean_shutdown=clean,
            start_offset=start,
        )
        self.log.on_recovery_point_lowered = lambda _: self.write_checkpoint()
        flush_now(self.log)
        self.partition = Partition(NAME, self.log, INFO, CONFIGS, MANAGER)
        self.partition.lead(INFO, self.moment)

    # ---------------------------------------------------------------- what a broker does

    def turn(self, *, room: int | None = None) -> None:
        """Stage some batches in one turn, and write them at its end, or not."""
        staged: list[tuple[Append, Kept]] = []
        known = {key: replace(one) for key, one in self.known.items()}
        for _ in range(self.random.choice([1, 1, 2, 5]) if room is None else 3):  # A segment has space for three.
            self.now = TimestampMs(self.now + 7)
            batch = Batch.checked(memoryview(bytearray(self.random.choice(self.writers).batch(self.now))))
            expected = known.get(batch.producer_id, Known()).verdict(batch)
            kept = self.stage(batch, expected, staged)
            if kept is not None:
                known.setdefault(batch.producer_id, Known()).note(kept)
        self.disk.room = room
        self.partition.leader().commit(self.moment)
        self.disk.room = None
        refused = {append.refused is not None for append, _ in staged}
        if refused == {False}:
            self.batches += dict.fromkeys(kept for _, kept in staged)
            self.known = known
        elif refused:
            assert refused == {True}, "what was staged together has one fate"
            self.disk.open(self.log.segments[-1].path).sync()  # Otherwise it may come back in a crash.

    def stage(self, batch: Batch, expected: ErrorCode | int, staged: list[tuple[Append, Kept]]) -> Kept | None:
        """Stage a batch, and record it if it is new."""
        try:
            append = self.partition.leader().stage(batch, self.moment, all_replicas=self.random.random() < 0.7)
        except Refused as refused:
            assert refused.code is expected
            return None
        if not isinstance(expected, ErrorCode):
            assert append.base_offset == expected
            first = next((kept for _, kept in staged if kept.base == expected), None)
            if first is not None:
                staged.append((append, first))
            return None
        assert expected is ErrorCode.NONE
        kept = Kept(
            append.base_offset,
            append.end - 1,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.is_transactional,
            batch.max_timestamp,
        )
        staged.append((append, kept))
        return kept

    def end(self) -> None:
        writer = self.random.choice(self.writers)
        known = self.known.get(writer.id, Known())
        epoch = max(known.epoch, 0)
        if self.random.random() < 0.4:
            epoch += 1
            writer.epoch, writer.sequence = epoch, 0
        coordinator_epoch, commit = (
            max(known.coordinator_epoch, 0) + self.random.choice([0, 0, 1]),
            self.random.random() < 0.4,
        )
        append = self.partition.leader().end_transaction(
            ProducerId(writer.id), ProducerEpoch(epoch), coordinator_epoch, commit=commit, now=self.moment
        )
        assert append.needs_sync
        kept = Kept(append.base_offset, append.end - 1, writer.id, epoch, -1, True, self.now, commit, coordinator_epoch)
        self.batches.append(kept)
        self.known.setdefault(writer.id, Known()).note(kept)

    def flush(self) -> None:
        flush = begin_flush(self.log)
        flush.run()
        self.partition.flushed(flush, self.moment)

    def roll(self) -> None:
        self.log.roll(self.now)

    def write_checkpoint(self) -> None:
        self.checkpoint = (self.log.recovery_point, self.log.start_offset)

    def truncate(self) -> None:
        """Truncate the log, never below visible records."""
        end = Offset(self.random.randint(self.partition.positions.high_watermark, self.log.end_offset))
        truncate_to(self.log, end, self.now)
        self.batches = [batch for batch in self.batches if batch.last < end]
        flush_now(self.log)
        self.partition = Partition(NAME, self.log, INFO, CONFIGS, MANAGER)
        self.partition.lead(INFO, self.moment)
        self.relearn()

    def delete_records(self) -> None:
        low, high = self.log.start_offset, self.partition.positions.high_watermark
        if low < high:
            advance_start(self.log, Offset(self.random.randint(low, high)))

    def retention(self) -> None:
        delete_old_segments(self.log, self.now, self.partition.positions.high_watermark)
        self.log.reaper.reap(TimestampMs(self.now + 100_000))

    # ---------------------------------------------------------------- what happens to it

    def stop_and_start(self) -> None:
        close_log(self.log, self.now)
        self.write_checkpoint()
        self.open(clean=True)
        self.relearn()

    def kill(self) -> None:
        self.disk = self.disk.kill()
        end = self.log.end_offset
        self.open(clean=False)
        assert self.log.end_offset == end
        self.relearn()

    def crash(self) -> None:
        self.disk = self.disk.crash(self.random)
        self.open(clean=False)
        log = self.log
        # Unsynced records may be lost up to beyond the log start: then the log restarts there.
        is_new = log.start_offset == log.end_offset == log.segments[0].base_offset and not len(log.producers)
        self.batches = [batch for batch in self.batches if batch.last < log.end_offset and not is_new]
        self.relearn()

    def relearn(self) -> None:
        self.known = known_by(self.batches)
        self.compare()
        for one in self.log.producers:
            known = self.known[one.id]
            known.batches = known.batches[len(known.batches) - len(one.batches) :]

    # ---------------------------------------------------------------- what always holds

    def compare(self) -> None:
        found = {one.id: one for one in self.log.producers}
        assert found.keys() == self.known.keys()
        for producer_id, producer in found.items():
            assert self.known[ProducerId(producer_id)].fits(producer), (producer, self.known[producer_id])

    def check(self) -> None:
        self.compare()
        high_watermark, start = self.partition.positions.high_watermark, self.log.start_offset
        unstable = [one.first for one in transactions(self.batches) if one.last is None or one.last >= high_watermark]
        stable = max(min([*unstable, high_watermark]), min(start, high_watermark))
        assert self.partition.last_stable_offset == stable
        self.read_committed(stable)

    def read_committed(self, stable: int) -> None:
        if self.log.start_offset > stable:
            return
        offset = self.random.randint(self.log.start_offset, stable)
        readable = self.partition.read(
            offset, self.random.choice([0, 100, 1000, 9000]), at_least_one=True, read_committed=True
        )
        read = [(batch.base_offset, batch.last_offset) for batch in iter_batches(readable.records.read())]
        expected = [(batch.base, batch.last) for batch in self.batches if batch.last >= offset and batch.last < stable]
        assert read == expected[: len(read)]
        assert bool(read) == bool(expected)
        end = read[-1][1] + 1 if read else offset
        listed = {(one.producer_id, one.first_offset, one.last_offset) for one in readable.aborted}
        aborted = [one for one in transactions(self.batches) if one.aborted and (one.last or 0) >= offset]
        assert {one[:3] for one in aborted if one.first < end and read} <= listed
        assert listed <= {one[:3] for one in aborted}


WEIGHTS = {
    "turn": 30.0,
    "end": 10,
    "flush": 5,
    "roll": 1.5,
    "write_checkpoint": 2,
    "truncate": 1,
    "delete_records": 0.7,
    "retention": 1.2,
    "stop_and_start": 1,
    "kill": 1.5,
    "crash": 1.5,
}


def one_history(seed: int) -> None:
    random, story = Random(seed), Story(seed)
    for name in random.choices(list(WEIGHTS), list(WEIGHTS.values()), k=STEPS):
        if name == "turn" and random.random() < 0.05:
            story.turn(room=random.randint(0, 400))
        else:
            getattr(story, name)()
        story.check()


@pytest.mark.parametrize("seed", range(40))
def test_long_producer_histories_match_lists(seed: int) -> None:
    one_history(seed)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_many_more_producer_histories_match_lists() -> None:
    for seed in range(10_000, 20_000):
        try:
            one_history(seed)
        except BaseException as failure:
            raise AssertionError(f"seed {seed}") from failure
