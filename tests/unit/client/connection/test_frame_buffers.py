from __future__ import annotations

from hypothesis import given, settings
from hypothesis.strategies import booleans, integers, lists, tuples

from odradek.client.connection.frame_buffers import KEPT_BUFFERS_MAX, SMALLEST_BYTES, FrameBuffers


def test_unreferenced_frame_is_reused() -> None:
    frames = FrameBuffers()
    first = frames.claim_buffer(100)
    buffer = first.obj
    del first
    assert frames.claim_buffer(200).obj is buffer


def test_referenced_frame_is_not_reused() -> None:
    frames = FrameBuffers()
    first = frames.claim_buffer(4)
    first[:] = b"kept"
    part = first[1:3]
    del first
    for _ in range(10):
        frames.claim_buffer(4)[:] = b"xxxx"
    assert bytes(part) == b"ep"


@settings(deadline=None)  # Time is not tested, and the machine may be busy.
@given(lists(tuples(integers(1, 4 * SMALLEST_BYTES), booleans()), max_size=30))
def test_kept_views_keep_their_bytes(takes: list[tuple[int, bool]]) -> None:
    frames = FrameBuffers()
    held: list[tuple[int, memoryview]] = []
    for number, (size, is_held) in enumerate(takes):
        view = frames.claim_buffer(size)
        assert len(view) == size
        view[0] = view[-1] = number
        if is_held:
            held.append((number, view))
    for number, view in held:
        assert view[0] == view[-1] == number
    assert len(frames._kept) <= KEPT_BUFFERS_MAX
