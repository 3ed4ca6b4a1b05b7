"""What a connection's requests of one API were like, so that the next ones like them need not be read.

A few shapes tell where a request may differ from those before it; its other bytes are the key to what they mean.
"""

from __future__ import annotations

from typing import Generic, TypeVar

Shape = TypeVar("Shape")
Meaning = TypeVar("Meaning")

SHAPES_MAX = 4
_MISSES_PER_PLACE = 16


class Learned(Generic[Shape, Meaning]):
    """Bounded: what is not worth it is not learned."""

    __slots__ = ("_known", "_misses", "_shapes", "_size_max")

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._known: dict[bytes, Meaning] = {}
        self._shapes: list[Shape] = []
        self._misses = 0

    def __len__(self) -> int:
        return len(self._known)

    def _has_room(self, shape: Shape) -> bool:
        """For one more of that shape."""
        if len(self._known) >= self._size_max and not self._forget():
            return False
        if shape not in self._shapes:
            if len(self._shapes) >= SHAPES_MAX and not self._forget():
                return False
            self._shapes.append(shape)
        return True

    def _forget(self) -> bool:
        """When there is no room: everything, but only after many requests for which it was of no use."""
        self._misses += 1
        if self._misses < _MISSES_PER_PLACE * self._size_max:  # Till then it may not be out of date.
            return False
        self._known.clear()
        self._shapes.clear()
        self._misses = 0
        return True
