"""Periodic check of the receive budget on the loop, which reclaims receive buffers from slow peers."""

from __future__ import annotations

import asyncio

from odradek.base.limits import RECEIVE_CHECK_SECONDS
from odradek.wire.budget import ReceiveBudget


class BudgetWatch:
    """Periodic check of one budget, from `start` to `stop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, budget: ReceiveBudget) -> None:
        self._loop = loop
        self._budget = budget
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._due = self._loop.time() + RECEIVE_CHECK_SECONDS
        self._timer = self._loop.call_later(RECEIVE_CHECK_SECONDS, self._check)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        # A late check means that this process was stopped or starved, and has not read what peers sent since.
        is_late = self._loop.time() - self._due > RECEIVE_CHECK_SECONDS / 10
        self._budget.reclaim_buffers(drops_slow_peers=not is_late)
        self.start()
