"""Work on one log's files that the disk has not done yet: memory changes first, the files follow.

The works are done in the order in which they were owed, each possibly more than once.  Until all are done nothing is
appended: the files then are a run of what the log was or is, whatever happens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

Work = Callable[[], None]


class Owed:
    """A queue of works that are owed; falsy if nothing is owed."""

    __slots__ = ("_works",)

    def __init__(self) -> None:
        self._works: deque[Work] = deque()

    def __bool__(self) -> bool:
        return bool(self._works)

    def add(self, *works: Work) -> None:
        """Adds works.  Each raises DiskFailed if it fails, and may be done again after it failed half-way."""
        self._works.extend(works)

    def forget(self, works: Iterable[Work]) -> None:
        """Lets go of works on files that are taken away: one that fails for ever would keep the others from theirs."""
        gone = list(works)
        self._works = deque(work for work in self._works if work not in gone)

    def settle(self) -> None:
        """Does what is owed, up to the first that fails.  Raises DiskFailed."""
        while self._works:
            self._works[0]()
            self._works.popleft()
