"""Responses to ZooKeeper's multiRead: MultiHeader with GetDataResponse, or ErrorResult."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("kazoo", reason="ZooKeeper is reached through kazoo.")

from odradek.coordination.multi_read import Answer, MultiRead

STATS = st.tuples(*[st.integers(0, 2**62)] * 4, *[st.integers(0, 2**31 - 1)] * 3, st.integers(0, 2**62)).map(
    lambda one: (*one, 0, 0, 0)
)
ANSWERS = st.lists(st.tuples(st.none() | st.binary(max_size=50), STATS) | st.integers(-120, -1), max_size=8)


def written(answers: list[Answer]) -> bytes:
    frame = b""
    for one in answers:
        if isinstance(one, int):
            frame += struct.pack(">i?ii", -1, False, one, one)
        else:
            data, stat = one
            value = struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
            frame += struct.pack(">i?i", 4, False, 0) + value + struct.pack(">qqqqiiiqiiq", *stat)
    return frame + struct.pack(">i?i", -1, True, -1)


@given(ANSWERS, st.binary(max_size=20))
def test_multi_read_responses_are_decoded(answers: list[Answer], before: bytes) -> None:
    multi_read = MultiRead([f"/{number}" for number in range(len(answers))])
    read = multi_read.deserialize(before + written(answers), len(before))
    assert [one if isinstance(one, int) else (one[0], tuple(one[1])) for one in read] == answers


@given(ANSWERS.filter(bool), st.data())
def test_a_truncated_multi_read_response_is_an_error(answers: list[Answer], data: st.DataObject) -> None:
    multi_read = MultiRead([f"/{number}" for number in range(len(answers))])
    frame = written(answers)[:-9]
    with pytest.raises(struct.error):
        multi_read.deserialize(frame[: data.draw(st.integers(0, len(frame) - 1))], 0)
