"""Conversion of encoded messages to bytes, including slices of files, for tests that examine them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from odradek.net.shell.outbox import FileBytes
from odradek.wire.schema.primitives import IN_MEMORY, Chunk


def frame_of(chunks: Iterable[Chunk] | None) -> bytes:
    """Return the complete frame, including its length."""
    assert chunks is not None, "the request has a response"
    return b"".join(chunk if isinstance(chunk, IN_MEMORY) else cast(FileBytes, chunk).read() for chunk in chunks)
