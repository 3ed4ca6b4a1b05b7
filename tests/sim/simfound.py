"""What is looked for in the simulated tree again and again, and found anew only when that has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from sim.simtree import SimTreeServer

T = TypeVar("T")


class Found(Generic[T]):
    """What `find` returns of a tree; nobody may change it."""

    def __init__(self, server: SimTreeServer, find: Callable[[], T]) -> None:
        self._server = server
        self._find = find
        self._of: object = None  # The nodes of which it was found: each change of the tree makes others.

    def get(self) -> T:
        if self._of is not self._server.znodes:
            self._found = self._find()
            self._of = self._server.znodes
        return self._found
