"""Producer ids, unique in a cluster and allocated from the metadata tree in blocks of a thousand.

The next block is requested before the last one is used up. A producer that needs an id while none is available waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from odradek.base.units import ProducerId

LEFT_TO_ASK = 100


class ProducerIdBlock(NamedTuple):
    """A block of producer ids, from `first` to `last`, both included."""

    first: ProducerId
    last: ProducerId


class ProducerIds:
    """The ids this broker may allocate; `ask` requests a block from the shell, answered by `brought`."""

    def __init__(self, ask: Callable[[], None]) -> None:
        self._ask = ask
        self._is_asked = False
        self._next = 0
        self._end = 0
        self._then: ProducerIdBlock | None = None
        self._waiting: list[Callable[[ProducerId | None], None]] = []

    def allocate_id(self, use: Callable[[ProducerId | None], None]) -> None:
        """Call `use` with an id, now or later, or with None if none is available."""
        if self._next == self._end and self._then is not None:
            self._begin(self._then)
        if self._next < self._end:
            self._next += 1
            use(ProducerId(self._next - 1))
        else:
            self._waiting.append(use)
        self.prepare()
        assert self._is_asked or not self._waiting, "an allocation waits only for a requested block"

    def prepare(self) -> None:
        """Request another block if few ids are left."""
        if self._end - self._next < LEFT_TO_ASK and self._then is None and not self._is_asked:
            self._is_asked = True
            self._ask()

    def on_block_allocated(self, block: ProducerIdBlock | None) -> None:
        """Add a requested block; None if the metadata could not be changed."""
        assert self._is_asked and self._then is None, "a block is requested once, when there is no next one"
        self._is_asked = False
        self._then = block
        waiting, self._waiting = self._waiting, []
        for use in waiting:
            if block is None:
                use(None)
            else:
                self.allocate_id(use)

    def _begin(self, block: ProducerIdBlock) -> None:
        self._next, self._end, self._then = block.first, block.last + 1, None
