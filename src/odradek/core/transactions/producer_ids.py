"""Producer ids, unique in a cluster and allocated from the metadata tree in blocks of a thousand.

The next block is requested before the last one is used up. A producer that needs an id while none is available waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from odradek.base.units import ProducerId

REQUEST_BELOW = 100


class ProducerIdBlock(NamedTuple):
    """A block of producer ids, from `first` to `last`, both included."""

    first: ProducerId
    last: ProducerId


class ProducerIds:
    """The ids this broker may allocate.

    `request_block` requests a block from the shell, answered by `on_block_allocated`.
    """

    def __init__(self, request_block: Callable[[], None]) -> None:
        self._request_block = request_block
        self._is_requested = False
        self._next = 0
        self._end = 0
        self._next_block: ProducerIdBlock | None = None
        self._waiting: list[Callable[[ProducerId | None], None]] = []

    def allocate_id(self, use: Callable[[ProducerId | None], None]) -> None:
        """Call `use` with an id, now or later, or with None if none is available."""
        if self._next == self._end and self._next_block is not None:
            self._begin(self._next_block)
        if self._next < self._end:
            self._next += 1
            use(ProducerId(self._next - 1))
        else:
            self._waiting.append(use)
        self.prepare()
        assert self._is_requested or not self._waiting, "an allocation waits only for a requested block"

    def prepare(self) -> None:
        """Request another block if few ids are left."""
        if self._end - self._next < REQUEST_BELOW and self._next_block is None and not self._is_requested:
            self._is_requested = True
            self._request_block()

    def on_block_allocated(self, block: ProducerIdBlock | None) -> None:
        """Add a requested block; None if the metadata could not be changed."""
        assert self._is_requested and self._next_block is None, "a block is requested once, when there is no next one"
        self._is_requested = False
        self._next_block = block
        waiting, self._waiting = self._waiting, []
        for use in waiting:
            if block is None:
                use(None)
            else:
                self.allocate_id(use)

    def _begin(self, block: ProducerIdBlock) -> None:
        self._next, self._end, self._next_block = block.first, block.last + 1, None
