"""Producer state: open transactions, ended but not yet visible ones, and expired producers."""

from __future__ import annotations

import sys

from odradek.base.limits import AWAITED_PRODUCERS_MAX
from odradek.base.units import NO_OFFSET, Offset, ProducerEpoch, ProducerId, TimestampMs
from odradek.log.producers.producer_state import (
    NOTHING_UNSTABLE,
    CompletedTxn,
    ProducerStateEntry,
    ProducerStateManager,
)
from odradek.record.builder import encode_batch
from odradek.record.end_transaction_marker import EndMarker, end_marker_batch
from odradek.record.record_batch import Batch

T = TimestampMs(1_700_000_000_000)


def batch(producer: int, base: int, *, epoch: int = 0, sequence: int = 0, transactional: bool = True) -> Batch:
    raw = encode_batch(
        [(None, b"v", (), T)],
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(epoch),
        base_sequence=sequence,
        base_offset=Offset(base),
        is_transactional=transactional,
    )
    return Batch.trusted(memoryview(raw))


def end(
    producers: ProducerStateManager, producer: int, at: int, *, commit: bool = False, epoch: int = 0
) -> CompletedTxn | None:
    marker = EndMarker(commit, 4)
    one = end_marker_batch(marker, ProducerId(producer), ProducerEpoch(epoch), T)
    one.base_offset = Offset(at)
    return producers.apply_end_marker(marker, one)


def test_first_unstable_offset_follows_the_transactions() -> None:
    producers = ProducerStateManager()
    assert producers.first_unstable == NOTHING_UNSTABLE
    producers.note(batch(9, 0, transactional=False))
    assert producers.first_unstable == NOTHING_UNSTABLE
    producers.note(batch(1, 5))
    producers.note(batch(2, 6))
    producers.note(batch(1, 7, sequence=1))
    assert producers.first_unstable == 5
    assert end(producers, 1, 8) == (1, 5, 8, False, 6)
    assert producers.first_unstable == 5, "its marker is not visible yet"
    producers.high_watermark_advanced(Offset(8))
    assert producers.first_unstable == 5
    producers.high_watermark_advanced(Offset(9))
    assert producers.first_unstable == 6
    assert end(producers, 2, 9, commit=True) == (2, 6, 9, True, 10)
    producers.high_watermark_advanced(Offset(10))
    assert producers.first_unstable == NOTHING_UNSTABLE


def test_cost_of_an_end_is_independent_of_invisible_transactions() -> None:
    """A log that is scanned after a crash may have a million."""
    producers = ProducerStateManager()
    costs = []
    for number in range(300):
        producers.note(batch(1, 2 * number, sequence=number))
        calls = []
        sys.setprofile(lambda frame, event, argument, calls=calls: calls.append(event))
        end(producers, 1, 2 * number + 1)
        sys.setprofile(None)
        costs.append(calls.count("call"))
    assert costs[1] == costs[-1]
    assert producers.first_unstable == 0


def test_transactions_started_in_one_write_may_come_in_any_order() -> None:
    producers = ProducerStateManager()
    late, early = (
        ProducerStateEntry(ProducerId(number)).after(batch(number, base), Offset(base), T)
        for number, base in ((1, 9), (2, 6))
    )
    producers.put({late.id: late, early.id: early})
    assert producers.first_unstable == 6
    ended = end(producers, 2, 10)
    assert ended is not None and ended.stable_until == 9


def test_a_marker_without_a_transaction_changes_the_producer_only() -> None:
    producers = ProducerStateManager()
    assert end(producers, 1, 0) is None
    assert list(producers) == [ProducerStateEntry(ProducerId(1), ProducerEpoch(0), (), 4, NO_OFFSET, T)]
    assert producers.first_unstable == NOTHING_UNSTABLE


def test_a_marker_of_the_same_epoch_keeps_the_batches_and_a_newer_one_does_not() -> None:
    producers = ProducerStateManager()
    producers.note(batch(1, 0, sequence=3))
    end(producers, 1, 1)
    known = producers.get(ProducerId(1))
    assert known is not None
    assert (known.last_sequence, known.coordinator_epoch, known.first_offset) == (3, 4, -1)
    producers.note(batch(1, 2, sequence=4))
    end(producers, 1, 3, epoch=1)
    known = producers.get(ProducerId(1))
    assert known is not None
    assert (known.epoch, known.batches) == (1, ())


def test_open_transactions_of_a_snapshot_are_restored() -> None:
    opened = ProducerStateEntry(ProducerId(1), ProducerEpoch(0), first_offset=Offset(30))
    other = ProducerStateEntry(ProducerId(2), ProducerEpoch(0), first_offset=Offset(20))
    assert ProducerStateManager([opened, other, ProducerStateEntry(ProducerId(3))]).first_unstable == 20


def test_idle_producers_expire_except_with_open_transactions() -> None:
    producers = ProducerStateManager()
    producers.note(batch(1, 0, transactional=False))
    producers.note(batch(2, 1))
    producers.await_first(batch(3, 2), from_zero=True, now=T)
    producers.expire(TimestampMs(T + 999), 1000)
    assert len(producers) == 2 and producers.awaited
    producers.expire(TimestampMs(T + 1000), 1000)
    assert [one.id for one in producers] == [2]
    assert not producers.awaited


def test_the_lowest_sequence_of_the_newest_epoch_is_awaited() -> None:
    producers = ProducerStateManager()
    one = ProducerId(1)
    producers.await_first(batch(1, 0, sequence=5), from_zero=False, now=T)
    producers.await_first(batch(1, 0, sequence=7), from_zero=True, now=T)
    assert producers.awaited[one] == (0, 5, False, T)
    producers.await_first(batch(1, 0, sequence=3), from_zero=False, now=T)
    assert producers.awaited[one].sequence == 3
    producers.await_first(batch(1, 0, epoch=1, sequence=6), from_zero=False, now=T)
    assert producers.awaited[one][:2] == (1, 6)
    producers.await_first(batch(1, 0, epoch=0, sequence=0), from_zero=False, now=T)
    assert producers.awaited[one][:2] == (1, 6)
    producers.note(batch(1, 0, epoch=1, sequence=6))
    assert not producers.awaited


def test_a_marker_ends_the_wait_but_not_for_the_transaction_after_it() -> None:
    producers = ProducerStateManager()
    producers.await_first(batch(1, 0, sequence=5), from_zero=False, now=T)
    end(producers, 1, 0)
    assert not producers.awaited
    producers.await_first(batch(1, 1, epoch=1), from_zero=True, now=T)
    end(producers, 1, 1, epoch=1)
    assert producers.awaited
    end(producers, 1, 2, epoch=2)
    assert not producers.awaited


def test_number_of_awaited_producers_is_bounded() -> None:
    producers = ProducerStateManager()
    for number in range(AWAITED_PRODUCERS_MAX + 5):
        producers.await_first(batch(number, 0), from_zero=False, now=T)
    assert list(producers.awaited) == list(range(5, AWAITED_PRODUCERS_MAX + 5))
