"""The replicas of one partition on separate disks, a controller that elects, and a network that loses and repeats.

The followers are real: core/replication/follower.py with real logs. The leader is as simple as possible: it appends,
responds to fetches, and its high watermark is the least log end of the in-sync replicas. The controller and the current
leader change the ISR together at once; all others learn of it when they are notified.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import NamedTuple

from simdisk import SimDisk

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import (
    NO_BROKER,
    NO_EPOCH,
    BrokerId,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicName,
    TopicPartition,
)
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.kernel.cluster_view import PartitionInfo
from odradek.core.kernel.moment import Moment
from odradek.core.partition.partition import Partition
from odradek.core.replication.follower import Following
from odradek.core.replication.leader_endpoint import EpochEnd, Fetch, Fetched, LeaderRequest, OffsetsForLeaderEpoch
from odradek.log.files.log_config import LogConfig
from odradek.log.log.durability import begin_flush, end_flush, flush_now
from odradek.log.log.flush import Flush
from odradek.log.log.log import Log
from odradek.record.builder import encode_batch
from odradek.record.end_transaction_marker import EndMarker, end_marker_batch
from odradek.record.record_batch import Batch, iter_batches
from support.without_followers import MANAGER

DIRECTORY = "/data/t-0"
NAME = TopicPartition(TopicName("t"), 0)
CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=300, segment_index_bytes=160, file_delete_delay_ms=0)
CONFIGS = BrokerConfigs.parse({}).for_topic({})
UNTOLD = PartitionInfo(NO_BROKER, NO_EPOCH, (), ())
BACKOFF_MS = 1000
TRANSACTIONAL = ProducerId(9)

Contents = dict[int, bytes]  # Batches by their base offsets, from the log start on.
Answer = Fetched | tuple[ErrorCode, EpochEnd] | tuple[ErrorCode, Offset, Offset]


def contents(log: Log) -> Contents:
    found: Contents = {}
    offset = log.start_offset
    while offset < log.end_offset:
        data = log.read(offset, 1 << 20, log.end_offset).read()
        for batch in iter_batches(data):
            found[batch.base_offset] = bytes(batch.view)
            offset = batch.next_offset
        if not data:
            break
    return found


def epoch_of(raw: bytes) -> int:
    return Batch.trusted(memoryview(raw)).leader_epoch


def end_of(raw: bytes) -> int:
    return Batch.trusted(memoryview(raw)).next_offset


class State(NamedTuple):
    """The state announced by the controller."""

    leader: int
    epoch: LeaderEpoch


class Leadership:
    """A leader's view of its followers: where their fetches have started in its epoch."""

    def __init__(self, epoch: LeaderEpoch, isr: set[int], epoch_start: Offset) -> None:
        self.epoch = epoch
        self.isr = isr
        self.ends: dict[int, Offset] = {}
        self.epoch_start = epoch_start


class Replica:
    """One broker with its disk; `high_watermark` is its value in replication-offset-checkpoint."""

    def __init__(self, number: int, *, diverging_in_fetch: bool) -> None:
        self.number = number
        self.diverging_in_fetch = diverging_in_fetch
        self.now = TimestampMs(1_700_000_000_000)
        self.disk = SimDisk()
        self.disk.make_directory(DIRECTORY)
        self.disk.sync_directory("")
        self.disk.sync_directory("/data")
        self.checkpoint = (Offset(0), Offset(0))  # Recovery point and log start offset.
        self.high_watermark = Offset(0)
        self.open()

    def open(self) -> None:
        recovery_point, start = self.checkpoint
        log = Log.open(self.disk, DIRECTORY, CONFIG, self.now, recovery_point=recovery_point, start_offset=start)
        log.on_recovery_point_lowered = lambda _: self.write_checkpoint()
        if log.recovery_point < log.end_offset:
            flush_now(log, self.now)
        self.partition = Partition(NAME, log, UNTOLD, CONFIGS, MANAGER)
        # A durable record is not committed yet: other replicas may lack it.
        committed = Offset(max(log.start_offset, min(self.high_watermark, log.end_offset)))
        self.partition.positions.high_watermark = committed
        self.led: Leadership | None = None
        self.following: Following | None = None
        self.applied = State(-1, NO_EPOCH)
        self.flushes: list[Flush] = []

    @property
    def moment(self) -> Moment:
        return Moment(self.now, self.now)

    @property
    def log(self) -> Log:
        return self.partition.log

    @property
    def visible_end(self) -> Offset:
        return self.partition.positions.high_watermark

    def write_checkpoint(self) -> None:
        self.checkpoint = (self.log.recovery_point, self.log.start_offset)

    def take(self, state: State, isr: set[int]) -> None:
        """Lead or follow, as announced by the controller."""
        self.applied = state
        info = PartitionInfo(BrokerId(state.leader), state.epoch, (), ())
        if state.leader == self.number:
            self.partition.lead(info, self.moment)
            self.following = None
            self.led = Leadership(state.epoch, set(isr), self.log.end_offset)
        else:
            self.partition.follow(info)
            self.led = None
            self.following = Following(
                self.partition,
                BrokerId(state.leader),
                state.epoch,
                BACKOFF_MS,
                diverging_in_fetch=self.diverging_in_fetch,
            )

    def end_flush(self) -> None:
        flush = self.flushes.pop(0)
        flush.run()
        if self.led is None:
            self.partition.flushed(flush, self.moment)
        else:
            end_flush(self.log, flush, self.now)
            self.partition.positions.advance_durable_end(flush.end_offset)

    def begin_flush(self) -> None:
        self.flushes.append(begin_flush(self.log))

    # As the leader.

    def append(self, random: Random) -> None:
        """Append a producer's batch, or the end of a transaction; now and then after a gap left by compaction."""
        assert self.led is not None
        self.now = TimestampMs(self.now + 7)
        batch = self._marker(random) if random.random() < 0.1 else self._records(random)
        # The start of an epoch is not a gap, since no epoch would reveal a follower's earlier records there.
        if self.log.epochs.latest != self.led.epoch or random.random() < 0.85:
            self.log.append(batch, self.led.epoch, self.now)
        else:
            batch.stamp(Offset(self.log.end_offset + random.choice([0, 1, 5])), self.led.epoch)
            self.log.append_as_follower([batch], self.now)
        self.advance()

    def _marker(self, random: Random) -> Batch:
        marker = EndMarker(random.random() < 0.5, 0)
        return end_marker_batch(marker, TRANSACTIONAL, ProducerEpoch(0), self.now)

    def _records(self, random: Random) -> Batch:
        producer = ProducerId(random.choice([1, 2, TRANSACTIONAL]))
        known = self.log.producers.get(producer)
        raw = encode_batch(
            [(None, bytes([random.randrange(256)]) * random.randint(1, 200), (), self.now)] * random.randint(1, 4),
            producer_id=producer,
            producer_epoch=ProducerEpoch(0),
            base_sequence=known.last_sequence + 1 if known is not None else 0,
            is_transactional=producer == TRANSACTIONAL,
        )
        return Batch.checked(memoryview(raw))

    def advance(self) -> None:
        """Raise the high watermark to the least log end of the in-sync replicas."""
        led = self.led
        assert led is not None
        others = led.isr - {self.number}
        if others <= led.ends.keys():
            self.partition.advance_high_watermark(min([self.log.end_offset, *(led.ends[one] for one in others)]))

    def answer(
        self, follower: int, request: LeaderRequest, epoch: LeaderEpoch, max_bytes: int, *, checks_divergence: bool
    ) -> Answer:
        try:
            self.partition.check_leader(epoch)
            if isinstance(request, Fetch):
                return self._fetch(follower, request, max_bytes, checks_divergence=checks_divergence)
            if isinstance(request, OffsetsForLeaderEpoch):
                return ErrorCode.NONE, EpochEnd(*self.partition.end_of_epoch(request.leader_epoch))
        except Refused as refused:
            if isinstance(request, Fetch):
                return Fetched(refused.code, memoryview(b""))
            if isinstance(request, OffsetsForLeaderEpoch):
                return refused.code, EpochEnd(NO_EPOCH, Offset(-1))
            return refused.code, Offset(-1), Offset(-1)
        return ErrorCode.NONE, self.log.start_offset, self.log.end_offset

    def _fetch(self, follower: int, request: Fetch, max_bytes: int, *, checks_divergence: bool) -> Fetched:
        log, led = self.log, self.led
        assert led is not None
        if request.offset < log.start_offset:
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE)
        if checks_divergence:
            parted = self.partition.diverging_epoch(request.last_fetched_epoch, request.offset)
            if parted is not None:
                return Fetched(ErrorCode.NONE, memoryview(b""), diverging=EpochEnd(*parted))
        data = log.read(request.offset, max_bytes, log.end_offset).read()
        led.ends[follower] = request.offset
        self.advance()
        return Fetched(ErrorCode.NONE, memoryview(bytearray(data)), self.visible_end, log.start_offset)


def are_equal_from(start: int, one: Contents, other: Contents, removed: Mapping[int, bytes], upto: int) -> bool:
    """Return True if both have the same batches from `start` to `upto`, except compacted ones."""
    bases = {base for base in one.keys() | other.keys() if base < upto and base not in removed}
    return all(one.get(base) == other.get(base) for base in bases if _end(base, one, other) > start)


def _end(base: int, one: Contents, other: Contents) -> int:
    return end_of(one[base] if base in one else other[base])
