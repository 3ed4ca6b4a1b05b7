"""A follower's producers and aborted transactions: correct after any truncation and restart.

Its state is compared with all batches of its log, read from the start, and its .txnindex files with its leader's.
"""

from __future__ import annotations

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
from odradek.core.replication.follower_log import append_fetched, truncate_log
from odradek.log.files.log_config import LogConfig
from odradek.log.log.durability import close_log, flush_now
from odradek.log.log.log import Log
from odradek.log.log.truncation import truncate_to
from odradek.log.producers.producer_state import ProducerStateEntry, ProducerStateManager
from odradek.log.segment.transaction_index import AbortedTxn
from odradek.record.builder import encode_batch
from odradek.record.end_transaction_marker import EndMarker, end_marker, end_marker_batch
from odradek.record.record_batch import Batch, iter_batches
from support.without_followers import MANAGER

LEADER, FOLLOWER = "/leader/t-0", "/follower/t-0"
NAME = Name(TopicName("t"), 0)
CONFIG = LogConfig(segment_bytes=1200, index_interval_bytes=300, segment_index_bytes=160, file_delete_delay_ms=0)
CONFIGS = BrokerConfigs.parse({}).for_topic({})
NOW = TimestampMs(1_700_000_000_000)
MOMENT = Moment(NOW, 0)
STEPS = 120
BOTH = (BrokerId(1), BrokerId(2))


class Known(NamedTuple):
    """Significant state of a producer; snapshots keep only its last batch."""

    epoch: int
    last_sequence: int
    coordinator_epoch: int
    first_offset: int

    @classmethod
    def of(cls, one: ProducerStateEntry) -> Known:
        return cls(one.epoch, one.last_sequence, one.coordinator_epoch, one.first_offset)


def known_producers(producers: ProducerStateManager) -> dict[int, Known]:
    return {one.id: Known.of(one) for one in producers}


def batches(log: Log) -> list[Batch]:
    found: list[Batch] = []
    offset = log.start_offset
    while offset < log.end_offset:
        found += iter_batches(log.read(offset, 1 << 20, log.end_offset).read())
        offset = found[-1].next_offset
    return found


def replay(log: Log) -> tuple[ProducerStateManager, list[AbortedTxn]]:
    """Return the state that all batches of a log lead to."""
    producers, aborted = ProducerStateManager(), []
    for batch in batches(log):
        if batch.producer_id < 0:
            continue
        if not batch.is_control:
            producers.note(batch)
        elif (marker := end_marker(batch)) is not None:
            ended = producers.apply_end_marker(marker, batch)
            if ended is not None and not ended.is_commit:
                aborted.append(ended.as_aborted())
    return producers, aborted


def index_entries(log: Log) -> list[AbortedTxn]:
    """Return the contents of a log's .txnindex files, and entries not yet in them."""
    found: list[AbortedTxn] = []
    for segment in log.segments:
        these, _ = segment.transactions.overlapping(Offset(0), log.end_offset)
        found += these
    return found


class History:
    """A leader, replaced after each truncation, and its follower."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimDisk()
        for directory in ("/leader", "/follower", LEADER, FOLLOWER):
            self.disk.make_directory(directory)
        self.epoch = LeaderEpoch(0)
        self.restarts = seed % 2  # A log that never restarts is checked more closely.
        self.was_restarted = False
        self.leader = Log.open(self.disk, LEADER, CONFIG, NOW)
        self.partition = self.opened(Offset(0), is_clean=False)

    @property
    def log(self) -> Log:
        return self.partition.log

    def opened(self, high_watermark: Offset, *, is_clean: bool) -> Partition:
        log = Log.open(self.disk, FOLLOWER, CONFIG, NOW, clean_shutdown=is_clean)
        flush_now(log, NOW)
        info = PartitionInfo(BrokerId(2), self.epoch, BOTH, BOTH)
        return Partition(NAME, log, info, CONFIGS, MANAGER, high_watermark=high_watermark)

    def run(self) -> None:
        acts = {self.append: 12, self.follow: 6, self.cut: 2, self.restart: self.restarts}
        for act in self.random.choices(list(acts), list(acts.values()), k=STEPS):
            act()
            self.check()
        while self.log.end_offset < self.leader.end_offset:
            self.follow()
            self.check()
        assert known_producers(self.log.producers) == known_producers(self.leader.producers)
        assert index_entries(self.log) == index_entries(self.leader)
        self.partition.advance_high_watermark(self.log.end_offset)
        assert self.log.producers.open_transactions() or self.partition.last_stable_offset == self.log.end_offset
        self.leads()

    def append(self) -> None:
        producer = ProducerId(self.random.randrange(4))  # The last two write in transactions.
        was = self.leader.producers.get(producer) or ProducerStateEntry(producer, ProducerEpoch(0))
        if producer > 1 and self.random.random() < 0.3:
            epoch = ProducerEpoch(was.epoch + self.random.randrange(2))
            marker = EndMarker(self.random.random() < 0.5, self.random.randrange(3))
            batch = end_marker_batch(marker, producer, epoch, NOW)
        else:
            batch = records(producer, was, self.random.randint(1, 3), self.random.randrange(300))
        self.leader.append(batch, self.epoch, NOW)

    def follow(self) -> None:
        """Fetch some batches, and the high watermark."""
        data = self.leader.read(self.log.end_offset, self.random.choice([1, 500, 5000]), self.leader.end_offset)
        append_fetched(self.partition, memoryview(bytearray(data.read())), self.leader.start_offset, NOW)
        if self.random.random() < 0.2:
            self.partition.advance_high_watermark(self.log.end_offset)

    def cut(self) -> None:
        """Elect another leader, which lacks uncommitted records and has different ones in their place."""
        high_watermark = self.partition.positions.high_watermark
        bounds = [one.base_offset for one in batches(self.leader) if one.base_offset >= high_watermark]
        offset = self.random.choice([*bounds, self.leader.end_offset])
        truncate_to(self.leader, offset, NOW)
        truncate_log(self.partition, offset, NOW)
        self.epoch = LeaderEpoch(self.epoch + 1)

    def restart(self) -> None:
        self.was_restarted = True
        is_clean = self.random.random() < 0.5
        if is_clean:
            close_log(self.log, NOW)
        self.partition = self.opened(self.partition.positions.high_watermark, is_clean=is_clean)

    def check(self) -> None:
        producers, aborted = replay(self.log)
        assert known_producers(self.log.producers) == known_producers(producers)
        assert index_entries(self.log) == aborted
        producers.high_watermark_advanced(self.partition.positions.high_watermark)
        high_watermark = self.partition.positions.high_watermark
        # A transaction that ended above the high watermark is stable after a restart: its decision precedes its marker.
        most = high_watermark if self.was_restarted else min(producers.first_unstable, high_watermark)
        assert min(producers.first_unstable, high_watermark) <= self.partition.last_stable_offset <= most

    def leads(self) -> None:
        """Make the follower lead: retries of the last batches are not written twice, and older epochs are fenced."""
        info = self.partition.info._replace(leader=BrokerId(1), leader_epoch=LeaderEpoch(self.epoch + 1))
        self.partition.lead(info, MOMENT)
        leading, end = self.partition.leader(), self.log.end_offset
        last = {one.producer_id: one for one in batches(self.log) if not one.is_control}
        for producer, batch in last.items():
            was = self.log.producers.get(ProducerId(producer))
            assert was is not None
            if was.batches and was.epoch == batch.producer_epoch:
                again = leading.stage(Batch.trusted(bytearray(batch.view)), MOMENT, all_replicas=True)
                assert again.base_offset == batch.base_offset
            if was.epoch:
                older = records(was.id, was._replace(epoch=ProducerEpoch(was.epoch - 1), batches=()), 1, 1)
                with pytest.raises(Refused) as refused:
                    leading.stage(older, MOMENT, all_replicas=True)
                assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
        assert self.log.end_offset == end


def records(producer: ProducerId, was: ProducerStateEntry, count: int, size: int) -> Batch:
    raw = encode_batch(
        [(None, b"x" * size, (), NOW)] * count,
        producer_id=producer,
        producer_epoch=was.epoch,
        base_sequence=was.last_sequence + 1,
        is_transactional=producer > 1,
    )
    return Batch.checked(memoryview(raw))


@pytest.mark.parametrize("seed", range(60))
def test_a_followers_producers_match_its_log(seed: int) -> None:
    History(seed).run()
