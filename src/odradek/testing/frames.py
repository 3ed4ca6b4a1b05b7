"""Encoded messages as the bytes they are, slices of files read in: for what a test looks into."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from odradek.net.outbox import FileBytes
from odradek.wire.primitives import IN_MEMORY, Chunk


def frame_of(chunks: Iterable[Chunk] | None) -> bytes:
    """The whole frame, with its length."""
    assert chunks is not None, "a request that gets an answer"
    return b"".join(chunk if isinstance(chunk, IN_MEMORY) else cast(FileBytes, chunk).read() for chunk in chunks)
