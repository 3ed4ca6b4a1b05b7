"""Garbage is parsed or Malformed, never anything else; what was parsed can be written again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.wire.catalog import APIS, HEADERS
from odradek.wire.compile import decode, encode
from odradek.wire.errors import Malformed
from odradek.wire.schema import schema_of

CASES = [
    (cls, version)
    for cls in (each for pair in (*APIS.values(), HEADERS) for each in pair)
    for version in {schema_of(cls).versions[0], schema_of(cls).flexible_from or 0, schema_of(cls).versions[-1]}
]
# Small numbers make plausible counts and lengths; the rest is noise.
plausible = st.lists(st.sampled_from([0, 0, 0, 1, 1, 2, 3, 4, 5, 0x7F, 0x80, 0xFF]), max_size=300).map(bytes)


@pytest.mark.parametrize(("cls", "version"), CASES, ids=lambda each: getattr(each, "__name__", str(each)))
def test_garbage(cls: type, version: int) -> None:
    @settings(max_examples=60, deadline=None, database=None)
    @given(st.one_of(st.binary(max_size=200), plausible))
    def check(data: bytes) -> None:
        try:
            message: object = decode(cls, version, data)
        except Malformed:
            return
        assert decode(cls, version, encode(message, version)) == message

    check()
