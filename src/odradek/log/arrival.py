"""A streaming append: a batch that is written while it is still being received.

A large batch that lies in memory as a whole has left the processor's cache before it is written.  So its front is
written to the log's end as soon as that is there, and whoever receives the rest puts each piece behind it.  Nothing of
it counts before all of it is there and intact: readers, indexes and recovery know the log's end, which is before it.
One batch can be on its way into a log at a time; whatever else changes the log's end makes it stop.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.log.disk import File
from odradek.record.batch import Batch

NOTHING = memoryview(b"")


class Arrival:
    """One streaming append: the rest of the batch, `left` bytes, goes to `file` from `position` on.

    `withdraw` is called when the log needs its end for something else.  When it returns nobody writes to the file any
    more; what was written there can still be read during the call.
    """

    def __init__(self, batch: Batch, file: File, position: int) -> None:
        front = len(batch.view)
        assert 0 < front <= batch.size, "a batch begins with its front"
        batch.view = NOTHING  # It lies in a receive buffer, which may be used again now.
        self.batch = batch
        self.file = file
        self.position = position + front
        self.left = batch.size - front
        self.withdraw: Callable[[], None] | None = None
