"""Lifecycle of a test's broker or cluster, for `with` and `async with`, and closed at process exit."""

from __future__ import annotations

import asyncio
import atexit
import os
from contextlib import suppress
from types import TracebackType
from typing import Self

from odradek.testing.host import BrokerFailed


class Lifetime:
    """Base of objects with `start` and `close`."""

    def __init__(self) -> None:
        self._process = os.getpid()

    def start(self) -> Self:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except BrokerFailed as failed:
            if error is None:
                raise
            error.add_note(f"Also: {failed}")  # The failure is probably the cause of the error.

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def _close_at_exit(self) -> None:
        atexit.register(self._at_exit)

    def _was_closed(self) -> None:
        atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        """Close the object if it is still open; a forked process has the object but not the broker."""
        if os.getpid() == self._process:
            with suppress(Exception):
                self.close()
