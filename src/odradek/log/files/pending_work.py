"""Pending work on one log's files: memory changes first, and the files follow.

Work items run in the order in which they were added, and each may run more than once.  No append happens before all are
done.  So the files always contain a contiguous part of the former or the present log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

Work = Callable[[], None]


class PendingWork:
    """Queue of pending work; false if it is empty."""

    __slots__ = ("_works",)

    def __init__(self) -> None:
        self._works: deque[Work] = deque()

    def __bool__(self) -> bool:
        return bool(self._works)

    def add(self, *works: Work) -> None:
        """Add work items; each raises DiskFailed on failure, and may be repeated after a partial failure."""
        self._works.extend(works)

    def forget(self, works: Iterable[Work]) -> None:
        """Drop work on files that will be deleted, because a permanent failure would block later work."""
        dropped = list(works)
        self._works = deque(work for work in self._works if work not in dropped)

    def settle(self) -> None:
        """Run the pending work in order, up to the first failure.  Raise DiskFailed for that failure."""
        while self._works:
            work = self._works[0]
            work()
            assert self._works[0] is work, "pending work leaves its queue alone"
            self._works.popleft()
