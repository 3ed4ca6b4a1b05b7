"""Blocked threads of a running broker."""

from __future__ import annotations

import threading

from odradek.app.serve.broker_startup import RunningBroker
from odradek.net.loop.pools import THREADS_MAX, Pool
from odradek.testing import Broker

SECONDS_MAX = 60


class BlockedPool:
    """A block of all threads of one pool, which queues further work, until `gate` is set."""

    def __init__(self, broker: Broker, pool: Pool) -> None:
        self.gate = threading.Event()
        began = threading.Semaphore(0)

        def wait() -> None:
            began.release()
            self.gate.wait(SECONDS_MAX)

        async def begin(running: RunningBroker) -> None:
            for _ in range(2 * THREADS_MAX[pool]):
                running.shell.in_thread(wait, lambda done: None, pool)

        assert broker._host is not None
        broker._host.run_query(begin)
        for _ in range(THREADS_MAX[pool]):
            assert began.acquire(timeout=SECONDS_MAX)

    def __enter__(self) -> BlockedPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.set()
