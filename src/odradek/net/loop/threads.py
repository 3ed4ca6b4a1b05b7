"""Work of a broker in threads of its pools, with results delivered on the loop.

work ──> a thread of the pool for its kind, or the metadata tree's thread ──> `then`, in a turn of the loop
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
from odradek.net.loop.pools import Pool, Pools, PoolsClosed

log = logging.getLogger(__name__)

LOAD_AGAIN_SECONDS = 1.0  # After a failure to load code because no descriptor was left.

Result = TypeVar("Result")


class Threads:
    """Threads of one broker; its methods are called on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pools = Pools()
        # One thread, so that changes complete and return in the order in which they were requested.
        self._changes = ThreadPoolExecutor(1, thread_name_prefix="odradek-metadata")
        self._is_closed = False

    def in_thread(
        self, work: Callable[[], Result], then: Callable[[Future[Result]], None], pool: Pool = Pool.READS
    ) -> None:
        """Run slow work in a thread; `then` receives its completed future on the loop."""
        if self._is_closed:
            return
        try:
            future = self._pools.submit(pool, work)
        except PoolsClosed:  # The interpreter is shutting down and stops the broker last; no other work needs the loop.
            future = completed_future(work)
        self._when_done(future, then)

    def in_order(self, work: Callable[[], Result], then: Callable[[Future[Result]], None]) -> None:
        """Run work in the metadata tree's thread, after all work queued there.

        `then` is called as in `in_thread`.
        """
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
        """Accept no more work, and deliver no more results."""
        self._is_closed = True

    def stop(self, *, cancels: bool = False) -> None:
        """Wait for work that has started; other work is also completed, or cancelled if `cancels`."""
        self._changes.shutdown(wait=True, cancel_futures=cancels)
        self._pools.stop(cancels=cancels)

    # Loading of code.

    def load_code(self) -> None:
        """Load the code of the APIs one by one, as some take 20 ms and nobody should wait for all of them."""
        self._load_next(list(reversed(BY_KEY.values())))

    def _load_next(self, apis: list[Api]) -> None:
        if apis:
            with suppress(PoolsClosed):
                self._when_done(self._pools.submit(Pool.CHORES, apis[-1].load), partial(self._loaded, apis))

    def _loaded(self, apis: list[Api], done: Future[None]) -> None:
        failure = done.exception()
        if failure is None:
            apis.pop()
            self._load_next(apis)
        elif isinstance(failure, OSError):  # No descriptor is left to read the code with.
            log.warning("failed to load the code of %s (will retry): %s", apis[-1].key.title, failure)
            self._loop.call_later(LOAD_AGAIN_SECONDS, self._load_next, apis)
        else:
            raise failure


def completed_future(work: Callable[[], Result]) -> Future[Result]:
    """Run work at once and return its completed future."""
    future: Future[Result] = Future()
    try:
        future.set_result(work())
    except Exception as failure:
        future.set_exception(failure)
    return future
