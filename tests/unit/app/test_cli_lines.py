from __future__ import annotations

import os
import re
import threading
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis.strategies import binary, integers, lists

from odradek.app.terminal import lines
from odradek.app.terminal.command_failed import CommandFailed
from odradek.app.terminal.lines import lines_of


def feed_lines(pieces: list[bytes], pause_seconds: float = 0.0) -> tuple[list[bytes], int]:
    """Return the lines of input in these pieces, and the number of reported pauses."""
    reading, writing = os.pipe()
    pauses: list[None] = []

    def feed() -> None:
        for piece in pieces:
            os.write(writing, piece)
            time.sleep(pause_seconds)
        os.close(writing)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        return list(lines_of(reading, 10, lambda: pauses.append(None))), len(pauses)
    finally:
        thread.join()
        os.close(reading)


@settings(deadline=None)  # Time is not tested, and the machine may be busy.
@given(binary(max_size=300), lists(integers(0, 300), max_size=8))
def test_lines_do_not_depend_on_the_pieces(data: bytes, cuts: list[int]) -> None:
    data = data.replace(b"\x00", b"\n").replace(b"\x01", b"\r")
    borders = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    pieces = [data[start:end] for start, end in pairwise(borders)]
    expected = re.split(rb"\r\n|\r|\n", data)
    if not expected[-1]:
        expected.pop()
    assert feed_lines(pieces)[0] == expected


def test_windows_line_ending_is_one_line_wherever_it_is_split() -> None:
    assert feed_lines([b"a\r\nb\r\n"])[0] == [b"a", b"b"]
    assert feed_lines([b"a\r", b"\nb\r", b"c\r", b"\n"], 0.02)[0] == [b"a", b"b", b"c"]


def test_pauses_are_reported() -> None:
    found, pauses = feed_lines([b"a\nb", b"c\nd"], 0.05)
    assert found == [b"a", b"bc", b"d"]
    assert pauses >= 2


def test_too_long_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINE_BYTES_MAX", 1000)
    with pytest.raises(CommandFailed, match="line too long"):
        feed_lines([b"x" * 600, b"x" * 600], 0.02)
