"""Streaming append in progress, as its log holds it; log/log/streaming_append.py begins and completes it."""

from __future__ import annotations

from collections.abc import Callable

from odradek.log.files.disk import File
from odradek.record.record_batch import Batch

NOTHING = memoryview(b"")


class Arrival:
    """Streaming append in progress: `left` more bytes of the batch belong at `position` of `file`.

    The log calls `withdraw` when it needs its end for something else.  After `withdraw` returns, nothing more is
    written to the file.  During the call the written part can still be read.
    """

    def __init__(self, batch: Batch, file: File, position: int) -> None:
        front = len(batch.view)
        assert 0 < front <= batch.size, "the first part of a batch is not longer than the batch"
        batch.view = NOTHING  # The receive buffer behind the view may be reused now.
        self.batch = batch
        self.file = file
        self.position = position + front
        self.left = batch.size - front
        self.withdraw: Callable[[], None] | None = None
