"""Validation of a producer's records compared with parsing them one by one, for valid and for mangled batches."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import INT32_MAX, TopicName, TopicPartition
from odradek.record import unpack as unpacking
from odradek.record.builder import RecordIn, encode_batch
from odradek.record.compression import Codec
from odradek.record.record_batch import Batch
from odradek.record.records import Record, decode
from odradek.record.unpack import unpack
from odradek.record.validation import RecordsRefused, check_records
from support.record_kernels import BUILDS, INT64, kernel, records

NAME = TopicPartition(TopicName("t"), 0)
CODECS = st.sampled_from(Codec)
TIMES = st.integers(-2, 20) | INT64
Outcome = int | tuple[ErrorCode, list[int]]


class Kernel:
    """The validation kernel, compiled or interpreted."""

    check: Any = None


class Rules(NamedTuple):
    """Requirements of a topic for each record."""

    needs_keys: bool
    oldest: int
    latest: int


RULES = st.builds(Rules, st.booleans(), TIMES, TIMES)


@pytest.fixture(params=BUILDS)
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(Kernel, "check", kernel("decode", request.param).Check)
    monkeypatch.setattr(unpacking, "longest", kernel("decode", request.param).longest)
    return str(request.param)


def by_hand(batch: Batch, rules: Rules) -> Outcome:
    """Return the oracle's greatest time, or the error code and the records that it is for."""
    try:
        found = decode(batch)
    except Refused:
        return ErrorCode.INVALID_RECORD, []
    if [record.offset for record in found] != list(range(len(found))):
        return ErrorCode.INVALID_RECORD, []
    keyless = [record for record in found if rules.needs_keys and record.key is None]
    untimely = [record for record in found if record not in keyless and is_untimely(record, rules)]
    if keyless or untimely:
        code = ErrorCode.INVALID_TIMESTAMP if untimely else ErrorCode.INVALID_RECORD
        return code, sorted(record.offset for record in keyless + untimely)
    return max(record.timestamp for record in found)


def is_untimely(record: Record, rules: Rules) -> bool:
    return record.timestamp != -1 and not rules.oldest <= record.timestamp <= rules.latest


def by_kernel(batch: Batch, rules: Rules) -> Outcome:
    try:
        return check_records(NAME, batch, unpack(batch, INT32_MAX), Kernel.check(*rules))
    except RecordsRefused as refused:
        return refused.code, [error.place for error in refused.errors(1_000)]
    except Refused as refused:
        return refused.code, []


def test_validation_agrees_with_parsing(build: str) -> None:
    @settings(max_examples=200)
    @given(records(TIMES), CODECS, RULES)
    def check(rows: list[RecordIn], codec: Codec, rules: Rules) -> None:
        batch = Batch.checked(encode_batch(rows, codec))
        assert by_kernel(batch, rules) == by_hand(batch, rules)

    check()


def test_validation_agrees_with_parsing_mangled_records(build: str) -> None:
    @settings(max_examples=400)
    @given(records(TIMES), st.randoms(use_true_random=False), st.integers(-1, 1), RULES)
    def check(rows: list[RecordIn], random: Random, more: int, rules: Rules) -> None:
        batch = mangled(rows, random, more)
        assert by_kernel(batch, rules) == by_hand(batch, rules)

    check()


def mangled(rows: list[RecordIn], random: Random, more: int) -> Batch:
    data = bytearray(encode_batch(rows))
    for _ in range(random.randint(0, 3)):
        data[random.randrange(61, len(data))] = random.choice([0, 1, 2, 0x7F, 0x80, 0xFF, random.randrange(256)])
    data[57:61] = max(len(rows) + more, 1).to_bytes(4)
    return Batch.trusted(data)


def test_no_decompressed_record_exceeds_its_limit(build: str) -> None:
    """A batch is decompressed if and only if no record exceeds it; without a codec it always passes."""

    @settings(max_examples=200)
    @given(records(TIMES), CODECS, st.integers(0, 10_000))
    def check(rows: list[RecordIn], codec: Codec, bytes_max: int) -> None:
        batch = Batch.checked(encode_batch(rows, codec))
        fits = codec is Codec.NONE or max(sizes(bytes(Batch.checked(encode_batch(rows)).payload))) <= bytes_max
        try:
            unpack(batch, bytes_max)
        except Refused as refused:
            assert refused.code == ErrorCode.INVALID_RECORD
            assert not fits
        else:
            assert fits

    check()


def sizes(payload: bytes) -> list[int]:
    """Return the sizes of valid records, parsed one after the other."""
    found, position = [], 0
    while position < len(payload):
        size = shift = 0
        while shift == 0 or payload[position - 1] >= 0x80:
            size |= (payload[position] & 0x7F) << shift
            position, shift = position + 1, shift + 7
        found.append(size >> 1)
        position += size >> 1
    return found


def test_unparsable_mangled_batches_never_pass() -> None:
    check = kernel("decode", "compiled").Check(True, 0, 2_000)
    random = Random(11)
    rows: list[RecordIn] = [(b"key", b"v" * 70, [("name", b"x"), ("n", None)], 1000 + i) for i in range(8)]
    for _ in range(20_000):
        batch = mangled(rows, random, random.randint(-1, 1))
        if check.run(batch.payload, batch.records_count, batch.base_timestamp) < 0:
            assert [record.offset for record in decode(batch)] == list(range(batch.records_count))
