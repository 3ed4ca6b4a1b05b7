"""Sequence validation as a table: the producer's state, the batch, and the result."""

from __future__ import annotations

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import INT32_MAX, Offset, ProducerEpoch, ProducerId, TimestampMs
from odradek.log.producers.producer_state import DuplicateBatch, ProducerStateEntry, VerificationStateEntry
from odradek.log.producers.sequence_validation import check, check_marker
from odradek.record.builder import encode_batch
from odradek.record.end_transaction_marker import EndMarker
from odradek.record.record_batch import Batch

P = ProducerId(7)
T = TimestampMs(1_700_000_000_000)
AT = Offset(100)
FINE, AGAIN = "fine", "again"
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.name
OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH.name
WRONG_STATE = ErrorCode.INVALID_TXN_STATE.name
FENCED = ErrorCode.TRANSACTION_COORDINATOR_FENCED.name


def batch(sequence: int, *, epoch: int = 3, count: int = 1, transactional: bool = False) -> Batch:
    raw = encode_batch(
        [(None, b"v", (), T)] * count,
        producer_id=P,
        producer_epoch=ProducerEpoch(epoch),
        base_sequence=sequence,
        is_transactional=transactional,
    )
    return Batch.checked(memoryview(raw))


def producer_entry(*last_sequences: int, epoch: int = 3, first_offset: int = -1) -> ProducerStateEntry:
    """Return a producer with batches of one record each, at offsets 10, 11, ..."""
    batches = tuple((sequence, 10 + number, 0, T) for number, sequence in enumerate(last_sequences))
    return ProducerStateEntry(P, ProducerEpoch(epoch), batches, -1, Offset(first_offset), T)


def outcome(
    before: ProducerStateEntry, one: Batch, awaited: VerificationStateEntry | None = None
) -> str | ProducerStateEntry | DuplicateBatch:
    place = before.find_duplicate_batch(one)
    if place is not None:
        return AGAIN
    try:
        check(before, one, AT, awaited=awaited, checks_sequence=True)
    except Refused as refused:
        assert before.after_next(one, AT, T) is None, "what is refused is never what is expected"
        return refused.code.name
    after = before.after_next(one, AT, T)
    assert after is None or after == before.after(one, AT, T)
    return FINE


@pytest.mark.parametrize(
    ("before", "one", "expected"),
    [
        (ProducerStateEntry(P), batch(0), FINE),
        (ProducerStateEntry(P), batch(42), FINE),
        (ProducerStateEntry(P), batch(42, transactional=True), FINE),
        (producer_entry(5), batch(6), FINE),
        (producer_entry(5), batch(6, count=9), FINE),
        (producer_entry(5), batch(7), OUT_OF_ORDER),
        (producer_entry(5), batch(4), OUT_OF_ORDER),
        (producer_entry(5), batch(0), OUT_OF_ORDER),
        (producer_entry(1, 2, 3, 4, 5), batch(5), AGAIN),
        (producer_entry(1, 2, 3, 4, 5), batch(1), AGAIN),
        (producer_entry(1, 2, 3, 4, 5), batch(0), OUT_OF_ORDER),  # Of the five batches before the last.
        (producer_entry(1, 2, 3, 4, 5), batch(4, count=2), OUT_OF_ORDER),  # Other batch boundaries.
        (producer_entry(5), batch(5, epoch=2), OLD_EPOCH),
        (producer_entry(5), batch(6, epoch=2), OLD_EPOCH),
        (producer_entry(5), batch(0, epoch=4), FINE),
        (producer_entry(5), batch(6, epoch=4), OUT_OF_ORDER),
        (producer_entry(5), batch(5, epoch=4), OUT_OF_ORDER),
        (producer_entry(), batch(0), FINE),  # After a marker that bumped the epoch.
        (producer_entry(), batch(1), OUT_OF_ORDER),
        (producer_entry(), batch(0, epoch=2), OLD_EPOCH),
        (producer_entry(INT32_MAX), batch(0), FINE),
        (producer_entry(INT32_MAX), batch(1), OUT_OF_ORDER),
        (producer_entry(INT32_MAX - 1), batch(INT32_MAX, count=3), FINE),
        (producer_entry(5, first_offset=9), batch(6, transactional=True), FINE),
        (producer_entry(5, first_offset=9), batch(6), WRONG_STATE),
        (producer_entry(5, first_offset=9), batch(7), OUT_OF_ORDER),
        (producer_entry(5, first_offset=9), batch(5), AGAIN),
        (producer_entry(5), batch(6, transactional=True), FINE),
        (producer_entry(5, first_offset=9), batch(0, epoch=4, transactional=True), FINE),
    ],
    ids=repr,
)
def test_batch_sequence_is_validated(before: ProducerStateEntry, one: Batch, expected: str) -> None:
    assert outcome(before, one) == expected


@pytest.mark.parametrize(
    ("before", "sequence", "awaited", "expected"),
    [
        (ProducerStateEntry(P), 5, VerificationStateEntry(ProducerEpoch(3), 5, False, T), FINE),
        (ProducerStateEntry(P), 6, VerificationStateEntry(ProducerEpoch(3), 5, False, T), OUT_OF_ORDER),
        (ProducerStateEntry(P), 0, VerificationStateEntry(ProducerEpoch(3), 0, True, T), FINE),
        (ProducerStateEntry(P), 5, VerificationStateEntry(ProducerEpoch(3), 5, True, T), OUT_OF_ORDER),
        (producer_entry(4), 5, VerificationStateEntry(ProducerEpoch(3), 5, True, T), FINE),
        (producer_entry(), 5, VerificationStateEntry(ProducerEpoch(3), 5, True, T), OUT_OF_ORDER),
    ],
)
def test_first_sequence_of_a_transaction_is_validated(
    before: ProducerStateEntry, sequence: int, awaited: VerificationStateEntry, expected: str
) -> None:
    assert outcome(before, batch(sequence, transactional=True), awaited) == expected


def test_coordinator_batches_skip_sequence_validation() -> None:
    raw = encode_batch([(b"k", b"v", (), T)], producer_id=P, producer_epoch=ProducerEpoch(3), is_transactional=True)
    one = Batch.trusted(memoryview(raw))
    for before in (
        ProducerStateEntry(P),
        producer_entry(5),
        producer_entry(5, first_offset=9),
        producer_entry(5, epoch=2),
    ):
        check(before, one, AT, awaited=None, checks_sequence=False)
    with pytest.raises(Refused) as refused:
        check(producer_entry(5, epoch=4), one, AT, awaited=None, checks_sequence=False)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    after = producer_entry(epoch=3).after(one, AT, T)
    assert (after.last_sequence, after.first_offset) == (-1, AT)
    assert after.after(one, Offset(101), T).first_offset == AT


@pytest.mark.parametrize(
    ("epoch", "coordinator_epoch", "version", "is_open", "expected"),
    [
        (3, 2, 0, True, FINE),
        (3, 2, 1, True, FINE),
        (4, 2, 0, True, FINE),
        (2, 2, 0, True, OLD_EPOCH),
        (3, 1, 0, True, FENCED),
        (3, 9, 0, True, FINE),
        (4, 2, 2, True, FINE),
        (3, 2, 2, True, OLD_EPOCH),  # The marker of the transaction before this one.
        (3, 2, 2, False, FINE),  # The last transaction's marker again.
        (2, 2, 2, False, OLD_EPOCH),
        (4, 1, 2, True, FENCED),
    ],
)
def test_marker_epochs_are_validated(
    epoch: int, coordinator_epoch: int, version: int, is_open: bool, expected: str
) -> None:
    before = producer_entry(5, first_offset=9 if is_open else -1)._replace(coordinator_epoch=2)
    try:
        check_marker(before, ProducerEpoch(epoch), EndMarker(True, coordinator_epoch), version)
    except Refused as refused:
        assert refused.code.name == expected
    else:
        assert expected == FINE


def test_only_five_batches_are_kept() -> None:
    producer = ProducerStateEntry(P)
    for sequence in range(8):
        producer = producer.after(batch(sequence), Offset(sequence), T)
    assert [sent[0] for sent in producer.batches] == [3, 4, 5, 6, 7]
    assert producer.find_duplicate_batch(batch(3)) == DuplicateBatch(Offset(3), Offset(4), T)
    assert producer.find_duplicate_batch(batch(2)) is None
    assert producer.after(batch(0, epoch=4), Offset(8), T).batches == ((0, 8, 0, T),)


def test_duplicate_is_found_across_the_sequence_wraparound() -> None:
    one = batch(INT32_MAX - 1, count=4)
    producer = producer_entry(INT32_MAX - 2).after(one, Offset(20), T)
    assert producer.last_sequence == 1
    assert producer.find_duplicate_batch(one) == DuplicateBatch(Offset(20), Offset(24), T)
    assert outcome(producer, batch(2)) == FINE
