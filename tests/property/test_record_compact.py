"""The kernel of log compaction compared with a dict and a list, and with records.py for mangled bytes."""

from __future__ import annotations

from random import Random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.errors import Refused
from odradek.base.units import Offset, TimestampMs
from odradek.record.builder import RecordIn, encode_batch, seal_batch
from odradek.record.record_batch import HEADER_BYTES, Batch
from odradek.record.records import Record, decode
from support.record_kernels import BUILDS, INT64, cells, headers, kernel

SLOT_BYTES = 24
MASK = (1 << 64) - 1
SEEDS = st.binary(min_size=16, max_size=16)
KEYS = st.none() | st.sampled_from([b"", b"a", b"b", b"c" * 7, b"d" * 8, b"e" * 200]) | st.binary(max_size=3)
ROWS = st.lists(st.tuples(KEYS, cells(), headers(), st.integers(0, 20) | INT64), min_size=1, max_size=40)
BASES = st.integers(0, 2**62)


@pytest.fixture(params=BUILDS)
def compact(request: pytest.FixtureRequest) -> ModuleType:
    return kernel("compact", request.param)


# ---------------------------------------------------------------- the digest


def siphash_2_4_128(key: bytes, message: bytes) -> bytes:
    """Return the hash as its authors describe it: the message is padded to words, and the last byte is its length."""
    k = [int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")]
    first = b"somepseudorandomlygeneratedbytes"
    v = [int.from_bytes(first[8 * i : 8 * i + 8]) ^ k[i % 2] for i in range(4)]
    v[1] ^= 0xEE

    def rotate(i: int, bits: int) -> None:
        v[i] = (v[i] << bits | v[i] >> (64 - bits)) & MASK

    def add(i: int, j: int, bits: int) -> None:
        v[i] = (v[i] + v[j]) & MASK
        rotate(j, bits)
        v[j] ^= v[i]

    def rounds(number: int) -> None:
        for _ in range(number):
            add(0, 1, 13)
            rotate(0, 32)
            add(2, 3, 16)
            add(0, 3, 21)
            add(2, 1, 17)
            rotate(2, 32)

    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) % 256])
    for start in range(0, len(padded), 8):
        word = int.from_bytes(padded[start : start + 8], "little")
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    half = []
    for i, constant in ((2, 0xEE), (1, 0xDD)):
        v[i] ^= constant
        rounds(4)
        half.append((v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little"))
    return b"".join(half)


def test_the_digest_equals_siphash(compact: ModuleType) -> None:
    assert siphash_2_4_128(bytes(range(16)), bytes(range(15))).hex() == "5493e99933b0a8117e08ec0f97cfc3d9"

    @given(SEEDS, st.binary(max_size=600))
    def check(seed: bytes, message: bytes) -> None:
        assert compact.digest(message, seed) == siphash_2_4_128(seed, message)

    check()


# ---------------------------------------------------------------- the map


def test_the_offset_map_equals_a_dict(compact: ModuleType) -> None:
    @given(SEEDS, st.integers(1, 60), st.lists(st.integers(0, 80), max_size=150))
    def check(seed: bytes, slots: int, numbers: list[int]) -> None:
        offsets, expected = compact.OffsetMap(slots * SLOT_BYTES, seed), dict[bytes, int]()
        for offset, number in enumerate(numbers):
            key = b"%d" % number
            if key in expected or len(expected) < slots:
                expected[key] = offset
                offsets.put(key, offset)
        assert (len(offsets), offsets.latest) == (len(expected), max(expected.values(), default=-1))
        assert {number: offsets.get(b"%d" % number) for number in range(90)} == {
            number: expected.get(b"%d" % number, -1) for number in range(90)
        }

    check()


# ---------------------------------------------------------------- batches


def batches_of(parts: list[list[RecordIn]], base: int) -> list[Batch]:
    batches = []
    for rows in parts:
        batches.append(Batch.verified(encode_batch(rows, base_offset=Offset(base))))
        base = batches[-1].next_offset
    return batches


def last_offsets(records: list[Record], start: int, room: int) -> tuple[dict[bytes, int], int]:
    """Return the oracle's map, and the first offset that it does not cover, or -1."""
    found: dict[bytes, int] = {}
    for record in records:
        if record.key is not None and record.offset >= start:
            if record.key not in found and len(found) == room:
                return found, record.offset
            found[record.key] = record.offset
    return found, -1


def test_compaction_equals_the_oracles(compact: ModuleType) -> None:
    @settings(max_examples=150)
    @given(
        SEEDS,
        st.lists(ROWS, min_size=1, max_size=4),
        BASES,
        st.integers(0, 40),
        st.integers(0, 60),
        st.booleans(),
        st.none() | INT64,
        st.integers(HEADER_BYTES, HEADER_BYTES + 3),
    )
    def check(  # noqa: PLR0917
        seed: bytes,
        parts: list[list[RecordIn]],
        base: int,
        skipped: int,
        room: int,
        keep: bool,
        new_base: int | None,
        head: int,
    ) -> None:
        batches, start = batches_of(parts, base), base + skipped
        records = [record for batch in batches for record in decode(batch)]
        expected, end = last_offsets(records, start, room)

        offsets = compact.OffsetMap(300 * SLOT_BYTES, seed)
        stopped = -1
        for batch in batches:
            more = room - len(offsets)
            stopped = offsets.put_records(batch.payload, batch.records_count, batch.base_offset, start, more)
            if stopped >= 0:
                break
        assert stopped == end
        assert {key: offsets.get(key) for key in expected} == expected
        assert (len(offsets), offsets.latest) == (len(expected), max(expected.values(), default=-1))

        upto, found = end if end >= 0 else batches[-1].next_offset, compact.Filter(offsets)
        for batch in batches:
            staying = [
                record
                for record in decode(batch)
                if record.offset >= upto
                or (
                    record.key is not None
                    and record.offset >= expected.get(record.key, -1)
                    and (record.value is not None or keep)
                )
            ]
            check_batch(found, batch, (upto, keep, new_base, head), staying)

    check()


def check_batch(found: Any, batch: Batch, rules: tuple[int, bool, int | None, int], staying: list[Record]) -> None:
    upto, keep, new_base, head = rules
    payload, count = batch.payload, batch.records_count
    data = found.run(payload, count, batch.base_offset, batch.base_timestamp, upto, keep, new_base, head)
    assert (found.kept, found.dropped) == (len(staying), count - len(staying))
    assert found.has_tombstones is any(record.value is None for record in staying)
    newest = max(staying, key=lambda record: (record.timestamp, -record.offset), default=None)
    assert (found.max_timestamp, found.max_timestamp_offset) == (
        (newest.timestamp, newest.offset) if newest else (-1, -1)
    )
    assert found.last_offset == (staying[-1].offset if staying else -1)
    assert (data is None) is (len(staying) == count and new_base in (None, batch.base_timestamp))
    if data is None:
        return
    if new_base is None:
        assert len(data) - head == len(payload) - found.dropped_bytes
    sealed = seal_batch(
        data[head - HEADER_BYTES :],
        count=len(staying),
        base_timestamp=batch.base_timestamp if new_base is None else TimestampMs(new_base),
        max_timestamp=TimestampMs(0),
        base_offset=batch.base_offset,
    )
    assert len(sealed) > HEADER_BYTES or not staying
    assert decode(Batch.trusted(sealed)) == staying


# ---------------------------------------------------------------- mangled bytes


def outcome(compact: ModuleType, payload: bytes, count: int, new_base: int | None) -> tuple[bool, bool]:
    """Return whether the map takes the records, and whether the filter does."""
    offsets = compact.OffsetMap(100 * SLOT_BYTES, bytes(16))
    taken = []
    for step in (
        lambda: offsets.put_records(payload, count, 0, 0, 100),
        lambda: compact.Filter(offsets).run(payload, count, 0, 0, 10, False, new_base),
    ):
        try:
            step()
            taken.append(True)
        except compact.BadRecords:
            taken.append(False)
    return taken[0], taken[1]


def mangled(random: Random, payload: bytes) -> bytes:
    data = bytearray(payload)
    for _ in range(random.randint(0, 3)):
        at = random.randrange(len(data) + 1)
        piece = random.choice(
            [b"", b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff" * random.randint(1, 11), random.randbytes(1)]
        )
        data[at : at + random.randint(0, 2)] = piece
    return bytes(data)


@pytest.mark.share(2)
def test_mangled_records_are_compacted_if_they_can_be_parsed(compact: ModuleType) -> None:
    @settings(max_examples=400)
    @given(ROWS, st.randoms(use_true_random=False), st.integers(-1, 1), st.none() | INT64)
    def check(rows: list[RecordIn], random: Random, more: int, new_base: int | None) -> None:
        payload, count = mangled(random, bytes(batches_of([rows], 0)[0].payload)), max(len(rows) + more, 1)
        batch = seal_batch(
            bytearray(HEADER_BYTES) + payload, count=count, base_timestamp=TimestampMs(0), max_timestamp=TimestampMs(0)
        )
        try:
            decode(Batch.trusted(batch))
            is_sound = True
        except Refused:
            is_sound = False
        assert outcome(compact, payload, count, new_base) == (is_sound, is_sound)

    check()


def test_many_mangled_records_never_crash_the_compiled_kernel() -> None:
    compact, random = kernel("compact", "compiled"), Random(7)
    rows = [(b"key", b"v" * 70, [("name", b"x"), ("n", None)], 1000 + i) for i in range(20)]
    payload = bytes(batches_of([rows], 0)[0].payload)
    taken = 0
    for _ in range(20_000):
        first, second = outcome(compact, mangled(random, payload), random.choice([19, 20, 20, 20, 21]), 2**62)
        assert first == second
        taken += first
    assert 1000 < taken < 19_000
