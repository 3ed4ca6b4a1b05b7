from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers, lists

from odradek.base.errors import ErrorCode
from odradek.base.units import Offset, ProducerEpoch, ProducerId, TopicName, TopicPartition
from odradek.client.connection.client_errors import ErrorResponse
from odradek.client.consumer.completed_fetch import Fetched, whole_batches
from odradek.record.builder import RecordIn, encode_batch
from odradek.record.record_batch import Batch

AT = TopicPartition(TopicName("t"), 0)
RECORD: RecordIn = (b"key", b"value", (), 1_000)


def batch(base_offset: int, count: int = 1, producer: int = -1, is_transactional: bool = False) -> bytearray:
    return encode_batch(
        [RECORD] * count,
        base_offset=Offset(base_offset),
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(0),
        base_sequence=0,
        is_transactional=is_transactional,
    )


def marker(base_offset: int, producer: int, is_commit: bool) -> bytearray:
    record: RecordIn = (struct.pack(">hh", 0, int(is_commit)), struct.pack(">hi", 0, 0), (), 1_000)
    return encode_batch(
        [record],
        base_offset=Offset(base_offset),
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(0),
        is_transactional=True,
        is_control=True,
    )


def fetched(*batches: bytearray, aborted: tuple[tuple[int, int], ...] = ()) -> Fetched:
    return Fetched(AT, 0, 99, memoryview(b"".join(batches)), 99, 99, 0, aborted)


def offsets(got: Fetched) -> list[int]:
    return [each.base_offset for each in got.batches()]


@settings(deadline=None)  # Time is not tested, and the machine may be busy.
@given(lists(integers(1, 5), min_size=1, max_size=6), integers(0, 200))
def test_whole_batches_excludes_an_incomplete_batch(counts: list[int], cut: int) -> None:
    starts = [sum(counts[:number]) for number in range(len(counts) + 1)]
    encoded = [batch(start, end - start) for start, end in pairwise(starts)]
    data = b"".join(encoded)
    data = data[: max(0, len(data) - cut)]
    size, following = whole_batches(memoryview(data), AT)
    kept, end = 0, -1
    for each, (_, after) in zip(encoded, pairwise(starts), strict=True):
        if kept + len(each) > len(data):
            break
        kept, end = kept + len(each), after
    assert (size, following) == (kept, end)


def test_next_offset_of_a_compacted_batch_is_from_its_header() -> None:
    compacted = batch(10, 5)
    struct.pack_into(">i", compacted, 23, 9)  # Offsets 10 to 19, of which five records are left.
    assert whole_batches(memoryview(compacted), AT) == (len(compacted), 20)


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_before_format_2_count_as_batches(magic: int) -> None:
    message = struct.pack(">qiIbb", 41, 14, 0, magic, 0) + bytes(8)
    assert whole_batches(memoryview(message), AT) == (len(message), 42)


@pytest.mark.parametrize("length", [-1, 0, 4, -(2**31)])
def test_invalid_batch_length_is_refused(length: int) -> None:
    data = batch(0)
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(ErrorResponse) as raised:
        whole_batches(memoryview(data), AT)
    assert raised.value.code == ErrorCode.CORRUPT_MESSAGE


def test_control_batches_are_not_returned() -> None:
    assert offsets(fetched(batch(0, 2, 7, True), marker(2, 7, True), batch(3))) == [0, 3]


def test_aborted_batches_are_skipped_from_first_offset_to_marker() -> None:
    got = fetched(
        batch(0, 1, 7, True),  # Producer 7 commits this one,
        marker(1, 7, True),
        batch(2, 1, 7, True),  # and aborts these two;
        batch(3, 1, 8, True),  # 8 commits in between,
        batch(4, 1, 7, True),
        batch(5),  # and one has no producer at all.
        marker(6, 7, False),
        batch(7, 1, 7, True),  # After its marker 7 is believed again.
        marker(8, 8, True),
        aborted=((7, 2),),
    )
    assert offsets(got) == [0, 3, 5, 7]


def test_aborted_transactions_may_be_unordered_and_start_before_the_fetch() -> None:
    got = fetched(
        batch(10, 1, 7, True),
        marker(11, 7, False),
        batch(12, 1, 8, True),
        batch(13, 1, 7, True),
        marker(14, 8, False),
        marker(15, 7, False),
        aborted=((7, 13), (8, 12), (7, 3)),
    )
    assert offsets(got) == []


def test_idempotent_batch_outside_the_transaction_is_returned() -> None:
    assert offsets(fetched(batch(0, 1, 7, True), batch(1, 1, 7, False), aborted=((7, 0),))) == [1]


def test_batches_are_views() -> None:
    got = fetched(batch(0, 3))
    (first,) = got.batches()
    assert isinstance(first, Batch)
    assert first.view.obj is got.records.obj
