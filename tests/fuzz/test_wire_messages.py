"""Garbage as messages: it is parsed or Malformed, and parsed messages can be encoded again.

False counts are tested separately: no memory is allocated for them, however they are combined.
"""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.wire.catalog import APIS, HEADERS
from odradek.wire.schema.compile import decode, encode, reader
from odradek.wire.schema.malformed import Malformed
from odradek.wire.schema.schema import schema_of
from odradek.wire.schema.varint import uvarint

CASES = [
    (cls, version)
    for cls in (each for pair in (*APIS.values(), HEADERS) for each in pair)
    for version in {schema_of(cls).versions[0], schema_of(cls).flexible_from or 0, schema_of(cls).versions[-1]}
]
# Small numbers make plausible counts and lengths; the rest is noise.
plausible = st.lists(st.sampled_from([0, 0, 0, 1, 1, 2, 3, 4, 5, 0x7F, 0x80, 0xFF]), max_size=300).map(bytes)
# Counts at and beyond each bound, in both forms, among the bytes that lead from one to the next.
COUNTS = [1, 2, 127, 1_000, 10_000, 10_001, 99_999, 1_000_000, 1_000_001, (1 << 31) - 1]
declared = st.lists(
    st.one_of(
        st.sampled_from(COUNTS).map(uvarint),
        st.sampled_from(COUNTS).map(lambda count: pack(">i", count)),
        st.sampled_from([b"", b"\0", b"\1", bytes(16), b"\2x", b"\0\1x"]),
    ),
    max_size=30,
).map(b"".join)
DECODED_BYTES_PER_BYTE_MAX = 1_000  # An object with a few lists, for one byte.


@pytest.mark.share(5)
@pytest.mark.parametrize(("cls", "version"), CASES, ids=lambda each: getattr(each, "__name__", str(each)))
def test_garbage_is_parsed_or_malformed(cls: type, version: int) -> None:
    @settings(max_examples=60, deadline=None, database=None)
    @given(st.one_of(st.binary(max_size=200), plausible))
    def check(data: bytes) -> None:
        try:
            message: object = decode(cls, version, data)
        except Malformed:
            return
        assert decode(cls, version, encode(message, version)) == message

    check()


@pytest.mark.share(5)
@pytest.mark.parametrize(("cls", "version"), CASES, ids=lambda each: getattr(each, "__name__", str(each)))
def test_false_counts_allocate_no_memory(cls: type, version: int) -> None:
    @settings(max_examples=20, deadline=None, database=None)
    @given(declared)
    def check(data: bytes) -> None:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        with suppress(Malformed):
            decode(cls, version, data)
        _, peak = tracemalloc.get_traced_memory()
        assert peak - before < 100_000 + DECODED_BYTES_PER_BYTE_MAX * len(data)

    reader(cls, version)  # Compiled before memory is measured.
    tracemalloc.start()
    try:
        check()
    finally:
        tracemalloc.stop()
