from __future__ import annotations

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import RECORD_ERRORS_MAX
from odradek.base.units import INT32_MAX, INT64_MAX, TimestampMs, TopicName, TopicPartition
from odradek.record.builder import RecordIn, encode_batch, encode_record, seal_batch
from odradek.record.compression import Codec
from odradek.record.kernels.decode import Check
from odradek.record.record_batch import HEADER_BYTES, Batch
from odradek.record.unpack import unpack
from odradek.record.validation import RecordsRefused, check_records

NAME = TopicPartition(TopicName("t"), 3)


def batch_of(deltas: list[int], codec: Codec, count: int, tail: bytes = b"") -> Batch:
    data = bytearray(HEADER_BYTES)
    for delta in deltas:
        encode_record(data, delta, 0, None, b"value")
    now = TimestampMs(1)
    return Batch.checked(seal_batch(data + tail, codec, count=count, base_timestamp=now, max_timestamp=now))


def check(batch: Batch, *, needs_keys: bool = False, oldest: int = -INT64_MAX, latest: int = INT64_MAX) -> TimestampMs:
    return check_records(NAME, batch, unpack(batch, INT32_MAX), Check(needs_keys, oldest, latest))


@pytest.mark.parametrize("codec", Codec)
def test_valid_records_are_accepted(codec: Codec) -> None:
    assert check(Batch.checked(encode_batch([(b"k", b"v", [("h", None)], i) for i in range(100)], codec))) == 99


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(
    ("deltas", "count", "tail", "why"),
    [
        ([0, 1, 2], 2, b"", "bytes after the last"),
        ([0, 1, 2], 5, b"", "record 3 of 5"),
        ([0, 1, 2], 3, b"zzz", "bytes after the last"),
        ([0, 5, 2], 3, b"", "record 1 of 3"),
        ([], 3, b"\xff" * 30, "record 0 of 3"),
    ],
)
def test_records_that_contradict_the_header_are_refused(
    codec: Codec, deltas: list[int], count: int, tail: bytes, why: str
) -> None:
    with pytest.raises(Refused, match=why) as caught:
        check(batch_of(deltas, codec, count, tail))
    assert caught.value.code == ErrorCode.INVALID_RECORD


def test_records_without_a_key_are_listed() -> None:
    batch = Batch.checked(encode_batch([(key, b"v", [], 5) for key in (b"k", None, b"", None)]))
    with pytest.raises(RecordsRefused, match="2 record errors in total; the first is record 1") as caught:
        check(batch, needs_keys=True)
    assert caught.value.code == ErrorCode.INVALID_RECORD
    assert caught.value.errors(9) == [
        (place, "Compacted topic cannot accept message without key in topic partition t-3.") for place in (1, 3)
    ]
    assert len(caught.value.errors(1)) == 1


def test_timestamps_out_of_range_take_precedence_over_missing_keys() -> None:
    batch = Batch.checked(encode_batch([(None, b"v", [], 5), *((b"k", b"v", [], time) for time in (1, 2, -1, 8, 9))]))
    with pytest.raises(RecordsRefused, match="due to invalid timestamp") as caught:
        check(batch, needs_keys=True, oldest=2, latest=8)
    assert caught.value.code == ErrorCode.INVALID_TIMESTAMP
    bounds = "is out of range. It should be within [2, 8]"
    assert [error.place for error in caught.value.errors(9)] == [0, 1, 5]
    assert caught.value.errors(9)[1].detail == f"Timestamp 1 of message with offset 1 {bounds}"
    assert caught.value.errors(9)[2].detail == f"Timestamp 9 of message with offset 5 {bounds}"


def test_invalid_timestamp_after_missing_keys_is_the_reported_error() -> None:
    """The error code reports an invalid timestamp, so the message and one of the listed records do, too."""
    rows: list[RecordIn] = [(None, b"v", [], 5), (None, b"v", [], 5), (b"k", b"v", [], 9)]
    with pytest.raises(RecordsRefused, match="due to invalid timestamp; the first is record 2: Timestamp 9") as caught:
        check(Batch.checked(encode_batch(rows)), needs_keys=True, oldest=2, latest=8)
    assert caught.value.code == ErrorCode.INVALID_TIMESTAMP
    for count, places in ((1, [2]), (2, [0, 2]), (3, [0, 1, 2])):
        errors = caught.value.errors(count)
        assert [error.place for error in errors] == places
        assert "Timestamp 9" in errors[-1].detail
        assert all("without key" in error.detail for error in errors[:-1])


def test_invalid_timestamp_after_very_many_missing_keys_is_reported() -> None:
    rows: list[RecordIn] = [(None, b"v", [], 5)] * (RECORD_ERRORS_MAX + 5) + [(b"k", b"v", [], 9)]
    with pytest.raises(RecordsRefused, match=f"the first is record {RECORD_ERRORS_MAX + 5}: Timestamp 9") as caught:
        check(Batch.checked(encode_batch(rows)), needs_keys=True, oldest=2, latest=8)
    assert caught.value.errors(INT32_MAX)[-1].place == RECORD_ERRORS_MAX + 5


def test_number_of_listed_records_is_limited() -> None:
    batch = Batch.checked(encode_batch([(None, b"v", [], 5)] * (RECORD_ERRORS_MAX + 5)))
    with pytest.raises(RecordsRefused, match=f"{RECORD_ERRORS_MAX + 5} record errors") as caught:
        check(batch, needs_keys=True)
    assert [error.place for error in caught.value.errors(INT32_MAX)] == list(range(RECORD_ERRORS_MAX))
