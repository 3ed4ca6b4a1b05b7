"""Varints and tagged sections compared with their values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.limits import TAGGED_FIELDS_MAX
from odradek.wire.schema.varint import read_uvarint, skip_tags, uvarint

values = st.one_of(st.integers(0, (1 << 35) - 1), st.sampled_from([0, 127, 128, 16383, 16384, (1 << 32) - 1]))


@given(values, st.binary(max_size=3), st.binary(max_size=3))
def test_decoded_varints_equal_encoded_ones(value: int, before: bytes, after: bytes) -> None:
    encoded = uvarint(value)
    assert read_uvarint(before + encoded + after, len(before)) == (value, len(before) + len(encoded))
    assert len(encoded) == max(1, -(-value.bit_length() // 7))


@given(st.lists(st.tuples(values, st.binary(max_size=200)), max_size=5), st.binary(max_size=5))
def test_tags_are_skipped_to_their_end(tags: list[tuple[int, bytes]], after: bytes) -> None:
    section = uvarint(len(tags)) + b"".join(uvarint(tag) + uvarint(len(data)) + data for tag, data in tags)
    assert skip_tags(section + after, 0, TAGGED_FIELDS_MAX) == (len(section), TAGGED_FIELDS_MAX - len(tags))
