"""A cached search result in the simulated tree, which is updated only when the tree has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from sim.simtree import SimTreeServer

T = TypeVar("T")


class Found(Generic[T]):
    """The result of `find` on a tree; callers must not change it."""

    def __init__(self, server: SimTreeServer, find: Callable[[], T]) -> None:
        self._server = server
        self._find = find
        self._of: object = None  # The nodes of the search; each change of the tree creates new ones.

    def get(self) -> T:
        if self._of is not self._server.znodes:
            self._found = self._find()
            self._of = self._server.znodes
        return self._found
