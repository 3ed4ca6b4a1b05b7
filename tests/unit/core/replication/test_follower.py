"""One follower and its leader's responses.

Histories of several are in tests/property/test_following_histories.py.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable

import pytest
from simdisk import SimDisk

from odradek.base.errors import ErrorCode
from odradek.base.units import (
    INT32_MAX,
    INT64_MAX,
    NO_EPOCH,
    NO_OFFSET,
    BrokerId,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TopicName,
)
from odradek.base.units import TopicPartition as Name
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.kernel.cluster_view import PartitionInfo
from odradek.core.kernel.moment import Moment
from odradek.core.partition.partition import Partition
from odradek.core.replication.follower import ELECTION_UNDER_WAY, SOON_MS, SOON_TRIES, TOPIC_IS_NEW, Following
from odradek.core.replication.leader_endpoint import EpochEnd, Fetch, Fetched, LeaderOffsets, OffsetsForLeaderEpoch
from odradek.log.files.log_config import LogConfig
from odradek.log.log.durability import begin_flush, flush_now
from odradek.log.log.log import Log
from odradek.record.builder import encode_batch
from odradek.record.end_transaction_marker import EndMarker, end_marker_batch
from odradek.record.record_batch import Batch
from support.invariants import check
from support.logs import T0, stored
from support.rooms import interpreted
from support.watching import fail_disk_when_notified
from support.without_followers import MANAGER

HERE, LEADER = BrokerId(1), BrokerId(2)
EPOCH = LeaderEpoch(9)
BACKOFF_MS = 1000
PRODUCER = ProducerId(7)
NO_RECORDS = memoryview(b"")
UNDEFINED = EpochEnd(NO_EPOCH, NO_OFFSET)


def sent(base: int, records: int, epoch: int, *, sequence: int = -1, size: int = 10) -> bytes:
    """Return a batch with the leader's offsets and epoch."""
    return bytes(
        encode_batch(
            [(None, b"v" * size, (), T0)] * records,
            base_offset=Offset(base),
            leader_epoch=LeaderEpoch(epoch),
            producer_id=PRODUCER if sequence >= 0 else ProducerId(-1),
            producer_epoch=ProducerEpoch(0 if sequence >= 0 else -1),
            base_sequence=sequence,
        )
    )


def answer(*batches: bytes, high_watermark: int = 0, start: int = 0) -> Fetched:
    records = memoryview(bytearray(b"".join(batches)))
    return Fetched(ErrorCode.NONE, records, Offset(high_watermark), Offset(start))


def diverging(epoch: int, end: int) -> Fetched:
    return Fetched(ErrorCode.NONE, NO_RECORDS, Offset(99), Offset(0), EpochEnd(LeaderEpoch(epoch), Offset(end)))


def refused(error: ErrorCode) -> Fetched:
    return Fetched(error, NO_RECORDS)


class Case:
    """A follower whose log has so many single-record batches of each epoch, all above the high watermark."""

    def __init__(
        self,
        epochs: Iterable[tuple[int, int]] = (),
        *,
        high_watermark: int = 0,
        diverging_in_fetch: bool = True,
        segment_bytes: int = 1 << 20,
    ) -> None:
        self.disk = SimDisk()
        self.disk.make_directory("/data/t-0")
        log = Log.open(self.disk, "/data/t-0", LogConfig(segment_bytes=segment_bytes), T0)
        info = PartitionInfo(LEADER, EPOCH, (HERE, LEADER), (HERE, LEADER))
        self.partition = Partition(Name(TopicName("t"), 0), log, info, BrokerConfigs.parse({}).for_topic({}), MANAGER)
        for epoch, count in epochs:
            for _ in range(count):
                log.append_as_follower([Batch.trusted(memoryview(sent(log.end_offset, 1, epoch)))], T0)
        self.partition.advance_high_watermark(Offset(high_watermark))
        self.following = self.follow(diverging_in_fetch=diverging_in_fetch)

    def follow(self, *, diverging_in_fetch: bool = True) -> Following:
        return Following(self.partition, LEADER, EPOCH, BACKOFF_MS, diverging_in_fetch=diverging_in_fetch)

    @property
    def log(self) -> Log:
        return self.partition.log

    @property
    def high_watermark(self) -> int:
        return self.partition.positions.high_watermark

    def fetched(self, what: Fetched) -> bool:
        query = self.following.next
        assert isinstance(query, Fetch)
        has_risen = self.following.fetched(query, what, T0)
        if self.partition.is_online:
            check(self.log)
        return has_risen

    def epoch_ended(self, what: EpochEnd, error: ErrorCode = ErrorCode.NONE) -> None:
        query = self.following.next
        assert isinstance(query, OffsetsForLeaderEpoch)
        self.following.epoch_ended(query, error, what, T0)

    def leader_offsets(self, start: int, end: int, error: ErrorCode = ErrorCode.NONE) -> None:
        query = self.following.next
        assert isinstance(query, LeaderOffsets)
        self.following.leader_offsets(query, error, Offset(start), Offset(end), T0)


def end(epoch: int, offset: int) -> EpochEnd:
    return EpochEnd(LeaderEpoch(epoch), Offset(offset))


def fetch(offset: int, epoch: int) -> Fetch:
    return Fetch(Offset(offset), LeaderEpoch(epoch))


# Replicating.


def test_an_empty_log_is_fetched_from_its_end_without_an_epoch() -> None:
    assert Case().following.next == fetch(0, -1)
    assert Case(diverging_in_fetch=False).following.next == fetch(0, -1)


def test_fetched_records_are_appended_unchanged() -> None:
    case = Case([(3, 2)])
    records = sent(2, 3, 3), sent(5, 1, 8)
    assert case.fetched(answer(*records, high_watermark=4))
    assert bytes(case.log.read(Offset(2), 1 << 20, Offset(6)).read()) == b"".join(records)
    assert case.following.next == fetch(6, 8)
    assert case.log.epochs.entries == [(3, 0), (8, 2 + 3)]
    assert case.high_watermark == 4


def test_high_watermark_follows_the_leader_up_to_the_own_end() -> None:
    case = Case([(3, 2)])
    assert case.fetched(answer(high_watermark=10))
    assert case.high_watermark == 2


def test_high_watermark_ignores_a_lower_one_of_the_leader() -> None:
    case = Case([(3, 5)], high_watermark=4)
    assert not case.fetched(answer(high_watermark=1))
    assert case.high_watermark == 4


@interpreted
def test_follower_whose_disk_fails_when_it_notifies_a_fetch_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case()
    fail_disk_when_notified(case.partition, monkeypatch)
    assert not case.fetched(answer(sent(0, 3, 1), high_watermark=2))
    assert not case.partition.is_online
    assert case.following.is_over


@interpreted
def test_truncated_follower_whose_disk_fails_when_it_notifies_a_fetch_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case([(1, 3)], high_watermark=2)
    fail_disk_when_notified(case.partition, monkeypatch)
    assert not case.fetched(diverging(1, 1))
    assert not case.partition.is_online
    assert case.following.is_over


def test_log_start_follows_the_leader_up_to_the_high_watermark() -> None:
    case = Case([(3, 5)])
    case.fetched(answer(high_watermark=4, start=2))
    assert (case.log.start_offset, case.following.log_start_offset) == (2, 2)
    case.fetched(answer(high_watermark=4, start=5))
    assert case.log.start_offset == 4


def test_gaps_of_compaction_are_appended() -> None:
    case = Case([(3, 2)])
    case.fetched(answer(sent(7, 1, 3), sent(100, 2, 3)))
    assert stored(case.log)[-2:] == [(7, 7), (100, 101)]
    assert case.following.next == fetch(102, 3)


def test_batches_with_distant_offsets_get_separate_segments() -> None:
    case = Case([(3, 2)])
    far = INT32_MAX * 2
    case.fetched(answer(sent(2, 1, 3), sent(far, 1, 3)))
    assert stored(case.log)[-2:] == [(2, 2), (far, far)]


def test_large_response_is_appended_to_several_segments() -> None:
    case = Case(segment_bytes=400)
    case.fetched(answer(*(sent(number, 1, 3, size=100) for number in range(9))))
    assert case.log.end_offset == 9
    assert all(segment.size <= 400 for segment in case.log.segments)


def test_incomplete_batch_is_fetched_again() -> None:
    case = Case()
    case.fetched(answer(sent(0, 1, 3), sent(1, 1, 3)[:-1]))
    assert (case.following.next, case.following.delay_ms) == (fetch(1, 3), 0)


def test_response_without_a_complete_batch_is_retried_later() -> None:
    case = Case()
    case.fetched(answer(sent(0, 1, 3)[:-1]))
    assert (case.following.next, case.following.delay_ms) == (fetch(0, -1), BACKOFF_MS)


def test_response_with_a_damaged_batch_is_not_appended(caplog: pytest.LogCaptureFixture) -> None:
    case = Case()
    damaged = bytearray(sent(1, 1, 3))
    damaged[-1] ^= 1
    for _ in range(3):
        case.fetched(answer(sent(0, 1, 3), bytes(damaged), high_watermark=1))
    assert (case.log.end_offset, case.high_watermark) == (0, 0)
    assert (case.following.next, case.following.delay_ms) == (fetch(0, -1), BACKOFF_MS)
    assert len(caplog.records) == 1
    case.fetched(answer(sent(0, 1, 3), sent(1, 1, 3)))
    assert (case.following.next, case.following.delay_ms) == (fetch(2, 3), 0)


def test_response_with_decreasing_offsets_is_not_appended() -> None:
    case = Case([(3, 2)], segment_bytes=100)
    case.fetched(answer(sent(2, 1, 3), sent(3, 2, 3), sent(4, 1, 3)))
    assert (case.log.end_offset, case.following.delay_ms) == (2, BACKOFF_MS)


@pytest.mark.parametrize("base", [-2, INT64_MAX - 7, INT64_MAX])
def test_response_with_impossible_offsets_is_not_appended(base: int) -> None:
    """No checksum covers a base offset; of a log without records the start is not compared with it."""
    case = Case([(1, 3)], high_watermark=3)
    case.partition.advance_start(Offset(3))
    batch = bytearray(sent(0, 8, 1))
    batch[:8] = base.to_bytes(8, "big", signed=True)
    case.fetched(answer(bytes(batch), high_watermark=3))
    assert (case.log.start_offset, case.log.end_offset, case.high_watermark) == (3, 3, 3)
    assert case.following.next == fetch(3, 1)
    assert case.following.delay_ms == BACKOFF_MS


def test_empty_log_amid_a_batch_starts_with_the_whole_batch() -> None:
    case = Case()
    case.fetched(refused(ErrorCode.OFFSET_OUT_OF_RANGE))
    case.leader_offsets(102, 110)
    assert case.following.next == fetch(102, -1)
    case.fetched(answer(sent(100, 10, 3), high_watermark=105, start=102))
    assert (case.log.start_offset, case.high_watermark, case.log.end_offset) == (102, 105, 110)


def test_leaders_first_batch_replaces_records_below_its_start() -> None:
    case = Case([(1, 11)])
    case.fetched(answer(sent(10, 3, 2), high_watermark=13, start=11))
    assert stored(case.log) == [(10, 12)]
    assert (case.log.start_offset, case.high_watermark) == (11, 13)


def test_log_never_restarts_below_offset_zero() -> None:
    case = Case()
    case.fetched(answer(sent(-2, 4, 5)))
    assert (case.log.start_offset, case.log.end_offset) == (0, 0)


def test_replicated_batches_update_the_producer_state() -> None:
    case = Case()
    case.fetched(answer(sent(0, 2, 3, sequence=0), sent(2, 1, 3, sequence=2)))
    known = case.log.producers.get(PRODUCER)
    assert known is not None
    assert known.last_sequence == 2
    case.fetched(diverging(3, 2))
    known = case.log.producers.get(PRODUCER)
    assert known is not None
    assert known.last_sequence == 1


def test_transaction_is_stable_below_the_high_watermark() -> None:
    case = Case()
    begun = encode_batch(
        [(None, b"v", (), T0)],
        leader_epoch=LeaderEpoch(3),
        producer_id=PRODUCER,
        producer_epoch=ProducerEpoch(0),
        base_sequence=0,
        is_transactional=True,
    )
    marker = end_marker_batch(EndMarker(True, 0), PRODUCER, ProducerEpoch(0), T0)
    marker.stamp(Offset(1), LeaderEpoch(3))
    case.fetched(answer(bytes(begun), bytes(marker.view), high_watermark=1))
    assert case.partition.last_stable_offset == 0
    case.fetched(answer(high_watermark=2))
    assert case.partition.last_stable_offset == 2


# Divergence reported in the Fetch response.


def test_records_beyond_the_leaders_end_of_the_epoch_are_truncated() -> None:
    case = Case([(3, 4), (5, 4)])
    case.fetched(diverging(5, 6))
    assert case.following.next == fetch(6, 5)
    assert case.high_watermark == 0, "only what is fetched after the cut moves it"


def test_epoch_unknown_to_the_leader_is_truncated() -> None:
    case = Case([(3, 4), (5, 4)])
    case.fetched(diverging(3, 9))
    assert case.following.next == fetch(4, 3)
    case = Case([(3, 4), (5, 4)])
    case.fetched(diverging(3, 2))
    assert case.following.next == fetch(2, 3)


def test_divergence_in_an_unknown_epoch_truncates_to_the_epoch_below() -> None:
    case = Case([(2, 3), (7, 3)])
    case.fetched(diverging(5, 5))
    assert case.following.next == fetch(3, 2)


def test_log_without_a_common_epoch_is_truncated_to_its_start() -> None:
    case = Case([(6, 3), (7, 3)], high_watermark=2)
    case.partition.advance_start(Offset(2))
    case.fetched(diverging(2, 5))
    assert case.following.next == fetch(2, -1)


def test_diverging_epoch_without_records_is_removed() -> None:
    case = Case([(3, 4)], high_watermark=4)
    case.partition.advance_start(Offset(4))
    assert case.following.next == fetch(4, 3)
    case.fetched(diverging(2, 4))
    assert (case.following.next, case.following.delay_ms) == (fetch(4, -1), 0)


def test_divergence_that_truncates_nothing_is_retried_with_backoff() -> None:
    case = Case([(3, 4)])
    case.fetched(diverging(3, 8))
    assert (case.following.next, case.following.delay_ms) == (fetch(4, 3), BACKOFF_MS)


def test_truncation_below_the_high_watermark_lowers_it_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    case = Case([(3, 6)], high_watermark=5)
    flush_now(case.log, T0)
    case.partition.positions.advance_durable_end(Offset(6))
    case.fetched(diverging(3, 2))
    assert (case.high_watermark, case.partition.positions.durable_end, case.log.end_offset) == (2, 2, 2)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_flush_that_ends_after_a_truncation_covers_no_later_records() -> None:
    case = Case([(3, 6)])
    flush = begin_flush(case.log)
    case.fetched(diverging(3, 2))
    case.fetched(answer(sent(2, 5, 9)))
    flush.run()
    case.partition.flushed(flush, Moment(T0, 0))
    assert case.partition.positions.durable_end <= 2


# Divergence requested before the first fetch.


def test_epoch_end_is_requested_from_a_leader_before_kafka_2_7() -> None:
    case = Case([(3, 4), (5, 4)], diverging_in_fetch=False)
    assert case.following.next == OffsetsForLeaderEpoch(LeaderEpoch(5))
    case.epoch_ended(end(5, 20))
    assert case.following.next == fetch(8, 5)


@pytest.mark.parametrize(
    ("epoch_end", "offset", "epoch"),
    [
        (end(5, 6), 6, 5),
        (end(3, 4), 4, 3),
        (end(3, 2), 2, 3),
        (end(3, 7), 4, 3),
        (UNDEFINED, 3, 3),
    ],
)
def test_log_is_truncated_to_the_leaders_epoch_end(epoch_end: EpochEnd, offset: int, epoch: int) -> None:
    case = Case([(3, 4), (5, 4)], high_watermark=3, diverging_in_fetch=False)
    case.epoch_ended(epoch_end)
    assert case.following.next == fetch(offset, epoch)
    assert case.high_watermark == min(3, offset)


def test_earlier_epoch_is_requested_from_a_leader_before_kafka_2_0() -> None:
    """Its response has the end offset without the epoch, so epochs with one end offset look the same."""
    case = Case([(3, 4), (5, 4)], high_watermark=3, diverging_in_fetch=False)
    case.epoch_ended(EpochEnd(NO_EPOCH, Offset(6)))
    assert (case.following.next, case.log.end_offset) == (OffsetsForLeaderEpoch(LeaderEpoch(4), Offset(6)), 8)
    case.epoch_ended(EpochEnd(NO_EPOCH, Offset(4)))
    assert case.following.next == fetch(6, 5)
    case = Case([(3, 4), (5, 4)], high_watermark=3, diverging_in_fetch=False)
    case.epoch_ended(EpochEnd(NO_EPOCH, Offset(9)))
    case.epoch_ended(EpochEnd(NO_EPOCH, Offset(9)))
    assert (case.following.next, case.log.end_offset) == (OffsetsForLeaderEpoch(LeaderEpoch(3)), 4)
    case.epoch_ended(EpochEnd(NO_EPOCH, Offset(9)))
    assert case.following.next == OffsetsForLeaderEpoch(LeaderEpoch(2), Offset(9))
    case.epoch_ended(UNDEFINED)
    assert case.following.next == fetch(4, 3)


def test_epoch_end_is_requested_until_a_common_epoch_is_found() -> None:
    """KIP-279: leaders of epochs 4, 6 and 8 wrote here, all unknown to the current leader."""
    case = Case([(3, 2), (4, 2), (6, 2), (8, 2)], diverging_in_fetch=False)
    case.epoch_ended(end(7, 9))
    assert (case.following.next, case.log.end_offset) == (OffsetsForLeaderEpoch(LeaderEpoch(6)), 6)
    case.epoch_ended(end(5, 5))
    assert (case.following.next, case.log.end_offset) == (OffsetsForLeaderEpoch(LeaderEpoch(4)), 4)
    case.epoch_ended(end(3, 3))
    assert (case.following.next, case.log.end_offset) == (fetch(2, 3), 2)


@pytest.mark.parametrize("diverging_in_fetch", [True, False])
def test_records_without_an_epoch_are_truncated_to_the_high_watermark(diverging_in_fetch: bool) -> None:
    case = Case([(-1, 5)], high_watermark=3, diverging_in_fetch=diverging_in_fetch)
    assert case.following.next == OffsetsForLeaderEpoch(NO_EPOCH)
    case.epoch_ended(UNDEFINED)
    assert case.following.next == fetch(3, -1)


# KIP-101: reasons not to truncate to the high watermark.


def test_replicated_records_above_the_high_watermark_survive_a_restart() -> None:
    for diverging_in_fetch in (True, False):
        case = Case([(3, 2)], high_watermark=1, diverging_in_fetch=diverging_in_fetch)
        if not diverging_in_fetch:
            case.epoch_ended(end(3, 2))
        assert case.following.next == fetch(2, 3), "the second record may be here alone, once the leader is gone"


def test_records_of_two_leaders_at_one_offset_converge() -> None:
    for diverging_in_fetch in (True, False):
        case = Case([(3, 2)], high_watermark=1, diverging_in_fetch=diverging_in_fetch)
        if diverging_in_fetch:
            case.fetched(diverging(3, 1))
        else:
            case.epoch_ended(end(3, 1))
        case.fetched(answer(sent(1, 1, 4), high_watermark=2))
        assert (case.following.next, case.log.epochs.entries) == (fetch(2, 4), [(3, 0), (4, 1)])


# Out of range.


def test_log_that_ends_below_the_leaders_start_restarts_there() -> None:
    case = Case([(3, 5)], high_watermark=4)
    case.fetched(refused(ErrorCode.OFFSET_OUT_OF_RANGE))
    assert (case.following.next, case.following.delay_ms) == (LeaderOffsets(Offset(5)), 0)
    case.leader_offsets(70, 90)
    assert (case.following.next, case.following.delay_ms) == (fetch(70, -1), 0)
    assert (case.log.start_offset, case.high_watermark, case.log.end_offset) == (70, 70, 70)


def test_log_that_ends_beyond_the_leaders_end_is_truncated() -> None:
    case = Case([(3, 5), (4, 5)], high_watermark=9)
    case.fetched(refused(ErrorCode.OFFSET_OUT_OF_RANGE))
    case.leader_offsets(0, 7)
    assert (case.following.next, case.high_watermark) == (fetch(7, 4), 7)
    case = Case([(3, 5), (4, 5)], diverging_in_fetch=False)
    case.epoch_ended(end(4, 10))
    case.fetched(refused(ErrorCode.OFFSET_OUT_OF_RANGE))
    case.leader_offsets(0, 7)
    assert case.following.next == OffsetsForLeaderEpoch(LeaderEpoch(4))


@pytest.mark.parametrize(("start", "end"), [(0, 20), (5, 5), (-1, -1), (9, 3)])
def test_implausible_leader_offsets_are_requested_again_later(start: int, end: int) -> None:
    case = Case([(3, 5)])
    case.fetched(refused(ErrorCode.OFFSET_OUT_OF_RANGE))
    case.leader_offsets(start, end)
    assert (case.log.end_offset, case.following.delay_ms) == (5, BACKOFF_MS)


# Errors.


def test_failed_fetch_is_retried_later(caplog: pytest.LogCaptureFixture) -> None:
    case = Case([(3, 5)])
    before = case.following.next
    case.fetched(refused(ErrorCode.KAFKA_STORAGE_ERROR))
    case.fetched(refused(ErrorCode.KAFKA_STORAGE_ERROR))
    assert case.following.next is before
    assert case.following.delay_ms == BACKOFF_MS
    assert len(caplog.records) == 1
    case.fetched(answer())
    assert case.following.delay_ms == 0


@pytest.mark.parametrize("error", [*TOPIC_IS_NEW, *ELECTION_UNDER_WAY])
def test_leader_without_its_latest_state_is_retried_soon(error: ErrorCode, caplog: pytest.LogCaptureFixture) -> None:
    case = Case([(3, 5)])
    before = case.following.next
    for _ in range(SOON_TRIES):
        case.fetched(refused(error))
        assert case.following.delay_ms == SOON_MS
    assert not caplog.records
    case.fetched(refused(error))
    assert case.following.next is before
    assert (case.following.delay_ms, len(caplog.records)) == (BACKOFF_MS, error in TOPIC_IS_NEW)


def test_failed_offset_and_epoch_requests_are_retried() -> None:
    case = Case([(3, 5)], diverging_in_fetch=False)
    case.epoch_ended(UNDEFINED, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert (case.following.next, case.following.delay_ms) == (OffsetsForLeaderEpoch(LeaderEpoch(3)), SOON_MS)
    case.epoch_ended(end(3, 5))
    case.fetched(refused(ErrorCode.OFFSET_OUT_OF_RANGE))
    case.leader_offsets(-1, -1, ErrorCode.UNKNOWN_LEADER_EPOCH)
    assert (case.following.next, case.following.delay_ms) == (LeaderOffsets(Offset(5)), SOON_MS)


def test_fenced_follower_sends_no_requests() -> None:
    case = Case([(3, 5)])
    case.fetched(refused(ErrorCode.FENCED_LEADER_EPOCH))
    assert case.following.is_over
    assert case.following.next is None


def test_repeated_response_is_applied_once() -> None:
    case = Case()
    query = case.following.next
    assert isinstance(query, Fetch)
    for _ in range(2):
        case.following.fetched(query, answer(sent(0, 1, 3)), T0)
    assert case.log.end_offset == 1


def test_response_to_a_former_follower_is_ignored() -> None:
    case = Case()
    before = case.following
    query = before.next
    assert isinstance(query, Fetch)
    case.partition.follow(case.partition.info._replace(leader_epoch=LeaderEpoch(EPOCH + 1)))
    assert before.is_over
    before.fetched(query, answer(sent(0, 1, 3)), T0)
    assert case.log.end_offset == 0


def test_leader_or_offline_replica_sends_no_fetches() -> None:
    case = Case()
    case.partition.take_offline()
    assert case.following.next is None
    case = Case()
    case.partition.lead(PartitionInfo(HERE, LeaderEpoch(EPOCH + 1), (HERE,), (HERE,)), Moment(T0, 0))
    assert case.following.next is None


def test_failed_disk_takes_the_partition_offline() -> None:
    case = Case([(3, 5)])
    case.disk.fail_from(0)
    case.fetched(answer(sent(5, 1, 3)))
    assert not case.partition.is_online
    assert case.following.next is None


def test_fetch_on_a_full_disk_resumes_after_the_appended_records() -> None:
    case = Case(segment_bytes=400)
    batches = [sent(number, 1, 3, size=250) for number in range(3)]
    case.disk.room = len(batches[0]) + 40
    case.fetched(answer(*batches, high_watermark=3))
    appended = case.log.end_offset
    assert case.partition.is_online
    assert appended < 3
    assert (case.following.next, case.following.delay_ms) == (fetch(appended, 3 if appended else -1), BACKOFF_MS)
    case.disk.mend()
    case.fetched(answer(*batches[appended:], high_watermark=3))
    assert (case.log.end_offset, case.high_watermark, case.following.delay_ms) == (3, 3, 0)


def test_truncation_on_a_full_disk_is_retried() -> None:
    case = Case([(3, 5)])
    flush_now(case.log, T0)

    def refuse(_: Offset) -> None:
        case.disk.fail_call(0, errno.ENOSPC)
        case.disk.create("/data/checkpoint")

    case.log.on_recovery_point_lowered = refuse
    case.fetched(diverging(3, 2))
    assert (case.log.end_offset, case.following.next, case.following.delay_ms) == (5, fetch(5, 3), BACKOFF_MS)
    case.log.on_recovery_point_lowered = None
    case.fetched(diverging(3, 2))
    assert (case.log.end_offset, case.following.next, case.following.delay_ms) == (2, fetch(2, 3), 0)


def test_follower_lag_is_measured_to_the_leaders_high_watermark() -> None:
    """Records above the leader's high watermark are not part of the lag."""
    case = Case()
    assert case.following.lag is None
    case.fetched(answer(sent(0, 3, 9), high_watermark=10))
    assert case.following.lag == 7
    case.fetched(answer(sent(3, 9, 9), high_watermark=10))
    assert case.following.lag == 0
