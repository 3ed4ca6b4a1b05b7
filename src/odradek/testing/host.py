"""A broker on its own event loop and thread, controlled from the test's thread.

Under `odradek serve`, an error that escapes a callback ends the process. Here the process belongs to the test: the
broker stops as if it were killed, the error is logged, and `check` raises it in the test.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import uvloop

from odradek.app.config.server_config import Settings
from odradek.app.serve.broker_startup import RunningBroker, start
from odradek.coordination.sqlite import SqliteTree

log = logging.getLogger(__name__)

SECONDS_MAX = 60  # For any call to the event loop; a test should fail rather than hang.

Result = TypeVar("Result")


class BrokerFailed(RuntimeError):
    """The broker failed or does not respond; `__cause__` contains the reason."""


class Host:
    """A running broker; its constructor raises the errors of app/serve/broker_startup.start.

    Call `stop` or `abandon` once. `prepare` is called on the event loop before the first client is answered. A given
    `loop` must be new and is closed at the end.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        durable: bool,
        prepare: Callable[[RunningBroker], None],
        loop: asyncio.AbstractEventLoop | None = None,
        open_tree: Callable[..., SqliteTree] = SqliteTree,
    ) -> None:
        self._settings = settings
        self._durable = durable
        self._prepare = prepare
        self._failure: BaseException | None = None
        self._abandoning: asyncio.Task[None] | None = None
        self._is_ending = False
        self._loop = loop or uvloop.new_event_loop()
        self._open_tree = open_tree
        self._loop.set_exception_handler(self._on_exception)
        self._thread = threading.Thread(target=self._run, name="odradek-testing", daemon=True)
        self._thread.start()
        try:
            self._running: RunningBroker = self._run_on_loop(self._start())
        except BaseException:
            self._end()
            raise

    def check(self) -> None:
        """Raise BrokerFailed if the broker has failed."""
        if self._failure is not None:
            raise BrokerFailed(f"the broker stopped after a failure: {self._failure!r}") from self._failure

    def run_query(self, query: Callable[[RunningBroker], Awaitable[Result]]) -> Result:
        """Run a query on the broker's event loop and return its result, or raise BrokerFailed."""
        self.check()
        return self._run_on_loop(self._query(query))

    def stop(self) -> None:
        """Stop cleanly; raise an error of the shutdown after the broker has stopped."""
        self._shut_down(RunningBroker.stop)

    def abandon(self) -> None:
        """Stop as if the process were killed."""
        self._shut_down(RunningBroker.abandon)

    def _shut_down(self, shutdown: Callable[[RunningBroker], Awaitable[None]]) -> None:
        try:
            self._run_on_loop(self._query(shutdown) if self._abandoning is None else self._abandoned(self._abandoning))
        finally:
            self._end()

    async def _start(self) -> RunningBroker:
        running = await start(self._settings, self._loop, durable=self._durable, open_tree=self._open_tree)
        self._prepare(running)
        return running

    async def _query(self, query: Callable[[RunningBroker], Awaitable[Result]]) -> Result:
        return await query(self._running)

    async def _abandoned(self, abandoning: asyncio.Task[None]) -> None:
        await abandoning

    def _run_on_loop(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the event loop while the caller waits."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(SECONDS_MAX)
        except TimeoutError:
            if future.done():
                raise
            future.cancel()
            raise BrokerFailed(f"the broker did not respond within {SECONDS_MAX} s") from None

    # The thread.

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_cancel_tasks(self._loop))
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()

    def _end(self) -> None:
        self._is_ending = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS_MAX)

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an error that escaped a callback, with the same rules as app/serve/server for fatal errors."""
        error = context.get("exception")
        is_fatal = isinstance(error, AssertionError) or (error is not None and "transport" not in context)
        if self._is_ending or self._failure is not None:
            is_fatal = False  # The broker is already stopping.
        log.log(logging.CRITICAL if is_fatal else logging.ERROR, "%s", context.get("message"), exc_info=error)
        if is_fatal:
            self._failure = error
            self._abandoning = loop.create_task(self._running.abandon())


async def _cancel_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel all tasks, so that callers waiting for a stopped broker are notified."""
    tasks = [task for task in asyncio.all_tasks(loop) if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
