"""Producer ids: never given twice in a cluster.  A broker takes a thousand at a time from the metadata tree.

The next thousand is asked for before the last is used up; a producer that needs an id while there is none waits.
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
    """The ids that this broker may give out; `ask` asks the shell for a block, which comes to `brought` later."""

    def __init__(self, ask: Callable[[], None]) -> None:
        self._ask = ask
        self._is_asked = False
        self._next = 0
        self._end = 0
        self._then: ProducerIdBlock | None = None
        self._waiting: list[Callable[[ProducerId | None], None]] = []

    def take(self, use: Callable[[ProducerId | None], None]) -> None:
        """Calls `use` with an id, now or later; with None if none could be had."""
        if self._next == self._end and self._then is not None:
            self._begin(self._then)
        if self._next < self._end:
            self._next += 1
            use(ProducerId(self._next - 1))
        else:
            self._waiting.append(use)
        self.prepare()

    def prepare(self) -> None:
        """Asks for another block if few ids are left."""
        if self._end - self._next < LEFT_TO_ASK and self._then is None and not self._is_asked:
            self._is_asked = True
            self._ask()

    def brought(self, block: ProducerIdBlock | None) -> None:
        """Takes in a block that was asked for; None if the metadata could not be changed."""
        self._is_asked = False
        self._then = block
        waiting, self._waiting = self._waiting, []
        for use in waiting:
            if block is None:
                use(None)
            else:
                self.take(use)

    def _begin(self, block: ProducerIdBlock) -> None:
        self._next, self._end, self._then = block.first, block.last + 1, None
