"""The receive buffer of a channel: responses are reassembled from any pieces, and announced sizes cost no memory."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.net.channels.channel_frames import KEPT_BYTES, ResponseFrames
from odradek.wire.schema.malformed import Malformed

SIZES = st.integers(4, 200) | st.integers(KEPT_BYTES - 10, KEPT_BYTES + 10) | st.integers(4, 5 * KEPT_BYTES)


def put(frames: ResponseFrames, data: bytes) -> list[bytes]:
    """Put bytes as a transport does, as many as fit at a time; return the completed frames."""
    found = []
    while data:
        with frames.get_buffer() as space:
            size = min(len(space), len(data))
            assert size
            space[:size] = data[:size]
        data = data[size:]
        frames.received(size)
        while (frame := frames.next_frame()) is not None:
            found.append(frame)
    return [bytes(frame) for frame in found]  # After all of them have arrived.


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4) + body


@given(st.lists(SIZES, max_size=8), st.integers(0, 2**32), st.integers(1, 2 * KEPT_BYTES))
def test_frames_are_reassembled_from_any_pieces(sizes: list[int], seed: int, piece_max: int) -> None:
    random = Random(seed)
    bodies = [random.randbytes(size) for size in sizes]
    data = b"".join(map(framed, bodies))
    frames, found = ResponseFrames(1 << 20), []
    while data:
        size = random.randint(1, piece_max)
        found += put(frames, data[:size])
        data = data[size:]
    assert found == bodies
    assert frames.buffer_bytes <= KEPT_BYTES + max(sizes, default=0) + 4


def test_buffer_is_at_most_twice_the_received_size() -> None:
    frames = ResponseFrames(100 << 20)
    arrived = 4
    put(frames, (100 << 20).to_bytes(4))
    for size in (1, 100, KEPT_BYTES, 50_000, 200_000, 1_000_000):
        put(frames, bytes(size))
        arrived += size
        assert frames.buffer_bytes <= max(KEPT_BYTES, 2 * arrived)


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 3, 101, 2**31 - 1])
def test_invalid_response_size_is_refused(size: int) -> None:
    with pytest.raises(Malformed, match=f"a response of {size} bytes exceeds the limit of 100 bytes"):
        put(ResponseFrames(100), size.to_bytes(4, signed=True))


def large(fill: bytes, size: int) -> bytes:
    return framed(fill * size)


def test_large_response_reuses_the_memory_of_the_previous() -> None:
    frames = ResponseFrames(1 << 20)
    assert put(frames, large(b"a", 100_000)) == [b"a" * 100_000]
    before = frames.buffer_bytes
    for fill, size in ((b"b", 99_000), (b"c", 100_000), (b"d", 50_000)):
        assert put(frames, large(fill, size) + framed(b"next")[:5]) == [fill * size]
        assert frames.buffer_bytes == before
        assert put(frames, framed(b"next")[5:]) == [b"next"]
        assert frames.buffer_bytes == KEPT_BYTES, "after a small one nothing large is kept"
        assert put(frames, large(b"a", 100_000)) == [b"a" * 100_000]


def test_referenced_response_is_not_overwritten() -> None:
    frames = ResponseFrames(1 << 20)
    data, kept = large(b"a", 100_000), []
    for fill in (b"b", b"c", b"d"):
        data += large(fill, 100_000)
    while data:
        with frames.get_buffer() as space:
            size = min(len(space), len(data))
            space[:size] = data[:size]
        data = data[size:]
        frames.received(size)
        while (frame := frames.next_frame()) is not None:
            kept.append(memoryview(frame)[10:20])
            frame = None
    assert list(map(bytes, kept)) == [b"a" * 10, b"b" * 10, b"c" * 10, b"d" * 10]
