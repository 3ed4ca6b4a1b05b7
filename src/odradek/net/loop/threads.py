"""What a broker does beside its loop: work that a thread of some pool does, and whose end comes back on the loop.

work ──> a thread of the pool for its kind, or the one of the metadata tree ──> then, in a turn of the loop
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TypeVar

from odradek.api.table import BY_KEY, Api
from odradek.net.loop.pools import Closed, Pool, Pools

log = logging.getLogger(__name__)

LOAD_AGAIN_SECONDS = 1.0  # After there was no descriptor to read code with.

Result = TypeVar("Result")


class Threads:
    """The threads of one broker; its methods are called on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pools = Pools()
        # One at a time, so that changes end, and come back, in the order in which they were asked for.
        self._changes = ThreadPoolExecutor(1, thread_name_prefix="odradek-metadata")
        self._is_closed = False

    def in_thread(
        self, work: Callable[[], Result], then: Callable[[Future[Result]], None], pool: Pool = Pool.READS
    ) -> None:
        """Does slow work beside the loop; `then` gets its future, done, back on the loop."""
        if self._is_closed:
            return
        try:
            future = self._pools.submit(pool, work)
        except Closed:  # The interpreter ends, and stops the broker last: there is nobody else to be served.
            future = done_here(work)
        self._when_done(future, then)

    def in_order(self, work: Callable[[], Result], then: Callable[[Future[Result]], None]) -> None:
        """Does work in the thread of the metadata tree, behind all that it has to do; `then` is as of `in_thread`."""
        if not self._is_closed:
            self._when_done(self._changes.submit(work), then)

    def _when_done(self, future: Future[Result], then: Callable[[Future[Result]], None]) -> None:
        future.add_done_callback(lambda done: self._back_on_loop(then, done))

    def _back_on_loop(self, then: Callable[[Future[Result]], None], done: Future[Result]) -> None:
        if not self._is_closed:
            self._loop.call_soon_threadsafe(self._deliver, then, done)

    def _deliver(self, then: Callable[[Future[Result]], None], done: Future[Result]) -> None:
        if not self._is_closed:
            then(done)

    def close(self) -> None:
        """Takes no more work, and tells of the end of none."""
        self._is_closed = True

    def stop(self, *, cancels: bool = False) -> None:
        """Waits for work that has begun; other work is done too, or cancelled."""
        self._changes.shutdown(wait=True, cancel_futures=cancels)
        self._pools.stop(cancels=cancels)

    # Code.

    def load_code(self) -> None:
        """Loads the code of one API after the other: some take 20 ms, and nobody waits for all of them."""
        self._load_next(list(reversed(BY_KEY.values())))

    def _load_next(self, apis: list[Api]) -> None:
        if apis:
            with suppress(Closed):
                self._when_done(self._pools.submit(Pool.CHORES, apis[-1].load), partial(self._loaded, apis))

    def _loaded(self, apis: list[Api], done: Future[None]) -> None:
        failure = done.exception()
        if failure is None:
            apis.pop()
            self._load_next(apis)
        elif isinstance(failure, OSError):  # No descriptor is left to read the code with.
            log.warning("code for %s could not be loaded and will be: %s", apis[-1].key.title, failure)
            self._loop.call_later(LOAD_AGAIN_SECONDS, self._load_next, apis)
        else:
            raise failure


def done_here(work: Callable[[], Result]) -> Future[Result]:
    """Returns the future of work that it has done."""
    future: Future[Result] = Future()
    try:
        future.set_result(work())
    except Exception as failure:
        future.set_exception(failure)
    return future
