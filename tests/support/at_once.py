"""A shell without threads: it executes effects of the core at once, and reports their end in a separate callback."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import TypeVar

from odradek.coordination.tree import TreeFailed
from odradek.core.kernel.chores import ChoresRun
from odradek.core.kernel.moment import Moment
from odradek.net.loop.pools import Pool
from odradek.net.loop.threads import completed_future

T = TypeVar("T")


def done(work: Callable[[], T]) -> Future[T]:
    """Return the future of work executed here; any failure except of the metadata tree fails the test at once."""
    future = completed_future(work)
    failure = future.exception()
    if failure is not None and not isinstance(failure, TreeFailed):
        raise failure
    return future


class AtOnce:
    """A shell that implements net.effects.Shell. The caller that starts an effect settles, never its end."""

    def __init__(self, now: Callable[[], Moment], callback: Callable[[], AbstractContextManager[None]]) -> None:
        """Create a shell; `callback` surrounds the work that a loop would do without a pause."""
        self.now = now
        self.callback = callback
        self.slices: deque[Iterator[None]] = deque()

    def settle(self) -> None:
        """Do nothing; the caller that starts an effect settles."""

    def in_thread(self, work: Callable[[], T], then: Callable[[Future[T]], None], pool: Pool) -> None:
        future = done(work)
        if pool is Pool.CHORES:
            assert future.result() == ChoresRun([]), "no chore fails here"
        self._notify(future, then)

    def in_order(self, work: Callable[[], T], then: Callable[[Future[T]], None]) -> None:
        self._notify(done(work), then)

    def _notify(self, future: Future[T], then: Callable[[Future[T]], None]) -> None:
        with self.callback():
            then(future)
        while self.slices:
            self.do(self.slices.popleft())

    def add_slices(self, work: Iterator[None]) -> None:
        """Schedule work for after the callback that adds it."""
        self.slices.append(work)

    def do(self, work: Iterator[None]) -> None:
        """Execute long work, each slice in its own callback."""
        is_done = False
        while not is_done:
            with self.callback():
                is_done = next(work, self) is self
