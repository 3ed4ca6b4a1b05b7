"""One follower and what its leader answers; histories of several are in tests/property/test_following_histories.py."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable

import pytest
from simdisk import SimDisk

from odradek.base.errors import ErrorCode
from odradek.base.units import (
    INT32_MAX,
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
from support.without_followers import MANAGER

HERE, LEADER = BrokerId(1), BrokerId(2)
EPOCH = LeaderEpoch(9)
BACKOFF_MS = 1000
PRODUCER = ProducerId(7)
NO_RECORDS = memoryview(b"")
UNDEFINED = EpochEnd(NO_EPOCH, NO_OFFSET)


def sent(base: int, records: int, epoch: int, *, sequence: int = -1, size: int = 10) -> bytes:
    """A batch as its leader stamped it."""
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
    """A follower whose log has epochs of so many single-record batches each, all of it above the high watermark."""

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
        asked = self.following.next
        assert isinstance(asked, Fetch)
        has_risen = self.following.fetched(asked, what, T0)
        if self.partition.is_online:
            check(self.log)
        return has_risen

    def epoch_ended(self, what: EpochEnd, error: ErrorCode = ErrorCode.NONE) -> None:
        asked = self.following.next
        assert isinstance(asked, OffsetsForLeaderEpoch)
        self.following.epoch_ended(asked, error, what, T0)

    def leader_offsets(self, start: int, end: int, error: ErrorCode = ErrorCode.NONE) -> None:
        asked = self.following.next
        assert isinstance(asked, LeaderOffsets)
        self.following.leader_offsets(asked, error, Offset(start), Offset(end), T0)


def end(epoch: int, offset: int) -> EpochEnd:
    return EpochEnd(LeaderEpoch(epoch), Offset(offset))


def fetch(offset: int, epoch: int) -> Fetch:
    return Fetch(Offset(offset), LeaderEpoch(epoch))


# Replicating.


def test_an_empty_log_is_fetched_from_its_end_without_an_epoch() -> None:
    assert Case().following.next == fetch(0, -1)
    assert Case(diverging_in_fetch=False).following.next == fetch(0, -1)


def test_what_the_leader_sent_is_appended_unchanged_and_fetched_on_from_there() -> None:
    case = Case([(3, 2)])
    records = sent(2, 3, 3), sent(5, 1, 8)
    assert case.fetched(answer(*records, high_watermark=4))
    assert bytes(case.log.read(Offset(2), 1 << 20, Offset(6)).read()) == b"".join(records)
    assert case.following.next == fetch(6, 8)
    assert case.log.epochs.entries == [(3, 0), (8, 2 + 3)]
    assert case.high_watermark == 4


def test_the_high_watermark_is_the_leaders_but_not_beyond_the_own_end() -> None:
    case = Case([(3, 2)])
    assert case.fetched(answer(high_watermark=10))
    assert case.high_watermark == 2


def test_the_high_watermark_stays_where_a_new_leader_has_a_lower_one() -> None:
    case = Case([(3, 5)], high_watermark=4)
    assert not case.fetched(answer(high_watermark=1))
    assert case.high_watermark == 4


def test_the_log_starts_where_the_leaders_does_but_not_above_the_high_watermark() -> None:
    case = Case([(3, 5)])
    case.fetched(answer(high_watermark=4, start=2))
    assert (case.log.start_offset, case.following.log_start_offset) == (2, 2)
    case.fetched(answer(high_watermark=4, start=5))
    assert case.log.start_offset == 4


def test_a_gap_is_what_compaction_has_left() -> None:
    case = Case([(3, 2)])
    case.fetched(answer(sent(7, 1, 3), sent(100, 2, 3)))
    assert stored(case.log)[-2:] == [(7, 7), (100, 101)]
    assert case.following.next == fetch(102, 3)


def test_batches_further_apart_than_an_index_can_say_lie_in_segments_of_their_own() -> None:
    case = Case([(3, 2)])
    far = INT32_MAX * 2
    case.fetched(answer(sent(2, 1, 3), sent(far, 1, 3)))
    assert stored(case.log)[-2:] == [(2, 2), (far, far)]


def test_more_than_a_segment_has_room_for_is_appended_to_several() -> None:
    case = Case(segment_bytes=400)
    case.fetched(answer(*(sent(number, 1, 3, size=100) for number in range(9))))
    assert case.log.end_offset == 9
    assert all(segment.size <= 400 for segment in case.log.segments)


def test_a_batch_that_is_cut_off_is_fetched_again() -> None:
    case = Case()
    case.fetched(answer(sent(0, 1, 3), sent(1, 1, 3)[:-1]))
    assert (case.following.next, case.following.delay_ms) == (fetch(1, 3), 0)


def test_an_answer_without_one_whole_batch_is_asked_for_again_later() -> None:
    case = Case()
    case.fetched(answer(sent(0, 1, 3)[:-1]))
    assert (case.following.next, case.following.delay_ms) == (fetch(0, -1), BACKOFF_MS)


def test_of_an_answer_with_a_damaged_batch_nothing_is_appended(caplog: pytest.LogCaptureFixture) -> None:
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


def test_offsets_that_go_back_are_refused_before_anything_is_appended() -> None:
    case = Case([(3, 2)], segment_bytes=100)
    case.fetched(answer(sent(2, 1, 3), sent(3, 2, 3), sent(4, 1, 3)))
    assert (case.log.end_offset, case.following.delay_ms) == (2, BACKOFF_MS)


def test_a_log_that_is_empty_amid_a_batch_begins_with_all_of_it() -> None:
    case = Case()
    case.fetched(refused(ErrorCode.OFFSET_OUT_OF_RANGE))
    case.leader_offsets(102, 110)
    assert case.following.next == fetch(102, -1)
    case.fetched(answer(sent(100, 10, 3), high_watermark=105, start=102))
    assert (case.log.start_offset, case.high_watermark, case.log.end_offset) == (102, 105, 110)


def test_what_lies_below_the_leaders_start_gives_way_to_the_batch_it_starts_in() -> None:
    case = Case([(1, 11)])
    case.fetched(answer(sent(10, 3, 2), high_watermark=13, start=11))
    assert stored(case.log) == [(10, 12)]
    assert (case.log.start_offset, case.high_watermark) == (11, 13)


def test_a_new_leader_knows_the_sequences_it_replicated() -> None:
    case = Case()
    case.fetched(answer(sent(0, 2, 3, sequence=0), sent(2, 1, 3, sequence=2)))
    known = case.log.producers.get(PRODUCER)
    assert known is not None
    assert known.last_sequence == 2
    case.fetched(diverging(3, 2))
    known = case.log.producers.get(PRODUCER)
    assert known is not None
    assert known.last_sequence == 1


def test_a_transaction_is_stable_once_its_marker_is_below_the_high_watermark() -> None:
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


# Where the logs diverge, told in the fetch.


def test_records_of_an_epoch_that_the_leader_has_less_of_are_cut_off() -> None:
    case = Case([(3, 4), (5, 4)])
    case.fetched(diverging(5, 6))
    assert case.following.next == fetch(6, 5)
    assert case.high_watermark == 0, "only what is fetched after the cut moves it"


def test_an_epoch_that_the_leader_lacks_is_cut_off_down_to_what_both_have() -> None:
    case = Case([(3, 4), (5, 4)])
    case.fetched(diverging(3, 9))
    assert case.following.next == fetch(4, 3)
    case = Case([(3, 4), (5, 4)])
    case.fetched(diverging(3, 2))
    assert case.following.next == fetch(2, 3)


def test_an_epoch_that_is_not_known_here_is_met_from_below() -> None:
    case = Case([(2, 3), (7, 3)])
    case.fetched(diverging(5, 5))
    assert case.following.next == fetch(3, 2)


def test_a_log_without_a_common_epoch_is_cut_where_its_first_one_begins() -> None:
    case = Case([(6, 3), (7, 3)], high_watermark=2)
    case.partition.advance_start(Offset(2))
    case.fetched(diverging(2, 5))
    assert case.following.next == fetch(2, -1)


def test_an_epoch_without_a_record_is_forgotten() -> None:
    case = Case([(3, 4)], high_watermark=4)
    case.partition.advance_start(Offset(4))
    assert case.following.next == fetch(4, 3)
    case.fetched(diverging(2, 4))
    assert (case.following.next, case.following.delay_ms) == (fetch(4, -1), 0)


def test_a_divergence_that_cuts_nothing_is_not_asked_for_without_end() -> None:
    case = Case([(3, 4)])
    case.fetched(diverging(3, 8))
    assert (case.following.next, case.following.delay_ms) == (fetch(4, 3), BACKOFF_MS)


def test_below_the_high_watermark_it_goes_down_with_the_log_and_that_is_told(caplog: pytest.LogCaptureFixture) -> None:
    case = Case([(3, 6)], high_watermark=5)
    flush_now(case.log, T0)
    case.partition.positions.advance_durable_end(Offset(6))
    case.fetched(diverging(3, 2))
    assert (case.high_watermark, case.partition.positions.durable_end, case.log.end_offset) == (2, 2, 2)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_a_flush_that_ends_after_a_cut_makes_nothing_durable_that_came_later() -> None:
    case = Case([(3, 6)])
    flush = begin_flush(case.log)
    case.fetched(diverging(3, 2))
    case.fetched(answer(sent(2, 5, 9)))
    flush.run()
    case.partition.flushed(flush, Moment(T0, 0))
    assert case.partition.positions.durable_end <= 2


# Where the logs diverge, asked before the first fetch.


def test_a_leader_before_kafka_2_7_is_asked_where_the_latest_epoch_ends() -> None:
    case = Case([(3, 4), (5, 4)], diverging_in_fetch=False)
    assert case.following.next == OffsetsForLeaderEpoch(LeaderEpoch(5))
    case.epoch_ended(end(5, 20))
    assert case.following.next == fetch(8, 5)


@pytest.mark.parametrize(
    ("told", "offset", "epoch"),
    [
        (end(5, 6), 6, 5),
        (end(3, 4), 4, 3),
        (end(3, 2), 2, 3),
        (end(3, 7), 4, 3),
        (UNDEFINED, 3, 3),
    ],
)
def test_the_log_is_cut_where_the_leader_says(told: EpochEnd, offset: int, epoch: int) -> None:
    case = Case([(3, 4), (5, 4)], high_watermark=3, diverging_in_fetch=False)
    case.epoch_ended(told)
    assert case.following.next == fetch(offset, epoch)
    assert case.high_watermark == min(3, offset)


def test_a_leader_before_kafka_2_0_is_asked_for_the_epoch_before_too() -> None:
    """It says where epochs end, and not which: two that end in the same place are one there."""
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


def test_it_is_asked_again_until_both_know_the_epoch() -> None:
    """KIP-279: leaders of epochs 4, 6 and 8 wrote here, of which the leader has heard of none."""
    case = Case([(3, 2), (4, 2), (6, 2), (8, 2)], diverging_in_fetch=False)
    case.epoch_ended(end(7, 9))
    assert (case.following.next, case.log.end_offset) == (OffsetsForLeaderEpoch(LeaderEpoch(6)), 6)
    case.epoch_ended(end(5, 5))
    assert (case.following.next, case.log.end_offset) == (OffsetsForLeaderEpoch(LeaderEpoch(4)), 4)
    case.epoch_ended(end(3, 3))
    assert (case.following.next, case.log.end_offset) == (fetch(2, 3), 2)


@pytest.mark.parametrize("diverging_in_fetch", [True, False])
def test_records_without_an_epoch_are_cut_off_above_the_high_watermark(diverging_in_fetch: bool) -> None:
    case = Case([(-1, 5)], high_watermark=3, diverging_in_fetch=diverging_in_fetch)
    assert case.following.next == OffsetsForLeaderEpoch(NO_EPOCH)
    case.epoch_ended(UNDEFINED)
    assert case.following.next == fetch(3, -1)


# KIP-101: why not to the high watermark.


def test_what_was_replicated_survives_a_restart_before_the_high_watermark_was_heard_of() -> None:
    for diverging_in_fetch in (True, False):
        case = Case([(3, 2)], high_watermark=1, diverging_in_fetch=diverging_in_fetch)
        if not diverging_in_fetch:
            case.epoch_ended(end(3, 2))
        assert case.following.next == fetch(2, 3), "the second record may be here alone, once the leader is gone"


def test_records_of_two_leaders_at_one_offset_do_not_stay_apart() -> None:
    for diverging_in_fetch in (True, False):
        case = Case([(3, 2)], high_watermark=1, diverging_in_fetch=diverging_in_fetch)
        if diverging_in_fetch:
            case.fetched(diverging(3, 1))
        else:
            case.epoch_ended(end(3, 1))
        case.fetched(answer(sent(1, 1, 4), high_watermark=2))
        assert (case.following.next, case.log.epochs.entries) == (fetch(2, 4), [(3, 0), (4, 1)])


# Out of range.


def test_a_log_that_ends_before_the_leaders_starts_begins_anew_there() -> None:
    case = Case([(3, 5)], high_watermark=4)
    case.fetched(refused(ErrorCode.OFFSET_OUT_OF_RANGE))
    assert (case.following.next, case.following.delay_ms) == (LeaderOffsets(Offset(5)), 0)
    case.leader_offsets(70, 90)
    assert (case.following.next, case.following.delay_ms) == (fetch(70, -1), 0)
    assert (case.log.start_offset, case.high_watermark, case.log.end_offset) == (70, 70, 70)


def test_a_log_that_ends_behind_the_leaders_is_cut_and_compared() -> None:
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
def test_a_range_that_has_the_logs_end_after_all_or_is_none_is_asked_for_again_later(start: int, end: int) -> None:
    case = Case([(3, 5)])
    case.fetched(refused(ErrorCode.OFFSET_OUT_OF_RANGE))
    case.leader_offsets(start, end)
    assert (case.log.end_offset, case.following.delay_ms) == (5, BACKOFF_MS)


# What goes wrong.


def test_after_an_error_the_same_is_asked_again_later(caplog: pytest.LogCaptureFixture) -> None:
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
def test_a_leader_may_hear_of_its_topic_or_election_a_moment_later(
    error: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    case = Case([(3, 5)])
    before = case.following.next
    for _ in range(SOON_TRIES):
        case.fetched(refused(error))
        assert case.following.delay_ms == SOON_MS
    assert not caplog.records
    case.fetched(refused(error))
    assert case.following.next is before
    assert (case.following.delay_ms, len(caplog.records)) == (BACKOFF_MS, error in TOPIC_IS_NEW)


def test_errors_of_the_other_questions_are_asked_again_later_too() -> None:
    case = Case([(3, 5)], diverging_in_fetch=False)
    case.epoch_ended(UNDEFINED, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert (case.following.next, case.following.delay_ms) == (OffsetsForLeaderEpoch(LeaderEpoch(3)), SOON_MS)
    case.epoch_ended(end(3, 5))
    case.fetched(refused(ErrorCode.OFFSET_OUT_OF_RANGE))
    case.leader_offsets(-1, -1, ErrorCode.UNKNOWN_LEADER_EPOCH)
    assert (case.following.next, case.following.delay_ms) == (LeaderOffsets(Offset(5)), SOON_MS)


def test_who_is_fenced_asks_nothing_until_it_hears_of_the_newer_epoch() -> None:
    case = Case([(3, 5)])
    case.fetched(refused(ErrorCode.FENCED_LEADER_EPOCH))
    assert case.following.is_over
    assert case.following.next is None


def test_an_answer_that_comes_twice_counts_once() -> None:
    case = Case()
    asked = case.following.next
    assert isinstance(asked, Fetch)
    for _ in range(2):
        case.following.fetched(asked, answer(sent(0, 1, 3)), T0)
    assert case.log.end_offset == 1


def test_an_answer_to_who_followed_before_counts_for_nothing() -> None:
    case = Case()
    before = case.following
    asked = before.next
    assert isinstance(asked, Fetch)
    case.partition.follow(case.partition.info._replace(leader_epoch=LeaderEpoch(EPOCH + 1)))
    assert before.is_over
    before.fetched(asked, answer(sent(0, 1, 3)), T0)
    assert case.log.end_offset == 0


def test_who_leads_or_is_offline_asks_nothing() -> None:
    case = Case()
    case.partition.take_offline()
    assert case.following.next is None
    case = Case()
    case.partition.lead(PartitionInfo(HERE, LeaderEpoch(EPOCH + 1), (HERE,), (HERE,)), Moment(T0, 0))
    assert case.following.next is None


def test_a_disk_that_fails_takes_the_partition_offline_and_ends_it() -> None:
    case = Case([(3, 5)])
    case.disk.fail_from(0)
    case.fetched(answer(sent(5, 1, 3)))
    assert not case.partition.is_online
    assert case.following.next is None


def test_a_full_disk_is_tried_again_from_what_was_appended() -> None:
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


def test_a_cut_that_the_full_disk_does_not_take_is_tried_again() -> None:
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


def test_it_knows_how_far_it_is_behind() -> None:
    """By what its leader calls committed: what is not yet everywhere is nobody's lag."""
    case = Case()
    assert case.following.lag is None
    case.fetched(answer(sent(0, 3, 9), high_watermark=10))
    assert case.following.lag == 7
    case.fetched(answer(sent(3, 9, 9), high_watermark=10))
    assert case.following.lag == 0
