"""The survey of a batch compared with its records one by one, for valid and for mangled batches."""

from __future__ import annotations

from random import Random
from struct import Struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import INT32_MAX, INT64_MAX, Offset, TimestampMs
from odradek.record import survey as surveying
from odradek.record.builder import RecordIn, encode_batch
from odradek.record.compression import Codec
from odradek.record.record_batch import Batch
from odradek.record.records import decode
from odradek.record.survey import BatchSummary, FoundRecord, survey
from odradek.record.unpack import unpack
from support.record_kernels import BUILDS, INT64, kernel, records

RECORDS_COUNT_POSITION = 57
CODECS = st.sampled_from(Codec)
# Near each other, so that a wanted time is often between two of them.
TIMES = st.integers(0, 20) | INT64


def by_hand(batch: Batch, timestamp: int, start: int) -> BatchSummary | ErrorCode:
    """Return the oracle's result."""
    try:
        found = decode(batch)
    except Refused as refused:
        return refused.code
    times = [record.timestamp for record in found]
    reaching = [each for each in found if each.timestamp >= timestamp and each.offset >= start]
    return BatchSummary(
        min(times, default=TimestampMs(INT64_MAX)),
        max(times, default=TimestampMs(-INT64_MAX - 1)),
        sum(record.key is None for record in found),
        FoundRecord(reaching[0].timestamp, reaching[0].offset) if reaching else None,
    )


def by_kernel(batch: Batch, timestamp: int, start: int) -> BatchSummary | ErrorCode:
    try:
        return survey(batch, unpack(batch, INT32_MAX), timestamp=TimestampMs(timestamp), start=Offset(start))
    except Refused as refused:
        return refused.code


def counting(data: bytearray, count: int) -> Batch:
    """Return the batch with another records_count in its header."""
    Struct(">i").pack_into(data, RECORDS_COUNT_POSITION, count)
    return Batch.trusted(data)


@pytest.fixture(params=BUILDS)
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(surveying, "Survey", kernel("decode", request.param).Survey)
    return str(request.param)


def test_the_survey_agrees_with_parsing(build: str) -> None:
    @settings(max_examples=150)
    @given(records(TIMES), CODECS, TIMES, st.integers(-2, 14), st.booleans())
    def check(rows: list[RecordIn], codec: Codec, timestamp: int, start: int, stamped: bool) -> None:
        data = bytearray(encode_batch(rows, codec, base_offset=Offset(3)))
        batch = Batch.verified(data)
        if stamped:
            batch.stamp_log_append_time(TimestampMs(10))
        summary = by_kernel(batch, timestamp, start)
        assert not isinstance(summary, ErrorCode)
        assert summary == by_hand(batch, timestamp, start)

    check()


def test_the_survey_agrees_with_parsing_mangled_records(build: str) -> None:
    @settings(max_examples=300)
    @given(records(TIMES), st.randoms(use_true_random=False), st.integers(-1, 1), TIMES)
    def check(rows: list[RecordIn], random: Random, more: int, timestamp: int) -> None:
        data = bytearray(encode_batch(rows))
        for _ in range(random.randint(0, 3)):
            data[random.randrange(61, len(data))] = random.choice([0, 1, 2, 0x7F, 0x80, 0xFF, random.randrange(256)])
        count = max(len(rows) + more, 1)
        batch = counting(data, count)
        assert by_kernel(batch, timestamp, 0) == by_hand(batch, timestamp, 0)

    check()


def test_false_record_counts_are_rejected(build: str) -> None:
    data = bytearray(encode_batch([(b"k", b"v", [], 1)]))
    for count in (-2, -1, 2, 2**31 - 1):
        assert by_kernel(counting(data, count), 0, 0) is ErrorCode.CORRUPT_MESSAGE
