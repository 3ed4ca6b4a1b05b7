"""Lines of several writers, forwarded complete and in bounded memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from odradek.app.serve import line_queue
from odradek.app.serve.line_queue import LINE_BYTES_MAX, QUEUE_BYTES_MAX, LineBuffer, LineQueue


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_lines_are_split_for_any_chunk_size(size: int) -> None:
    text, buffer = b"one\n\ntwo\nthr", LineBuffer()
    lines = [line for at in range(0, len(text), size) for line in buffer.feed(text[at : at + size])]
    assert lines == [b"one\n", b"\n", b"two\n"]
    assert buffer.take_unfinished_line() == [b"thr\n"]
    assert buffer.take_unfinished_line() == []


def test_long_line_is_truncated_and_the_next_one_is_complete() -> None:
    buffer = LineBuffer()
    for _ in range(4):
        assert buffer.feed(b"x" * (LINE_BYTES_MAX // 2)) == []
    long, short = buffer.feed(b"y\nshort\n")
    assert long == b"x" * LINE_BYTES_MAX + b"... (%d more)\n" % (LINE_BYTES_MAX + 1)
    assert short == b"short\n"


def test_lines_wait_in_order_for_a_full_pipe(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    file = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    queue, line = LineQueue(), b"x" * 9_999 + b"\n"
    for _ in range(10):
        queue.put(writing, line)
    queue.put(file, b"last\n")
    queue.flush()
    assert queue.waits_for == writing
    received = b""
    while queue.waits_for is not None:
        received += os.read(reading, 1 << 20)
        queue.flush()
    os.close(writing)
    received += os.read(reading, 1 << 20)
    assert received == line * 10
    assert (tmp_path / "file").read_bytes() == b"last\n"
    os.close(reading)
    os.close(file)


def test_lines_beyond_the_limit_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_queue, "LAST_MS_MAX", 1)
    reading, writing = os.pipe()
    queue, line = LineQueue(), b"x" * 9_999 + b"\n"
    while queue.has_room:
        queue.put(writing, line)
        queue.flush()
    for _ in range(QUEUE_BYTES_MAX // len(line)):
        queue.put(writing, line)  # Lines beyond the limit are dropped.
    assert not queue.has_room
    queue.flush_last()
    assert queue.waits_for == writing
    os.close(reading)
    queue.flush()
    assert queue.waits_for is None
    assert queue.has_room
    os.close(writing)


def test_closed_descriptor_loses_only_its_own_lines(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    file = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    os.close(reading)
    os.close(writing)
    queue = LineQueue()
    queue.put(writing, b"lost\n")
    queue.put(file, b"kept\n")
    queue.flush()
    assert (tmp_path / "file").read_bytes() == b"kept\n"
    os.close(file)
